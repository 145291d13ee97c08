"""A process that compiles what it is asked for: ``python -m tenonnx_cpu.jit.code.worker KIND``.

It reads a line of JSON for each thing to do and writes one when that is done; see ``ahead``.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any

from tenonnx_cpu.jit.code.cpu import compile_for


def main() -> None:
    """Answers until there is nothing more to read."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what numba and LLVM may print is no answer
    compile_for(sys.argv[1])
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
    """Returns what there is to compile for some kernels, or for all."""
    from tenonnx_cpu.brought import bring_all
    from tenonnx_cpu.jit.runtime import FOLDER, KERNELS
    from tenonnx_cpu.jit.vectors import shared

    if not kernels:
        bring_all()
        kernels = sorted({str(kernel) for kernel in KERNELS})
    for name in kernels:
        _module(name.rpartition(".")[0])
    files = (file.relative_to(FOLDER).with_suffix("") for file in shared.files())
    return {"kernels": kernels, "shared": [".".join(file.parts) for file in files]}


def _module(name: str) -> Any:
    return importlib.import_module(f"tenonnx_cpu.jit.{name}")


def _keep_kernel(name: str) -> None:
    from tenonnx_cpu.jit.vectors import shared

    module, _, own = name.rpartition(".")
    kernel = getattr(_module(module), own)
    shared.promise()
    kernel.keep(own)


def _keep_shared(name: str) -> None:
    from tenonnx_cpu.jit.runtime import source_of
    from tenonnx_cpu.jit.vectors import shared

    _module(name)
    shared.promise()
    shared.keep(source_of(name))


if __name__ == "__main__":
    main()
