"""Rows of bytes: copied with padding, and interleaved in fours for products of bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from tenonnx_cpu.jit.code.cpu import cpu
from tenonnx_cpu.jit.compiling import helper
from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.lanes import LANES
from tenonnx_cpu.jit.vectors.memory import load_byte, load_int, store_byte
from tenonnx_cpu.jit.vectors.vector import I8, I32, I64, Builder, Value

BYTES = 4 * LANES
KIND = v.vector(I8, BYTES)
MASK = v.vector(ir.IntType(1), BYTES)
MASKED = cpu().lanes == 16
"""Whether the processor loads some bytes of a vector alone."""


@helper
def place_bytes(
    source: Any, source_line: Any, target: Any, count: Any, first: Any, stop: Any, lines: Any,
    stride: Any, fill: Any, flip: Any,
) -> None:  # fmt: skip
    """Writes lines of ``count`` bytes, of which from ``first`` to ``stop`` are the source's.

    Args:
        source: Address of what comes to ``first`` in the first line.
        source_line: Bytes from line to line of the source.
        target: Address of the lines, one after the other; up to 63 bytes beyond are written.
        count: Bytes of a line.
        first: Where the source begins.
        stop: Where it ends.
        lines: How many lines.
        stride: Bytes from one to the next of the source's.
        fill: What the others are.
        flip: Bits of the source that are inverted.
    """
    if MASKED and stride <= 2:
        place_masked(source, source_line, target, count, first, stop, lines, stride, fill, flip)
        return
    for line in range(lines):
        for i in range(count):
            value = fill
            if first <= i < stop:
                value = load_byte(source + line * source_line + stride * (i - first)) ^ flip
            store_byte(value, target + line * count + i)


@intrinsic
def place_masked(
    typing_context: Any,
    source: Any,
    source_line: Any,
    target: Any,
    count: Any,
    first: Any,
    stop: Any,
    lines: Any,
    stride: Any,
    fill: Any,
    flip: Any,
) -> Any:
    """Does what ``place_bytes`` does, for strides of 1 and 2, a vector at a time."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kinds = [I64] * 7 + [I8] * 2
        given = [*values[:7], *values[8:]]
        one, two = (
            v.function(builder, f"tenonnx_place_bytes_{stride}", kinds, _place(stride))
            for stride in (1, 2)
        )
        with builder.if_else(builder.icmp_signed("==", values[7], I64(1))) as (single, double):
            with single:
                builder.call(one, given)
            with double:
                builder.call(two, given)
        return context.get_dummy_value()

    return types.void(*[types.intp] * 8, types.uint8, types.uint8), generate


def _place(stride: int) -> Callable[[Builder, Any], None]:
    def body(b: Builder, values: Any) -> None:
        source, source_line, target, count, first, stop, lines, fill, flip = values
        others, inverted = v.splat(b, fill, BYTES), v.splat(b, flip, BYTES)
        vectors = b.sdiv(b.add(count, I64(BYTES - 1)), I64(BYTES))
        low = b.mul(first, I64(stride))
        high = b.sub(b.mul(stop, I64(stride)), I64(stride - 1))

        def step(index: Value, carried: list[Value]) -> list[Value]:
            # From the right: what is written beyond a line is overwritten by the next.
            lane = b.mul(b.sub(b.sub(vectors, I64(1)), index), I64(BYTES))
            parts = []
            for n in range(stride):
                half = b.add(b.mul(lane, I64(stride)), I64(n * BYTES))
                mask = between(b, b.sub(low, half), b.sub(high, half))
                parts.append((b.add(source, b.sub(half, low)), mask))

            def line(number: Value, carried: list[Value]) -> list[Value]:
                offset, place = carried
                seen = []
                for start, mask in parts:
                    x = load_masked(b, b.add(start, offset), mask)
                    seen.append(b.select(mask, b.xor(x, inverted), others))
                value = seen[0]
                if stride == 2:
                    value = v.shuffle(b, seen[0], seen[1], range(0, 2 * BYTES, 2))
                v.store(b, value, place)
                return [b.add(offset, source_line), b.add(place, count)]

            v.loop(b, lines, [I64(0), b.add(target, lane)], line)
            return []

        v.loop(b, vectors, [], step)

    return body


