"""Panels of B: ``COLUMNS`` columns side by side, every row adjacent to the next.

A panel of a few hundred rows fits the first-level cache, whatever B's strides are; elements
narrower than float32 are widened on the way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic

from tenonnx_cpu.jit import vector as v
from tenonnx_cpu.jit.compiling import helper
from tenonnx_cpu.jit.memory import store_float
from tenonnx_cpu.jit.tile import COLUMNS, LANES, VECTORS
from tenonnx_cpu.jit.vector import F16, F32, I16, I32, I64, Builder, Value

WIDTH = {"f32": 4, "f16": 2, "bf16": 2}
"""Bytes of an element as it lies in memory."""


def widened(b: Builder, kind: str, address: Value, lanes: int) -> Value:
    """Loads adjacent elements as a vector of float32."""
    if kind == "f32":
        return v.load(b, v.vector(F32, lanes), address, 4)
    if kind == "f16":
        return b.fpext(v.load(b, v.vector(F16, lanes), address, 2), v.vector(F32, lanes))
    halves = b.zext(v.load(b, v.vector(I16, lanes), address, 2), v.vector(I32, lanes))
    wide = b.shl(halves, v.constant(v.vector(I32, lanes), 16))
    return b.bitcast(wide, v.vector(F32, lanes))


def make_pack(kind: str) -> Any:
    """Returns ``pack(b, b_row, b_column, depth, columns, panel)`` for a kind of elements.

    It fills a panel of ``depth`` rows at the address ``panel`` from B at the address ``b``, with
    zeros beyond ``columns``; strides are in bytes.
    """
    width = WIDTH[kind]
    copy_rows, copy_square, load_one = _rows(kind), _square(kind), make_load(kind)

    @helper
    def pack(b: Any, b_row: Any, b_column: Any, depth: Any, columns: Any, panel: Any) -> None:
        if columns == COLUMNS and b_column == width:
            copy_rows(b, b_row, depth, panel)
            return
        first = 0
        if columns == COLUMNS and b_row == width:
            first = depth // LANES * LANES
            for row in range(0, first, LANES):
                for column in range(0, COLUMNS, LANES):
                    source = b + row * width + column * b_column
                    copy_square(source, b_column, panel + 4 * (row * COLUMNS + column))
        for row in range(first, depth):
            for column in range(COLUMNS):
                x = np.float32(0)
                if column < columns:
                    x = load_one(b + row * b_row + column * b_column)
                store_float(x, panel + 4 * (row * COLUMNS + column))

    return pack


def _rows(kind: str) -> Any:
    @intrinsic
    def copy_rows(typing_context: Any, b: Any, b_row: Any, depth: Any, panel: Any) -> Any:
        """Copies rows whose columns are adjacent."""

        def body(builder: Builder, values: Any) -> None:
            source, stride, count, target = values

            def step(index: Value, carried: list[Value]) -> list[Value]:
                line, place = carried
                for n in range(VECTORS):
                    offset = I64(WIDTH[kind] * LANES * n)
                    x = widened(builder, kind, builder.add(line, offset), LANES)
                    v.store(builder, x, builder.add(place, I64(4 * LANES * n)), 4)
                return [builder.add(line, stride), builder.add(place, I64(4 * COLUMNS))]

            v.loop(builder, count, [source, target], step)

        return _procedure(f"tenonnx_rows_{kind}", 4, body)

    return copy_rows


def _square(kind: str) -> Any:
    @intrinsic
    def copy_square(typing_context: Any, source: Any, stride: Any, target: Any) -> Any:
        """Transposes a square of ``LANES`` rows, ``stride`` apart, into a panel."""

        def body(builder: Builder, values: Any) -> None:
            address, apart, place = values
            lines = [builder.add(address, builder.mul(apart, I64(n))) for n in range(LANES)]
            rows = [widened(builder, kind, line, LANES) for line in lines]
            for n, column in enumerate(v.transpose(builder, rows)):
                v.store(builder, column, builder.add(place, I64(4 * COLUMNS * n)), 4)

        return _procedure(f"tenonnx_square_{kind}", 3, body)

    return copy_square


def make_load(kind: str) -> Any:
    """Returns ``load(address)``: an element of a kind, as float32."""

    @intrinsic
    def load_one(typing_context: Any, address: Any) -> Any:
        """Returns one element as float32."""

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            return builder.extract_element(widened(builder, kind, values[0], 1), I32(0))

        return types.float32(types.intp), generate

    return load_one


def _procedure(name: str, arguments: int, body: Callable[[Builder, Any], None]) -> Any:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        made = v.function(builder, name, [I64] * arguments, body)
        builder.call(made, values)
        return context.get_dummy_value()

    return types.void(*[types.intp] * arguments), generate
