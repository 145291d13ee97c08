"""From kernels, as Python declares them, to object files."""

from __future__ import annotations

from collections.abc import Set
from typing import TYPE_CHECKING, Any

import llvmlite.binding as llvm
from llvmlite import ir

from tenonnx_cpu.jit.code import numba_target
from tenonnx_cpu.jit.code.entry import ndarray_type
from tenonnx_cpu.jit.code.symbols import IDENTITY, binary_interface
from tenonnx_cpu.jit.vectors import shared

if TYPE_CHECKING:
    from tenonnx_cpu.jit.compiling import Kernel

# LLVM's level of optimization, of 3.
SPEED = 3

# The beginning of the names of CPython's functions and variables.
PYTHON = ("Py", "_Py")

# The functions of the C library that kernels may call; LLVM calls the first three by itself.
SYSTEM = frozenset({
    "memcpy", "memmove", "memset", "pthread_cond_broadcast", "pthread_cond_wait", "pthread_create",
    "pthread_getspecific", "pthread_mutex_lock", "pthread_mutex_unlock", "pthread_setspecific",
    "sched_yield",
})  # fmt: skip

# Functions of numbers, of float64; those of float32 have an `f` behind.
MATHEMATICS = frozenset({
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "atan2", "ceil", "cos", "cosh", "erf",
    "exp", "exp2", "expm1", "floor", "fma", "fmod", "frexp", "hypot", "ldexp", "lgamma", "log",
    "log10", "log1p", "log2", "nearbyint", "pow", "remainder", "rint", "round", "sin", "sinh",
    "sqrt", "tan", "tanh", "tgamma", "trunc",
})  # fmt: skip

ALLOWED = SYSTEM | MATHEMATICS | {f"{name}f" for name in MATHEMATICS}


class Unlinkable(ValueError):
    """A kernel calls a function that no library for it would find."""


def machine() -> Any:
    """Return what writes code that is optimized fully."""
    return numba_target.context().codegen().machine(opt=SPEED)


def optimize(module: Any) -> None:
    """Optimize a module."""
    options = llvm.create_pipeline_tuning_options(speed_level=SPEED)
    options.loop_vectorization, options.slp_vectorization = True, False
    builder = llvm.create_pass_builder(machine(), options)
    builder.getModulePassManager().run(module, builder)


def kernel_object(kernel: Kernel, symbol: str) -> bytes:
    """Compile a kernel; return an object file whose symbol is what CPython calls.

    Raises:
        Unlinkable: It allocates memory, or calls what kernels may not.
        Exception: Whatever numba and LLVM raise.
    """
    from tenonnx_cpu.jit.compiling import helper

    dispatcher = helper(kernel.function)
    dispatcher.compile(kernel.signature)
    compiled = dispatcher.overloads[kernel.signature]
    module = compiled.library.whole(compiled.fndesc.mangled_name)
    optimize(module)
    # By itself: a kernel that is inlined into its entry is slower.
    entry = llvm.parse_assembly(str(kernel.entry(symbol, compiled)))
    optimize(entry)
    module.link_in(entry)
    return _object(module, frozenset([symbol]))


def shared_object(file: str) -> bytes:
    """Compile the functions that a module shares with all kernels; return an object file."""
    module = llvm.parse_assembly(str(shared.module_of(file)))
    optimize(module)
    exported = {each.name for each in shared.GROUPS[file] if each.is_exported}
    return _object(module, exported, {each.name for each in shared.GROUPS[file]})


def identity_object(release: str) -> bytes:
    """Return an object file that says what a library is for, and of which release, if of one."""
    name = "identity"
    module = numba_target.context().codegen().create_library(name).create_ir_module(name)
    text = bytearray(f"{binary_interface()}; {release}".encode() + b"\0")
    kind = ir.ArrayType(ir.IntType(8), len(text))
    variable = ir.GlobalVariable(module, kind, IDENTITY)
    variable.global_constant, variable.initializer = True, ir.Constant(kind, text)
    ndarray_type(module)  # no kernel need take an array
    return bytes(machine().emit_object(llvm.parse_assembly(str(module))))


def _object(module: Any, exported: Set[str], linked: Set[str] = frozenset()) -> bytes:
    """Return an optimized module as an object file.

    Args:
        module: The module.
        exported: Its symbols that a library has for others.
        linked: Its symbols for other objects of the library.
    """
    for function in module.functions:
        if function.is_declaration:
            _check(function.name)
        elif function.name not in exported:
            if function.name in linked:
                function.visibility = llvm.Visibility.hidden
            else:
                function.linkage = llvm.Linkage.internal
    return bytes(machine().emit_object(module))


def _check(name: str) -> None:
    """Make sure that a kernel may call a function."""
    own = (each.name for functions in shared.GROUPS.values() for each in functions)
    if name.startswith((*PYTHON, "llvm.")) or name in ALLOWED or name in own:
        return
    allocates = name.startswith("NRT_")
    raise Unlinkable(
        f"it calls {name}: kernels allocate no memory"
        if allocates
        else f"it calls {name}, which is none of the functions that kernels may call"
    )
