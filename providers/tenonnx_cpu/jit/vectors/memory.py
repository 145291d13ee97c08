"""Memory by address, for what has no array type of its own."""

from __future__ import annotations

from typing import Any

from numba import types
from numba.extending import intrinsic

from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.vector import F32, I32


@intrinsic
def load_float(typing_context: Any, address: Any) -> Any:
    """Returns the float32 at an address."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return v.load(builder, F32, values[0], 4)

    return types.float32(types.intp), generate


@intrinsic
def store_float(typing_context: Any, value: Any, address: Any) -> Any:
    """Writes a float32 to an address."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        v.store(builder, values[0], values[1], 4)
        return context.get_dummy_value()

    return types.void(types.float32, types.intp), generate


@intrinsic
def load_word(typing_context: Any, address: Any) -> Any:
    """Returns the int32 at an address."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return v.load(builder, I32, values[0], 4)

    return types.int32(types.intp), generate


@intrinsic
def store_word(typing_context: Any, value: Any, address: Any) -> Any:
    """Writes an int32 to an address."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        v.store(builder, builder.trunc(values[0], I32), values[1], 4)
        return context.get_dummy_value()

    return types.void(types.intp, types.intp), generate