def between(b: Builder, first: Value, stop: Value) -> Value:
    """Returns the mask of the lanes from ``first`` to before ``stop``, which may be no lanes."""
    numbers = ir.Constant(KIND, list(range(BYTES)))

    def bound(value: Value) -> Value:
        value = b.select(b.icmp_signed("<", value, I64(0)), I64(0), value)
        value = b.select(b.icmp_signed(">", value, I64(BYTES)), I64(BYTES), value)
        return v.splat(b, b.trunc(value, I8), BYTES)

    from_first = b.icmp_unsigned(">=", numbers, bound(first))
    return b.and_(from_first, b.icmp_unsigned("<", numbers, bound(stop)))


def load_masked(b: Builder, address: Value, mask: Value) -> Value:
    """Loads the bytes of a mask; the others are 0, and their memory is not touched."""
    name = f"llvm.masked.load.v{BYTES}i8.p0"
    kind = ir.FunctionType(KIND, [KIND.as_pointer(), I32, MASK, KIND])
    function = cgutils.get_or_insert_function(b.module, kind, name)
    pointer = b.inttoptr(address, KIND.as_pointer())
    return b.call(function, [pointer, I32(1), mask, v.constant(KIND, 0)])


@intrinsic
def interleave_fours(
    typing_context: Any, source: Any, offsets: Any, fours: Any, target: Any, flip: Any
) -> Any:
    """Packs a panel: of every four rows, the first column's bytes, then the second's, and so on.

    Args:
        source: An address.
        offsets: Address of an int64 for each row: bytes from ``source`` to it.
        fours: How many fours of rows.
        target: Address of the panel, ``8 * LANES`` bytes for every four rows.
        flip: Bits that are inverted.
    """

    def body(b: Builder, values: Any) -> None:
        source, offsets, fours, target, flip = values
        inverted = v.splat(b, flip, BYTES)
        kind = v.vector(I8, LANES)
        # A vector of four rows, as loaded one after the other, and its bytes column by column.
        mixed = [LANES * (n % 4) + n // 4 for n in range(4 * LANES)]

        def step(index: Value, carried: list[Value]) -> list[Value]:
            table, place = carried
            starts = [b.add(source, v.load(b, I64, b.add(table, I64(8 * n)), 8)) for n in range(4)]
            for half in range(2):
                rows = [v.load(b, kind, b.add(start, I64(LANES * half))) for start in starts]
                pairs = [v.shuffle(b, rows[n], rows[n + 1], range(2 * LANES)) for n in (0, 2)]
                four = v.shuffle(b, pairs[0], pairs[1], range(4 * LANES))
                value = b.xor(v.shuffle(b, four, four, mixed), inverted)
                v.store(b, value, b.add(place, I64(4 * LANES * half)), 4 * LANES)
            return [b.add(table, I64(32)), b.add(place, I64(8 * LANES))]

        v.loop(b, fours, [offsets, target], step)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        builder.call(v.function(builder, "tenonnx_fours", [*[I64] * 4, I8], body), values)
        return context.get_dummy_value()

    return types.void(*[types.intp] * 4, types.uint8), generate


@helper
def gather_columns(
    source: Any, offsets: Any, depth: Any, columns: Any, target: Any, pitch: Any, flip: Any
) -> None:
    """Copies a few columns so that each is adjacent bytes, with zeros up to ``pitch``."""
    for column in range(columns):
        place = target + column * pitch
        for row in range(depth):
            x = load_byte(source + load_int(offsets + 8 * row) + column)
            store_byte(x ^ flip, place + row)
        for row in range(depth, pitch):
            store_byte(np.uint8(0), place + row)
