"""Single numbers by address."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.vector import F32, I8, I32, I64


def _load(kind: ir.Type, number: Any) -> Any:
    """Return what returns the number at an address."""

    @intrinsic
    def load(typing_context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            return v.load(builder, kind, values[0], number.bitwidth // 8)

        return number(types.intp), generate

    return load


def _store(kind: ir.Type, number: Any) -> Any:
    """Return what writes a number to an address."""

    @intrinsic
    def store(typing_context: Any, value: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            v.store(builder, values[0], values[1], number.bitwidth // 8)
            return context.get_dummy_value()

        return types.void(number, types.intp), generate

    return store


load_float, store_float = _load(F32, types.float32), _store(F32, types.float32)
load_byte, store_byte = _load(I8, types.uint8), _store(I8, types.uint8)
load_word, store_word = _load(I32, types.int32), _store(I32, types.int32)
load_int, store_int = _load(I64, types.intp), _store(I64, types.intp)
