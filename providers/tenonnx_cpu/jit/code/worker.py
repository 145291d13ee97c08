"""A process that compiles what it is asked for: ``python -m tenonnx_cpu.jit.code.worker KIND``.

It reads a line of JSON for each thing to do and writes one when that is done; see ``ahead``.
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
from typing import Any

from tenonnx_cpu.jit.code.cpu import compile_for

PR_SET_PDEATHSIG = 1

YOUNG = 300_000
"""New objects after which garbage is looked for among them."""


def main() -> None:
    """Compile for a target CPU, and load nothing."""
    _end_with_starter()
    compile_for(sys.argv[1])
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
        if "shared" in asked:
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


if __name__ == "__main__":
    main()
