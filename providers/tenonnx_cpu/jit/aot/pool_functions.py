"""The functions of the thread pool that kernels call, in libraries without a thread pool.

A process has one thread pool, that of this provider's library, which so has a table of these
functions' addresses. The library of a plug-in has such a table as well, empty until it is opened,
and functions that call what is there.
"""

from __future__ import annotations

from llvmlite import binding as llvm
from llvmlite import ir

from tenonnx_cpu.jit.code import numba_target
from tenonnx_cpu.jit.code.building import machine, optimize
from tenonnx_cpu.jit.library import POOL_FUNCTIONS, POOL_TABLE
from tenonnx_cpu.jit.threads import thread_pool
from tenonnx_cpu.jit.vectors.shared import GROUPS, Shared
from tenonnx_cpu.jit.vectors.vector import I32, POINTER

CALLED_BY_KERNELS: tuple[Shared, ...] = tuple(
    next(each for each in GROUPS[thread_pool.__file__] if each.name == name)
    for name in POOL_FUNCTIONS
)
TABLE = ir.ArrayType(POINTER, len(CALLED_BY_KERNELS))


def pool_table() -> bytes:
    """Return an object file with the table, for the library that has the thread pool."""
    module = _module("pool_table")
    made = [
        ir.Function(module, each.kind, each.name).bitcast(POINTER) for each in CALLED_BY_KERNELS
    ]
    table = ir.GlobalVariable(module, TABLE, POOL_TABLE)
    table.global_constant, table.initializer = True, ir.Constant(TABLE, made)
    return _emitted(module)


def pool_calls() -> bytes:
    """Return an object file with an empty table, and the functions that call what is in it."""
    module = _module("pool_calls")
    table = ir.GlobalVariable(module, TABLE, POOL_TABLE)
    table.initializer = ir.Constant(TABLE, None)
    for number, each in enumerate(CALLED_BY_KERNELS):
        function = ir.Function(module, each.kind, each.name)
        b = ir.IRBuilder(function.append_basic_block("entry"))
        address = b.load(b.gep(table, [I32(0), I32(number)], inbounds=True))
        b.call(b.bitcast(address, each.kind.as_pointer()), function.args)
        b.ret_void()
    return _emitted(module)


def _module(name: str) -> ir.Module:
    return numba_target.context().codegen().create_library(name).create_ir_module(name)


def _emitted(module: ir.Module) -> bytes:
    parsed = llvm.parse_assembly(str(module))
    optimize(parsed)
    for function in parsed.functions:
        function.visibility = llvm.Visibility.hidden
    return bytes(machine().emit_object(parsed))
