"""A process that compiles what it is asked for: ``python -m tenonnx_cpu.jit.code.worker KIND``.

It reads a line of JSON for each thing to do and writes one when that is done; see ``ahead``. One
that compiles for a program while that runs is started otherwise (``jit.compiler_process``).
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from tenonnx_cpu.jit.code.cpu import compile_for

PR_SET_PDEATHSIG = 1

UNKEPT = "unkept"
"""The answer for a kernel that no folder keeps."""

YOUNG = 300_000
"""New objects after which garbage is looked for among them."""

DRAFT_SECONDS = 3600
"""After which a file that is still being written is one that nobody goes on with."""


def main() -> None:
    """Compile for a target CPU, and load nothing."""
    _end_with_starter()
    compile_for(sys.argv[1])
    _serve()


def beside(program: int) -> None:
    """Compile for a program that runs, by its process; end when that does."""
    _end_with_starter()
    if os.getppid() != program:  # it ended before that
        return
    _sweep_drafts()
    _serve()


def _end_with_starter() -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _lighten() -> None:
    """Spare numba work that a process which only compiles kernels does not need.

    That is the import of SciPy for its BLAS, and repeated garbage collections among the objects of
    one kernel.
    """
    sys.modules.setdefault("scipy", None)  # type: ignore[arg-type] # which says it is not there
    gc.set_threshold(YOUNG, 100, 100)


def _serve() -> None:
    """Answer until there is nothing more to read."""
    _lighten()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what numba and LLVM may print is no answer
    for line in sys.stdin:
        print(json.dumps(_answer(json.loads(line))), file=answers, flush=True)


def _answer(asked: dict[str, Any]) -> dict[str, Any]:
    if "kernels" in asked:
        return _list(asked["kernels"])
    try:
        if "ready" in asked:
            _module("compiling")
        elif "code object" in asked:
            return {"error": "" if _is_kept(asked["code object"]) else UNKEPT}
        elif "shared" in asked:
            _keep_shared(asked["shared"])
        else:
            _keep_kernel(asked["kernel"])
    except Exception as error:  # LLVM and numba raise anything
        return {"error": f"{type(error).__name__}: {error}"}
    return {"error": ""}


def _list(kernels: list[str]) -> dict[str, Any]:
    """Return what there is to compile for some kernels, or for all."""
    from tenonnx_cpu.jit.code.cache import name_of
    from tenonnx_cpu.jit.compiling import declared
    from tenonnx_cpu.jit.vectors import shared

    kernels = kernels or sorted(declared())
    for name in kernels:
        _module(name.rpartition(".")[0])
    return {"kernels": kernels, "shared": [name_of(file) for file in shared.files()]}


def _module(name: str) -> Any:
    from tenonnx_cpu.jit.code.sources import module_of

    return importlib.import_module(module_of(name))


def _keep_kernel(name: str) -> None:
    from tenonnx_cpu.jit.vectors import shared

    module, _, own = name.rpartition(".")
    kernel = getattr(_module(module), own)
    shared.promise()
    kernel.keep(own)


def _keep_shared(name: str) -> None:
    from tenonnx_cpu.jit.code.sources import source_of
    from tenonnx_cpu.jit.vectors import shared

    _module(name)
    shared.promise()
    shared.keep(source_of(name))


def _is_kept(name: str) -> bool:
    """Compile a kernel and what it shares, unless that is there and whole; return if it is kept."""
    from tenonnx_cpu.jit.code.cache import code_path
    from tenonnx_cpu.jit.code.sources import source_of

    module, _, own = name.rpartition(".")
    getattr(_module(module), own).compile(own)
    return os.path.exists(code_path(source_of(module), own))


def _sweep_drafts() -> None:
    """Delete what processes that were killed left half written."""
    from tenonnx_cpu.jit.code.cache import cache_folder

    with contextlib.suppress(OSError):
        for entry in os.scandir(cache_folder()):
            _, _, end = entry.name.rpartition(".")
            is_draft = len(end) == 16 and set(end) <= set("0123456789abcdef")
            if is_draft and time.time() - entry.stat().st_mtime > DRAFT_SECONDS:
                Path(entry.path).unlink()


if __name__ == "__main__":
    main()
