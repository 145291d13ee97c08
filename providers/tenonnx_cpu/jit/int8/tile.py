"""The micro-kernel of products of matrices of bytes: sums in int32, finished in registers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numba.extending import intrinsic

from tenonnx_cpu.jit.compiling import helper
from tenonnx_cpu.jit.int8.conv_tile import REAL, ROUNDED, SUMMED, to_bytes
from tenonnx_cpu.jit.products.tile import COLUMNS, ROW_GROUP, ROWS, VECTORS
from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.dot8 import BYTES, SUMS, dot
from tenonnx_cpu.jit.vectors.lanes import LANES, clipped
from tenonnx_cpu.jit.vectors.memory import load_word, store_float, store_word
from tenonnx_cpu.jit.vectors.shared import Shared, one_of
from tenonnx_cpu.jit.vectors.vector import F32, I32, I64, Builder, Value

NUMBERS = 4 * COLUMNS
"""Bytes of each kind of numbers that a panel's columns have."""

WIDE = v.vector(F32, LANES)


def _tile(rows: int) -> Callable[[Builder, Sequence[Value]], None]:
    cells = [(row, n) for row in range(rows) for n in range(VECTORS)]
    groups = range(0, rows, ROW_GROUP)

    def body(b: Builder, arguments: Sequence[Value]) -> None:
        a, a_row, panel, steps, totals, numbers, c, c_row, form, low, high, zero = arguments
        within = [I64(0), a_row, b.add(a_row, a_row)]
        starts = [b.add(a, b.mul(a_row, I64(group))) for group in groups]

        def own(place: int, n: int, kind: Any) -> Value:
            at = b.add(numbers, I64(NUMBERS * place + 4 * LANES * n))
            return v.load(b, kind, at, 4)

        first = []
        for row, n in cells:
            total = v.load(b, I32, b.add(totals, I64(4 * row)), 4)
            taken = b.mul(own(1, n, SUMS), v.splat(b, total, LANES))
            first.append(b.sub(own(0, n, SUMS), taken))

        def step(index: Value, carried: list[Value]) -> list[Value]:
            pointers, line = carried[: len(groups)], carried[len(groups)]
            sums = carried[len(groups) + 1 :]
            right = [v.load(b, BYTES, b.add(line, I64(4 * LANES * n)), 4) for n in range(VECTORS)]
            result = []
            for row in range(rows):
                address = b.add(pointers[row // ROW_GROUP], within[row % ROW_GROUP])
                left = b.bitcast(v.splat(b, v.load(b, I32, address), LANES), BYTES)
                here = sums[row * VECTORS : (row + 1) * VECTORS]
                result += [dot(b, total, left, x) for total, x in zip(here, right, strict=True)]
            moved = [b.add(pointer, I64(4)) for pointer in pointers]
            return [*moved, b.add(line, I64(4 * COLUMNS)), *result]

        sums = v.loop(b, steps, [*starts, panel, *first], step)[len(groups) + 1 :]
        lines = [b.add(c, b.mul(c_row, I64(row))) for row in range(rows)]
        with b.if_then(b.icmp_signed("==", form, I64(SUMMED))):
            for (row, n), value in zip(cells, sums, strict=True):
                v.store(b, value, b.add(lines[row], I64(4 * LANES * n)), 4)
        real = [
            b.fadd(b.fmul(b.sitofp(value, WIDE), own(2, n, WIDE)), own(3, n, WIDE))
            for (_, n), value in zip(cells, sums, strict=True)
        ]
        least, most, middle = (v.splat(b, x, LANES) for x in (low, high, zero))
        with b.if_then(b.icmp_signed("==", form, I64(REAL))):
            for (row, n), value in zip(cells, real, strict=True):
                x = clipped(b, value, least, most)
                v.store(b, x, b.add(lines[row], I64(4 * LANES * n)), 4)
        with b.if_then(b.icmp_signed("==", form, I64(ROUNDED))):
            for (row, n), value in zip(cells, real, strict=True):
                rounded = to_bytes(b, value, least, most, middle)
                v.store(b, rounded, b.add(lines[row], I64(LANES * n)))

    return body


TILES = {
    (rows,): Shared(
        __file__, f"tenonnx_byte_tile_{rows}", [*[I64] * 9, F32, F32, I32], _tile(rows)
    )
    for rows in range(1, ROWS + 1)
}  # fmt: skip


@intrinsic
def multiply_bytes(
    typing_context: Any, rows: Any, a: Any, a_row: Any, panel: Any, steps: Any, totals: Any,
    numbers: Any, c: Any, c_row: Any, form: Any, low: Any, high: Any, zero: Any,
) -> Any:  # fmt: skip
    """Computes a tile of ``A @ B`` of some rows and ``COLUMNS``, and what becomes of it.

    The sum for row i and column j begins with ``numbers[0][j] - totals[i] * numbers[1][j]``; a
    result is ``sum * numbers[2][j] + numbers[3][j]``, each step rounded.

    Args:
        rows: 1 to ``ROWS``.
        a: Address of A, uint8 whose columns are adjacent, and bytes from row to row.
        a_row: Likewise.
        panel: Address of a panel of B, int8: for every four rows four of each column.
        steps: How many fours.
        totals: Address of an int32 per row.
        numbers: Address of two int32, then two float32, ``COLUMNS`` of each.
        c: Address of the result, and bytes from row to row.
        c_row: Likewise.
        form: ``SUMMED``, ``REAL`` or ``ROUNDED``.
        low: The least result but for the zero point.
        high: The greatest.
        zero: The zero point.
    """
    return one_of(TILES)


@helper
def pack_numbers(column: Any, depth: Any, columns_own: Any, numbers: Any) -> None:
    """Writes what ``multiply_bytes`` takes of ``COLUMNS`` columns, of which the sums are there.

    Args:
        column: The first of them.
        depth: Rows of B.
        columns_own: A's zero point; B's, or that of every column; what is added to every column's
            sums, what they are multiplied by, and what is added then.
        numbers: An address.
    """
    origin, zeros, extra, factor, summand = columns_own
    for i in range(COLUMNS):
        j = column + i
        zero = zeros[j if zeros.size > 1 else 0]
        start = origin * (np.int32(depth) * zero - np.int32(load_word(numbers + 4 * i)))
        if extra.size:
            start += extra[j]
        store_word(start, numbers + 4 * i)
        store_word(zero, numbers + NUMBERS + 4 * i)
        store_float(factor[j if factor.size > 1 else 0], numbers + 2 * NUMBERS + 4 * i)
        shift = summand[j] if summand.size else np.float32(0)
        store_float(shift, numbers + 3 * NUMBERS + 4 * i)
