"""The micro-kernel of products of bytes: sums in int32, finished in registers."""

from __future__ import annotations

import functools

from tenonnx_cpu.int8.kernels.finishing import finish_sums, own_numbers
from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.dot8 import BYTE_VECTOR, FITS, SUMS
from tenonnx_cpu.jit.vectors.lanes import LANES
from tenonnx_cpu.jit.vectors.shared import shared
from tenonnx_cpu.jit.vectors.tiles import Rows, add_products, side_by_side, sum_bytes, word
from tenonnx_cpu.jit.vectors.vector import F32, I32, I64, Builder, Value
from tenonnx_cpu.matmul.kernels.tile import COLUMNS, ROWS, VECTORS


@shared(
    "tenonnx_byte_tile",
    [
        (vectors, rows, fits)
        for vectors in range(1, VECTORS + 1)
        for rows in range(1, ROWS + 1)
        for fits in FITS
    ],
    last=(F32, F32, I32),
)
def multiply_bytes(
    b: Builder, vectors: int, rows: int, fits: int, /, a: Value, a_row: Value, offsets: Value,
    panel: Value, steps: Value, totals: Value, numbers: Value, c: Value, c_row: Value,
    columns: Value, form: Value, low: Value, high: Value, zero: Value,
) -> None:  # fmt: skip
    """Compute a tile of ``A @ B`` of some rows and vectors of columns, and what becomes of it.

    The sum for row i and column j begins with ``numbers[0][j] - totals[i] * numbers[1][j]``; a
    result is ``sum * numbers[2][j] + numbers[3][j]``, each step rounded. ``fits`` is what
    ``see_pairs`` says of the panel.

    Args:
        a: Address that the offsets count from in A's first row, uint8; ``a_row`` is bytes from row
            to row.
        offsets: Address of an int64 for every four columns of A: bytes to them.
        panel: Address of a panel of B, int8: for every four rows four of each column.
        steps: How many fours.
        totals: Address of an int32 per row.
        numbers: Address of what ``pack_numbers`` writes.
        c: Address of the result; ``c_row`` is bytes from row to row.
        columns: How many are written; any more are all.
        form: ``SUMMED``, ``REAL`` or ``ROUNDED``.
        low: The least result but for the zero point.
        high: The greatest.
        zero: The zero point.
    """
    multiply = functools.partial(sum_bytes, bits=7 if fits else 8)
    left = Rows(b, a, a_row, rows)
    first = []
    for row in range(rows):
        for n in range(vectors):
            total = v.load(b, I32, b.add(totals, I64(4 * row)), 4)
            taken = b.mul(own_numbers(b, numbers, 1, n, SUMS), v.splat(b, total, LANES))
            first.append(b.sub(own_numbers(b, numbers, 0, n, SUMS), taken))

    def step(index: Value, carried: list[Value]) -> list[Value]:
        line, sums = carried[0], carried[1:]
        place = v.load(b, I64, b.add(offsets, b.mul(index, I64(8))), 8)
        xs = side_by_side(b, BYTE_VECTOR, line, vectors)
        ys = (word(b, address) for address in left.at(b, left.pointers, place))
        return [b.add(line, I64(4 * COLUMNS)), *add_products(b, multiply, ys, xs, sums)]

    sums = v.loop(b, steps, [panel, *first], step)[1:]
    finish_sums(b, sums, vectors, numbers, [c, c_row, columns, form, low, high, zero])
