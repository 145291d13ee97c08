"""Single numbers by address."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.vector import F32, I8, I32, I64, Builder, Value


def _load(kind: ir.Type, number: Any) -> Any:
    """Return what returns the number at an address."""

    @v.inline_llvm(number, types.intp)
    def load(b: Builder, address: Value) -> Value:
        return v.load(b, kind, address, number.bitwidth // 8)

    return load


def _store(number: Any) -> Any:
    """Return what writes a number to an address."""

    @v.inline_llvm(types.void, number, types.intp)
    def store(b: Builder, value: Value, address: Value) -> None:
        v.store(b, value, address, number.bitwidth // 8)

    return store


load_float, store_float = _load(F32, types.float32), _store(types.float32)
load_byte, store_byte = _load(I8, types.uint8), _store(types.uint8)
load_word, store_word = _load(I32, types.int32), _store(types.int32)
load_int, store_int = _load(I64, types.intp), _store(types.intp)
