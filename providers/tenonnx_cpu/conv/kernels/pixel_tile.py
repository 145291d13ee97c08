"""The micro-kernel of convolutions whose result has its channels side by side in vectors.

A row of the tile is a place of the result, and a column one of its channels. What a place sees is
read number by number from wherever it lies; weights are packed, a panel of channels after another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from numba.extending import intrinsic

from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.lanes import KIND, LANES, clipped, lanes_below, read, write
from tenonnx_cpu.jit.vectors.shared import Shared, one_of
from tenonnx_cpu.jit.vectors.vector import F32, I64, Builder, Value
from tenonnx_cpu.matmul.kernels.tile import CACHE_LINE, COLUMNS, LINES, ROW_GROUP, ROWS, VECTORS

AHEAD = 4096
"""Bytes that weights are told ahead of: what the processor foresees ends with a page."""


@intrinsic
def multiply_pixels(
    typing_context: Any,
    vectors: Any,
    rows: Any,
    a: Any,
    a_row: Any,
    offsets: Any,
    depth: Any,
    b: Any,
    y: Any,
    y_row: Any,
    y_vector: Any,
    residual: Any,
    residual_row: Any,
    scale: Any,
    shift: Any,
    columns: Any,
    low: Any,
    high: Any,
) -> Any:
    """Computes ``Y = clip((A @ B) * scale + shift + residual, low, high)`` for a tile.

    What is not wanted is a line of zeros or ones that is 0 bytes from the next.

    Args:
        vectors: Of a row: 1 to ``VECTORS``.
        rows: 1 to ``ROWS``.
        a: Address that the offsets count from in A's first row, and bytes from row to row.
        a_row: Likewise.
        offsets: Address of an int64 for each column of A: bytes to its elements.
        depth: Columns of A, rows of B; at least 1.
        b: Address of a panel of B, whose rows are ``COLUMNS`` and follow one another.
        y: Address of Y, and bytes from row to row and from vector to vector of a row.
        y_row: Likewise.
        y_vector: Likewise.
        residual: Address of the residual, whose vectors are adjacent, and bytes from row to row.
        residual_row: Likewise.
        scale: Address of a factor per column.
        shift: Address of a summand per column.
        columns: How many are written, and read of the residual, factors and summands.
        low: The least result; NaN stays NaN.
        high: The greatest result.
    """
    return one_of(PIXELS)


def _tile(rows: int, vectors: int) -> Callable[[Builder, Sequence[Value]], None]:
    cells = [(row, column) for row in range(rows) for column in range(vectors)]

    def body(b: Builder, arguments: Sequence[Value]) -> None:
        a, a_row, offsets, depth, right = arguments[:5]
        within = [I64(0), a_row, b.add(a_row, a_row)]
        starts = [b.add(a, b.mul(a_row, I64(row))) for row in range(0, rows, ROW_GROUP)]

        def step(index: Value, carried: list[Value]) -> list[Value]:
            line, sums = carried[0], carried[1:]
            place = v.load(b, I64, b.add(offsets, b.mul(index, I64(8))), 8)
            xs = [v.load(b, KIND, b.add(line, I64(4 * LANES * n)), 4) for n in range(vectors)]
            for n in range(LINES):
                v.prefetch(b, b.add(line, I64(AHEAD + CACHE_LINE * n)))
            products = []
            for row in range(rows):
                start = b.add(starts[row // ROW_GROUP], place)
                address = b.add(start, within[row % ROW_GROUP])
                x = v.splat(b, v.load(b, F32, address, 4), LANES)
                products += [v.fma(b, x, xs[n], sums[row * vectors + n]) for n in range(vectors)]
            return [b.add(line, I64(4 * COLUMNS)), *products]

        zeros = [v.constant(KIND, 0.0)] * len(cells)
        sums = v.loop(b, depth, [right, *zeros], step)[1:]
        _finish(b, dict(zip(cells, sums, strict=True)), vectors, arguments)

    return body


def _finish(
    b: Builder, sums: dict[tuple[int, int], Value], vectors: int, arguments: Sequence[Value]
) -> None:
    y, y_row, y_vector, residual, residual_row, scale, shift, columns = arguments[5:13]
    low, high = (v.splat(b, x, LANES) for x in arguments[13:])

    def store(mask: Value | None) -> None:
        masks = [None] * (vectors - 1) + [mask]
        numbers = [
            [read(b, b.add(each, I64(4 * LANES * n)), masks[n]) for n in range(vectors)]
            for each in (scale, shift)
        ]
        for (row, column), value in sums.items():
            x = v.fma(b, value, numbers[0][column], numbers[1][column])
            other = b.add(residual, b.add(b.mul(residual_row, I64(row)), I64(4 * LANES * column)))
            place = b.add(b.mul(y_row, I64(row)), b.mul(y_vector, I64(column)))
            x = b.fadd(x, read(b, other, masks[column]))
            write(b, clipped(b, x, low, high), b.add(y, place), masks[column])

    with b.if_else(b.icmp_signed(">=", columns, I64(LANES * vectors)), likely=True) as (all_, part):
        with all_:
            store(None)
        with part:
            store(lanes_below(b, b.sub(columns, I64(LANES * (vectors - 1)))))


PIXELS = {
    (vectors, rows): Shared(
        __file__, f"tenonnx_pixels_{vectors}_{rows}", [*[I64] * 13, F32, F32], _tile(rows, vectors)
    )
    for vectors in range(1, VECTORS + 1)
    for rows in range(1, ROWS + 1)
}
