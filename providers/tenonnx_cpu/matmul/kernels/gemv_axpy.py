"""Rows of the result as sums of rows of B, for products of a few rows by a large B."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.jit.compiling import helper
from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.lanes import KIND, LANES
from tenonnx_cpu.jit.vectors.memory import load_float, store_float
from tenonnx_cpu.jit.vectors.shared import shared, under
from tenonnx_cpu.jit.vectors.tiles import addresses, number
from tenonnx_cpu.jit.vectors.vector import I64, Builder, Value
from tenonnx_cpu.matmul.kernels.pack import WIDTH, make_load, widened

# Rows of B that are added at a time, by rows of A; one by one at the end.
ADDED_BY_ROWS = {1: 8, 2: 8, 3: 8, 4: 8, 5: 4, 6: 4, 7: 4, 8: 4}


@shared(
    "tenonnx_lines",
    [
        (kind, rows, lines)
        for kind in WIDTH
        for rows, most in ADDED_BY_ROWS.items()
        for lines in (1, most)
    ],
)
def add_lines(
    b: Builder, kind: str, rows: int, count: int, /, a: Value, a_row: Value, a_column: Value,
    right: Value, b_row: Value, c: Value, c_row: Value, vectors: Value,
) -> None:  # fmt: skip
    """Add ``rows`` x ``count`` of A by whole vectors of B's rows to C."""
    factors = []
    for row in range(rows):
        places = addresses(b, b.add(a, b.mul(a_row, I64(row))), a_column, range(count))
        factors.append([number(b, place) for place in places])
    tops = addresses(b, right, b_row, range(count))
    later = [b.add(top, b.mul(b_row, I64(count))) for top in tops]
    targets = addresses(b, c, c_row, range(rows))

    def step(index: Value, carried: list[Value]) -> list[Value]:
        near, far = b.mul(index, I64(WIDTH[kind] * LANES)), b.mul(index, I64(4 * LANES))
        xs = [widened(b, kind, b.add(top, near), LANES) for top in tops]
        for line in later if count > 1 else ():
            v.prefetch(b, b.add(line, near))
        for own, target in zip(factors, targets, strict=True):
            place = b.add(target, far)
            before = v.load(b, KIND, place, 4)
            # Of one row the lines' sum comes first, so that less is lost; memory is what takes
            # time. Of more rows another addition for each would.
            apart = rows == 1 < count
            value = v.constant(KIND, 0.0) if apart else before
            for x, factor in zip(xs, own, strict=True):
                value = v.fma(b, x, factor, value)
            v.store(b, b.fadd(before, value) if apart else value, place, 4)
        return []

    v.loop(b, vectors, [], step)


def make_sum_lines(kind: str) -> Any:
    """Return ``sum_lines`` for B of a kind of elements."""
    load_one, add = make_load(kind), under(add_lines, kind)
    width = WIDTH[kind]

    @helper
    def sum_lines(
        rows: Any, columns: Any, first: Any, end: Any, last: Any,
        a: Any, a_row: Any, a_column: Any, b: Any, b_row: Any, c: Any, c_row: Any,
    ) -> None:  # fmt: skip
        """Compute ``C = A[:, first:end] @ B[first:end]``, where B's columns are adjacent.

        Args:
            rows: Of A and C, 1 to 8.
            columns: Of B and C. C has room for a vector more.
            first: The first row of B to add.
            end: After the last one.
            last: B's last row, beyond which there is nothing to read.
            a: Address of A.
            a_row: Bytes from row to row of A.
            a_column: Bytes from column to column of A.
            b: Address of B.
            b_row: Bytes from row to row of B.
            c: Address of C.
            c_row: Bytes from row to row of C.
        """
        whole = columns // LANES
        # A vector may reach into B's next row: what it brings lands in C's room.
        beyond = whole * LANES < columns and b_row >= width * LANES
        vectors = whole + 1 if beyond else whole
        for row in range(rows):
            for column in range((whole + 1) * LANES):
                store_float(np.float32(0), c + row * c_row + 4 * column)
        stop = min(end, last) if beyond else end
        most = 8 if rows <= 4 else 4
        k = first
        while k < stop:
            lines = most if stop - k >= most else 1
            add(
                rows, lines, a + k * a_column, a_row, a_column, b + k * b_row, b_row,
                c, c_row, vectors,
            )  # fmt: skip
            k += lines
        if stop < end:
            add(
                rows, 1, a + stop * a_column, a_row, a_column, b + stop * b_row, b_row,
                c, c_row, whole,
            )  # fmt: skip
        for k in range(stop if beyond else first, end):
            for column in range(whole * LANES, columns):
                x = load_one(b + k * b_row + column * width)
                for row in range(rows):
                    target = c + row * c_row + 4 * column
                    y = load_float(a + row * a_row + k * a_column)
                    store_float(load_float(target) + x * y, target)

    return sum_lines
