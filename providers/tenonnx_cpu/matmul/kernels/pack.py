"""Panels of B: ``COLUMNS`` columns side by side, every row adjacent to the next.

A panel of a few hundred rows fits the first-level cache, whatever B's strides are; elements
narrower than float32 are widened on the way.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from tenonnx_cpu.jit.code.cpu import compiled_architecture, cpu
from tenonnx_cpu.jit.compiling import helper
from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.lanes import LANES, lanes_below, load_masked
from tenonnx_cpu.jit.vectors.memory import store_float
from tenonnx_cpu.jit.vectors.shared import shared, under
from tenonnx_cpu.jit.vectors.vector import F16, F32, I16, I32, I64, Builder, Value
from tenonnx_cpu.matmul.kernels.tile import BY_PANELS, COLUMNS, VECTORS

# Bytes of an element as it lies in memory.
WIDTH = {"f32": 4, "f16": 2, "bf16": 2}

# Whether the processor has float16: of x86, all that have AVX2, and few of the others.
CONVERTS = cpu().lanes >= 8 or compiled_architecture() in ("aarch64", "arm64")


def widened(b: Builder, kind: str, address: Value, lanes: int) -> Value:
    """Load adjacent elements as a vector of float32."""
    if kind == "f32":
        return v.load(b, v.vector(F32, lanes), address, 4)
    if kind == "f16" and CONVERTS:
        return b.fpext(v.load(b, v.vector(F16, lanes), address, 2), v.vector(F32, lanes))
    halves = b.zext(v.load(b, v.vector(I16, lanes), address, 2), v.vector(I32, lanes))
    if kind == "f16":
        return floats_of_halves(b, halves)
    wide = b.shl(halves, v.constant(v.vector(I32, lanes), 16))
    return b.bitcast(wide, v.vector(F32, lanes))


def floats_of_halves(b: Builder, bits: Value) -> Value:
    """Return what the low 16 bits of a vector's int32 are as float16, as float32.

    A float16's exponent and fraction, moved to a float32's, are a number 2**112 too small; but
    infinity and NaN have the exponent that means that.
    """
    whole, real = bits.type, v.vector(F32, bits.type.count)
    sign = b.shl(b.and_(bits, v.constant(whole, 0x8000)), v.constant(whole, 16))
    rest = b.and_(bits, v.constant(whole, 0x7FFF))
    small = b.bitcast(b.shl(rest, v.constant(whole, 13)), real)
    made = b.bitcast(b.fmul(small, v.constant(real, 2.0**112)), whole)
    endless = b.icmp_signed(">=", rest, v.constant(whole, 0x7C00))
    made = b.or_(made, b.select(endless, v.constant(whole, 0x7F800000), v.constant(whole, 0)))
    return b.bitcast(b.or_(made, sign), real)


@shared("tenonnx_pack_rows", [(kind,) for kind in WIDTH])
def copy_rows(
    b: Builder, kind: str, /, source: Value, stride: Value, count: Value, target: Value
) -> None:
    """Copy rows whose columns are adjacent into a panel."""

    def step(index: Value, carried: list[Value]) -> list[Value]:
        line, place = carried
        for n in range(VECTORS):
            x = widened(b, kind, b.add(line, I64(WIDTH[kind] * LANES * n)), LANES)
            v.store(b, x, b.add(place, I64(4 * LANES * n)), 4)
        return [b.add(line, stride), b.add(place, I64(4 * COLUMNS))]

    v.loop(b, count, [source, target], step)


@shared("tenonnx_pack_some")
def copy_some(
    b: Builder, /, source: Value, stride: Value, count: Value, columns: Value, target: Value
) -> None:
    """Copy rows of less columns than a panel's, of float32, into one; the others are 0."""
    masks = [lanes_below(b, b.sub(columns, I64(LANES * n))) for n in range(VECTORS)]

    def step(index: Value, carried: list[Value]) -> list[Value]:
        line, place = carried
        for n, mask in enumerate(masks):
            x = load_masked(b, b.add(line, I64(4 * LANES * n)), mask)
            v.store(b, x, b.add(place, I64(4 * LANES * n)), 4)
        return [b.add(line, stride), b.add(place, I64(4 * COLUMNS))]

    v.loop(b, count, [source, target], step)


