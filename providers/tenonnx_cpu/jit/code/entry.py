"""Entries: how Python calls a kernel, with nothing between them.

An entry is a function of CPython's ``METH_FASTCALL`` in LLVM's language. It reads arrays where
numpy keeps what describes them (``PyArrayObject_fields``, whose beginning numpy's ABI fixes: data,
number of dimensions, shape, strides), converts numbers, and lets other threads have the
interpreter while the kernel runs. A kernel that was stopped has left an exception, which it raises.

Called with a count below 0, an entry does without the interpreter: numbers come as addresses of the
number as an integer and, in the next word, as a float; whoever calls looks for exceptions.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.np.arrayobj import populate_array

from tenonnx_cpu.jit.code import numba_target
from tenonnx_cpu.jit.code.symbols import NDARRAY
from tenonnx_cpu.jit.threads.memory import RESUME
from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.vector import F64, I8, I32, I64, POINTER, VOID, Builder, Value

FASTCALL = ir.FunctionType(POINTER, [POINTER, POINTER.as_pointer(), I64])

# Bytes of what every object begins with; a pointer to its type is the last of it.
HEAD = object.__basicsize__
DATA, NDIM, SHAPE, STRIDES = HEAD, HEAD + 8, HEAD + 16, HEAD + 24


def make_entry(symbol: str, compiled: Any) -> ir.Module:
    """Return a module with the entry of a compiled kernel.

    Args:
        symbol: Its symbol, ``norm.norms.softmax``; errors name the last part.
        compiled: numba's result.
    """
    context = numba_target.context()
    module = context.codegen().create_library(symbol).create_ir_module(symbol)
    function = ir.Function(module, FASTCALL, symbol)
    name = symbol.rpartition(".")[2]
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    parameters = compiled.signature.args
    kinds = tuple(itertools.chain.from_iterable(map(_members, parameters)))
    bare = builder.icmp_signed("<", function.args[2], I64(0))
    differ = builder.icmp_signed("!=", function.args[2], I64(len(kinds)))
    with builder.if_then(builder.and_(builder.not_(bare), differ), likely=False):
        _refuse(builder, f"{name}() takes {len(kinds)} arguments")
    given = [
        builder.load(builder.gep(function.args[1], [I64(position)], inbounds=True))
        for position in range(len(kinds))
    ]
    arrays = {
        position: _array(context, builder, kind, value, f"{name}(): argument {position} must be")
        for position, (kind, value) in enumerate(zip(kinds, given, strict=True))
        if isinstance(kind, types.Array)
    }
    numbers = {n: (kind, given[n]) for n, kind in enumerate(kinds) if n not in arrays}
    found = arrays | _numbers(context, builder, numbers, bare)
    members = iter([found[position] for position in range(len(kinds))])
    values = [
        context.make_tuple(builder, kind, [next(members) for _ in kind])
        if isinstance(kind, types.BaseTuple)
        else next(members)
        for kind in parameters
    ]
    _run(context, builder, compiled, values, bare)
    none = v.variable(builder, "_Py_NoneStruct", I8)
    v.call_function(builder, "Py_IncRef", VOID, none)
    builder.ret(none)
    return module


def _run(
    context: Any, builder: Builder, compiled: Any, values: Sequence[Value], bare: Value
) -> None:
    """Call the kernel while other threads have the interpreter; leave if it was stopped."""
    before = builder.block
    with builder.if_then(builder.not_(bare)):
        saved, held = v.call_function(builder, "PyEval_SaveThread", POINTER), builder.block
    thread = builder.phi(POINTER)
    thread.add_incoming(POINTER(None), before)
    thread.add_incoming(saved, held)
    context.call_internal_no_propagate(builder, compiled.fndesc, compiled.signature, values)
    with builder.if_then(bare):
        builder.ret(POINTER(None))
    v.call_function(builder, "PyEval_RestoreThread", VOID, thread)
    stopped = v.call_function(builder, "PyErr_Occurred", POINTER)
    with builder.if_then(cgutils.is_not_null(builder, stopped), likely=False):
        v.call_function(builder, RESUME, VOID)
        builder.ret(POINTER(None))


def _numbers(
    context: Any, builder: Builder, given: Mapping[int, tuple[Any, Value]], bare: Value
) -> dict[int, Value]:
    """Return numbers by position; leave if one is none."""
    if not given:
        return {}
    with builder.if_else(bare) as (raw, objects):
        with raw:
            read = {n: _raw(context, builder, *each) for n, each in given.items()}
            read_at = builder.block
        with objects:
            converted = {n: _number(context, builder, *each) for n, each in given.items()}
            error = v.call_function(builder, "PyErr_Occurred", POINTER)
            with builder.if_then(cgutils.is_not_null(builder, error), likely=False):
                builder.ret(POINTER(None))
            converted_at = builder.block
    found = {}
    for n, number in read.items():
        found[n] = builder.phi(number.type)
        found[n].add_incoming(number, read_at)
        found[n].add_incoming(converted[n], converted_at)
    return found


def _raw(context: Any, builder: Builder, kind: Any, value: Value) -> Value:
    """Return a number that lies in memory, as ``capture`` writes it."""
    own = context.get_value_type(kind)
    if isinstance(kind, types.Float):
        number = _field(builder, value, 8, F64)
        return number if own == F64 else builder.fptrunc(number, own)
    number = _field(builder, value, 0, I64)
    return number if own == I64 else builder.trunc(number, own)


def _members(kind: Any) -> Sequence[Any]:
    """Return the types of a call's arguments that are one of the kernel's."""
    return tuple(kind) if isinstance(kind, types.BaseTuple) else (kind,)


def _array(context: Any, builder: Builder, kind: Any, value: Value, expected: str) -> Value:
    """Return a kernel's view of one of numpy's arrays, which the caller keeps meanwhile."""
    own = _field(builder, value, HEAD - 8, POINTER)
    numpys = builder.load(ndarray_type(builder.module))
    with builder.if_then(builder.icmp_unsigned("!=", own, numpys), likely=False):
        related = v.call_function(builder, "PyType_IsSubtype", I32, own, numpys)
        with builder.if_then(builder.icmp_signed("==", related, I32(0)), likely=False):
            _refuse(builder, f"{expected} an array")
    ndim = _field(builder, value, NDIM, I32)
    with builder.if_then(builder.icmp_signed("!=", ndim, I32(kind.ndim)), likely=False):
        _refuse(builder, f"{expected} of {kind.ndim} dimensions")
    element = context.get_data_type(kind.dtype)
    array = context.make_array(kind)(context, builder)
    populate_array(
        array,
        data=_field(builder, value, DATA, element.as_pointer()),
        shape=_words(builder, value, SHAPE, kind.ndim),
        strides=_words(builder, value, STRIDES, kind.ndim),
        itemsize=context.get_abi_sizeof(element),
        meminfo=None,
    )
    return array._getvalue()


def ndarray_type(module: ir.Module) -> Any:
    """Return the word of the library that holds the address of numpy's type of arrays.

    Every object defines it, and the linker keeps one: in C's words, it is a common symbol.
    """
    if NDARRAY not in module.globals:
        word = ir.GlobalVariable(module, POINTER, NDARRAY)
        word.linkage, word.initializer = "common", ir.Constant(POINTER, None)
    return module.globals[NDARRAY]


def _number(context: Any, builder: Builder, kind: Any, value: Value) -> Value:
    """Return a number; if it is none, the interpreter knows of an error."""
    own = context.get_value_type(kind)
    if isinstance(kind, types.Float):
        number = v.call_function(builder, "PyFloat_AsDouble", F64, value)
        return number if own == F64 else builder.fptrunc(number, own)
    if isinstance(kind, types.Boolean):
        truth = v.call_function(builder, "PyObject_IsTrue", I32, value)
        return builder.icmp_signed(">", truth, I32(0))
    if isinstance(kind, types.Integer):
        overflow = builder.load(v.variable(builder, "PyExc_OverflowError", POINTER))
        number = v.call_function(builder, "PyNumber_AsSsize_t", I64, value, overflow)
        return number if own == I64 else builder.trunc(number, own)
    raise TypeError(f"a kernel takes arrays and numbers; found {kind}")


def _field(builder: Builder, value: Value, offset: int, kind: ir.Type) -> Value:
    place = builder.gep(value, [I64(offset)], inbounds=True)
    return builder.load(builder.bitcast(place, kind.as_pointer()))


def _words(builder: Builder, value: Value, offset: int, count: int) -> list[Value]:
    words = _field(builder, value, offset, I64.as_pointer())
    return [builder.load(builder.gep(words, [I64(i)], inbounds=True)) for i in range(count)]


def _refuse(builder: Builder, message: str) -> None:
    """Leave with a ``TypeError``."""
    kind = builder.load(v.variable(builder, "PyExc_TypeError", POINTER))
    v.call_function(builder, "PyErr_SetString", VOID, kind, v.text(builder, message))
    builder.ret(POINTER(None))
