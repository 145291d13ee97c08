"""The micro-kernel of convolutions whose result has its channels side by side in vectors.

A row of the tile is a place of the result, and a column one of its channels. What a place sees is
read number by number from wherever it lies; weights are packed, a panel of channels after another.
"""

from __future__ import annotations

from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.lanes import KIND, LANES, clipped, lanes_below, read, write
from tenonnx_cpu.jit.vectors.shared import shared
from tenonnx_cpu.jit.vectors.tiles import Rows, add_products, number, side_by_side
from tenonnx_cpu.jit.vectors.vector import F32, I64, Builder, Value
from tenonnx_cpu.matmul.kernels.tile import CACHE_LINE, COLUMNS, PANEL_ROW_LINES, ROWS, VECTORS

# Weights are prefetched so many bytes ahead: the processor's own prefetch ends with a page.
PREFETCH_BYTES = 4096


@shared(
    "tenonnx_pixels",
    [(vectors, rows) for vectors in range(1, VECTORS + 1) for rows in range(1, ROWS + 1)],
    last=(F32, F32),
)
def multiply_pixels(
    b: Builder, vectors: int, rows: int, /, a: Value, a_row: Value, offsets: Value, depth: Value,
    right: Value, y: Value, y_row: Value, y_vector: Value, residual: Value, residual_row: Value,
    scale: Value, shift: Value, columns: Value, low: Value, high: Value,
) -> None:  # fmt: skip
    """Compute ``Y = clip((A @ B) * scale + shift + residual, low, high)`` for a tile.

    What is not wanted is a line of zeros or ones that is 0 bytes from the next.

    Args:
        a: Address that the offsets count from in A's first row; ``a_row`` is bytes from row to row.
        offsets: Address of an int64 for each column of A: bytes to its elements.
        depth: Columns of A, rows of B; at least 1.
        right: Address of a panel of B, whose rows are ``COLUMNS`` and follow one another.
        y: Address of Y; ``y_row`` and ``y_vector`` are bytes from row to row and from vector to
            vector of a row.
        residual: Address of the residual, whose vectors are adjacent; ``residual_row`` as above.
        scale: Address of a factor per column.
        shift: Address of a summand per column.
        columns: How many are written, and read of the residual, factors and summands.
        low: The least result; NaN stays NaN.
        high: The greatest result.
    """
    left = Rows(b, a, a_row, rows)

    def step(index: Value, carried: list[Value]) -> list[Value]:
        line, sums = carried[0], carried[1:]
        place = v.load(b, I64, b.add(offsets, b.mul(index, I64(8))), 8)
        xs = side_by_side(b, KIND, line, vectors)
        for n in range(PANEL_ROW_LINES):
            v.prefetch(b, b.add(line, I64(PREFETCH_BYTES + CACHE_LINE * n)))
        ys = (number(b, address) for address in left.at(b, left.pointers, place))
        return [b.add(line, I64(4 * COLUMNS)), *add_products(b, v.fma, ys, xs, sums)]

    zeros = [v.constant(KIND, 0.0)] * (rows * vectors)
    sums = v.loop(b, depth, [right, *zeros], step)[1:]
    lows, highs = v.splat(b, low, LANES), v.splat(b, high, LANES)

    def store(mask: Value | None) -> None:
        masks = [None] * (vectors - 1) + [mask]
        factors, summands = (
            [read(b, b.add(each, I64(4 * LANES * n)), masks[n]) for n in range(vectors)]
            for each in (scale, shift)
        )
        for cell, value in enumerate(sums):
            row, column = divmod(cell, vectors)
            x = v.fma(b, value, factors[column], summands[column])
            other = b.add(residual, b.add(b.mul(residual_row, I64(row)), I64(4 * LANES * column)))
            place = b.add(b.mul(y_row, I64(row)), b.mul(y_vector, I64(column)))
            x = b.fadd(x, read(b, other, masks[column]))
            write(b, clipped(b, x, lows, highs), b.add(y, place), masks[column])

    with b.if_else(b.icmp_signed(">=", columns, I64(LANES * vectors)), likely=True) as (all_, part):
        with all_:
            store(None)
        with part:
            store(lanes_below(b, b.sub(columns, I64(LANES * (vectors - 1)))))
