"""From LLVM's modules to code objects that are loaded, and kept for other processes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import Any

import llvmlite.binding as llvm

from tenonnx.weights.trusted import write_trusted
from tenonnx_cpu.jit.code import code_object, numba_target
from tenonnx_cpu.jit.code.cache import COMPILER, cache_folder, compiler, refuse_changed, signed
from tenonnx_cpu.jit.code.cpu import compiles_only
from tenonnx_cpu.jit.code.linking import link

SPEED = 3
"""LLVM's level of optimization, of 3."""


def machine() -> Any:
    """Return what writes code that is optimized fully."""
    return numba_target.context().codegen().machine(opt=SPEED)


def optimize(module: Any) -> None:
    """Optimize a module."""
    options = llvm.create_pipeline_tuning_options(speed_level=SPEED)
    options.loop_vectorization, options.slp_vectorization = True, False
    builder = llvm.create_pass_builder(machine(), options)
    builder.getModulePassManager().run(module, builder)


def build(module: Any, exports: Sequence[str], path: str) -> dict[str, int]:
    """Make a code object of an optimized module, keep it as a file and load it.

    Returns:
        The addresses of its exports; 0 in a process that only compiles.

    Raises:
        Unlinkable: The machine code has something that ``linking`` does not know.
        OSError: It cannot be loaded.
        LookupError: A symbol that it uses is nowhere.
        Changed: It may not be of the source that the file's name says.
    """
    linked = link(machine().emit_object(module), exports)
    needs = {name for symbol in linked.outside if (name := code_object.origin(symbol))}
    content = linked._replace(needs=tuple(sorted(needs))).pack()
    refuse_changed()
    keep(path, content)
    _sign()
    if compiles_only():
        return code_object.promise(os.path.basename(path), exports)
    return code_object.find(path, exports) or code_object.place(path, content)


def _sign() -> None:
    """Keep which version of numba compiles into the folder."""
    if signed(cache_folder()) != compiler():
        keep(os.path.join(cache_folder(), COMPILER), str(compiler()).encode())


def keep(path: str, content: bytes) -> None:
    """Write a file of the cache; that it cannot be kept is no error."""
    with contextlib.suppress(OSError):
        write_trusted(path, content)
