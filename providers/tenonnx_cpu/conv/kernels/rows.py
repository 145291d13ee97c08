"""Rows of an image: copied and cleared in whole vectors, the last of them masked."""

from __future__ import annotations

from collections.abc import Callable

from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.lanes import (
    LANES,
    lanes_between,
    load_masked,
    over_row,
    read,
    vectors_for,
    write,
)
from tenonnx_cpu.jit.vectors.shared import shared
from tenonnx_cpu.jit.vectors.vector import F32, I64, Builder, Value


@shared("tenonnx_copy_row")
def copy_row(b: Builder, /, source: Value, target: Value, count: Value) -> None:
    """Copy adjacent floats from address to address."""

    def copy(offset: Value, mask: Value | None, carried: list[Value]) -> list[Value]:
        write(b, read(b, b.add(source, offset), mask), b.add(target, offset), mask)
        return carried

    over_row(b, count, [], copy)


@shared("tenonnx_place_lines", last=(F32,))
def place_lines(
    b: Builder, /, source: Value, source_line: Value, target: Value, count: Value, first: Value,
    stop: Value, lines: Value, fill: Value,
) -> None:  # fmt: skip
    """Write lines of ``count`` floats, of which from ``first`` to ``stop`` are the source's.

    Args:
        source: Address of what comes to ``first`` in the first line.
        source_line: Bytes from line to line of the source.
        target: Address of the lines, one after the other; up to a vector beyond them is written.
        count: Floats of a line.
        first: Where the source begins.
        stop: Where it ends.
        lines: How many lines.
        fill: What the others are.
    """
    others = v.splat(b, fill, LANES)

    def column(lane: Value) -> Callable[[Value], Value]:
        mask = lanes_between(b, b.sub(first, lane), b.sub(stop, lane))
        start = b.add(source, b.mul(b.sub(lane, first), I64(4)))
        return lambda offset: load_masked(b, b.add(start, offset), mask, others)

    _columns(b, source_line, target, count, lines, column)


@shared("tenonnx_place_halved", last=(F32,))
def place_halved_lines(
    b: Builder, /, source: Value, source_line: Value, target: Value, count: Value, first: Value,
    stop: Value, lines: Value, fill: Value,
) -> None:  # fmt: skip
    """Like ``place_lines``, of every second float of the source."""
    others = v.splat(b, fill, LANES)
    low, high = b.mul(first, I64(2)), b.sub(b.mul(stop, I64(2)), I64(1))

    def column(lane: Value) -> Callable[[Value], Value]:
        halves = []
        for n in range(2):
            half = b.add(b.mul(lane, I64(2)), I64(n * LANES))
            mask = lanes_between(b, b.sub(low, half), b.sub(high, half))
            halves.append((b.add(source, b.mul(b.sub(half, low), I64(4))), mask))

        def read_line(offset: Value) -> Value:
            parts = [load_masked(b, b.add(start, offset), mask, others) for start, mask in halves]
            return v.shuffle(b, parts[0], parts[1], range(0, 2 * LANES, 2))

        return read_line

    _columns(b, source_line, target, count, lines, column)


def _columns(
    b: Builder,
    source_line: Value,
    target: Value,
    count: Value,
    lines: Value,
    column: Callable[[Value], Callable[[Value], Value]],
) -> None:
    """Write lines a vector's width at a time.

    It begins on the right: what is written beyond a line is overwritten by the next line's own.
    """
    vectors = vectors_for(b, count)

    def step(index: Value, carried: list[Value]) -> list[Value]:
        lane = b.mul(b.sub(b.sub(vectors, I64(1)), index), I64(LANES))
        read_line = column(lane)
        start = b.add(target, b.mul(lane, I64(4)))

        def line(number: Value, carried: list[Value]) -> list[Value]:
            offset, place = carried
            v.store(b, read_line(offset), place, 4)
            return [b.add(offset, source_line), b.add(place, b.mul(count, I64(4)))]

        v.loop(b, lines, [I64(0), start], line)
        return []

    v.loop(b, vectors, [], step)