@shared("tenonnx_pack_squares", [(kind,) for kind in WIDTH])
def copy_squares(
    b: Builder, kind: str, /, source: Value, stride: Value, last: Value, count: Value,
    target: Value,
) -> None:  # fmt: skip
    """Transpose ``LANES`` rows, ``stride`` apart, by squares; after ``last`` that row comes again.

    Rows of the next panel are brought along, where there is one panel at a time.
    """
    numbers = [b.select(b.icmp_signed("<", I64(n), last), I64(n), last) for n in range(LANES)]
    starts = [b.add(source, b.mul(stride, number)) for number in numbers]
    panel = b.mul(stride, I64(COLUMNS))

    def step(index: Value, carried: list[Value]) -> list[Value]:
        near = b.mul(index, I64(WIDTH[kind] * LANES))
        lines = [b.add(start, near) for start in starts]
        for line in lines if BY_PANELS else ():
            v.prefetch(b, b.add(line, panel))
        if LANES == 8 and kind == "f32":
            columns = transposed_halves(b, lines)
        else:
            columns = v.transpose(b, [widened(b, kind, line, LANES) for line in lines])
        for n, column in enumerate(columns):
            v.store(b, column, b.add(carried[0], I64(4 * COLUMNS * n)), 4)
        return [b.add(carried[0], I64(4 * COLUMNS * LANES))]

    v.loop(b, count, [target], step)


def transposed_halves(b: Builder, lines: list[Value]) -> list[Value]:
    """Return the columns of 8 rows of 8 float32: halves of rows are joined as they are loaded."""
    half, columns = v.vector(F32, 4), []
    for start in (0, 16):
        parts = [v.load(b, half, b.add(line, I64(start)), 4) for line in lines]
        rows = [v.shuffle(b, parts[n], parts[n + 4], range(8)) for n in range(4)]
        pairs = [
            v.shuffle(b, rows[n], rows[n + 1], order)
            for n in (0, 2)
            for order in ((0, 8, 1, 9, 4, 12, 5, 13), (2, 10, 3, 11, 6, 14, 7, 15))
        ]
        columns += [
            v.shuffle(b, pairs[n], pairs[n + 2], order)
            for n in (0, 1)
            for order in ((0, 1, 8, 9, 4, 5, 12, 13), (2, 3, 10, 11, 6, 7, 14, 15))
        ]
    return columns


def make_pack(kind: str) -> Any:
    """Return ``pack(b, b_row, b_column, depth, columns, panel)`` for a kind of elements.

    It fills a panel of ``depth`` rows at the address ``panel`` from B at the address ``b``, with
    zeros or other elements of B beyond ``columns``; strides are in bytes.
    """
    width = WIDTH[kind]
    load_one, rows_of, squares = make_load(kind), under(copy_rows, kind), under(copy_squares, kind)

    @helper
    def pack(b: Any, b_row: Any, b_column: Any, depth: Any, columns: Any, panel: Any) -> None:
        if columns == COLUMNS and b_column == width:
            rows_of(b, b_row, depth, panel)
            return
        if kind == "f32" and b_column == width:
            copy_some(b, b_row, depth, columns, panel)
            return
        first = 0
        if b_row == width:
            first = depth // LANES * LANES
            for column in range(0, columns, LANES):
                source, last = b + column * b_column, columns - column - 1
                squares(source, b_column, last, first // LANES, panel + 4 * column)
        for row in range(first, depth):
            for column in range(COLUMNS):
                x = np.float32(0)
                if column < columns:
                    x = load_one(b + row * b_row + column * b_column)
                store_float(x, panel + 4 * (row * COLUMNS + column))

    return pack


def make_load(kind: str) -> Any:
    """Return ``load(address)``: an element of a kind, as float32."""

    @v.inline_llvm(types.float32, types.intp)
    def load_one(b: Builder, address: Value) -> Value:
        return b.extract_element(widened(b, kind, address, 1), I32(0))

    return load_one
