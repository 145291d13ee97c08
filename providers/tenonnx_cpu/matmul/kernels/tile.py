"""The micro-kernel of every matrix product: a tile of the result kept in registers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from numba.extending import intrinsic

from tenonnx_cpu.jit.code.cpu import cpu
from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.lanes import LANES
from tenonnx_cpu.jit.vectors.shared import Shared, one_of
from tenonnx_cpu.jit.vectors.vector import F32, I64, Builder, Value

VECTORS = 2
ROWS = 14 if cpu().registers == 32 else 6
"""Rows of the largest tile: it, two vectors of B and one of A fill the registers."""
COLUMNS = LANES * VECTORS
ROW_GROUP = 3
"""Rows that share a pointer: x86 addresses base, base + stride and base + 2 * stride at no cost."""

CACHE_LINE = 64
LINES = max(1, 4 * COLUMNS // CACHE_LINE)
"""Cache lines of a panel's row."""

ZERO, ADD = 0, 1
"""What a tile does to the memory it is for: overwrite or add to it."""

WIDE, NARROW, KEEP = 0, 32, 64
"""Forms of a tile, added to its rows: ``COLUMNS`` wide, half as wide, or wide and packing B."""


@intrinsic
def multiply_tile(
    typing_context: Any,
    rows: Any,
    a: Any,
    a_row: Any,
    a_column: Any,
    b: Any,
    b_row: Any,
    depth: Any,
    c: Any,
    c_row: Any,
    mode: Any,
    ahead: Any,
    ahead_step: Any,
    panel: Any,
) -> Any:
    """Computes ``C = A @ B`` or ``C += A @ B`` for some rows and ``COLUMNS`` of float32.

    Args:
        rows: 1 to ``ROWS``, plus ``WIDE``, ``NARROW`` or ``KEEP``.
        a: Address of A's first element, and bytes from row to row and from column to column.
        a_row: Likewise.
        a_column: Likewise.
        b: Address of B's first row, whose columns are adjacent, and bytes from row to row.
        b_row: Likewise.
        depth: Columns of A, rows of B; at least 1.
        c: Address of the result, whose columns are adjacent, and bytes from row to row.
        c_row: Likewise.
        mode: ``ZERO`` or ``ADD``.
        ahead: Address that will be needed soon, and bytes to the next; ``LINES`` cache lines for
            every row of B are brought into the second-level cache meanwhile.
        ahead_step: Likewise.
        panel: Where ``KEEP`` leaves B, row after row.
    """
    return one_of(TILES)


def _tile(rows: int, vectors: int, keep: bool) -> Callable[[Builder, Sequence[Value]], None]:
    kind = v.vector(F32, LANES)
    cells = [(row, column) for row in range(rows) for column in range(vectors)]
    groups = range(0, rows, ROW_GROUP)

    def body(b: Builder, arguments: Sequence[Value]) -> None:
        a, a_row, a_column, right, b_row, depth, c, c_row, mode, ahead, ahead_step, panel = (
            arguments
        )
        within = [I64(0), a_row, b.add(a_row, a_row)]
        starts = [b.add(a, b.mul(a_row, I64(group))) for group in groups]

        def step(index: Value, carried: list[Value]) -> list[Value]:
            pointers, (line, soon) = carried[: len(groups)], carried[len(groups) :][:2]
            sums = carried[len(groups) + 2 :]
            xs = [v.load(b, kind, b.add(line, I64(4 * LANES * n)), 4) for n in range(vectors)]
            if keep:
                place = b.add(panel, b.mul(index, I64(4 * COLUMNS)))
                for n, x in enumerate(xs):
                    v.store(b, x, b.add(place, I64(4 * LANES * n)), 4)
            for n in range(LINES):
                v.prefetch(b, b.add(soon, I64(CACHE_LINE * n)))
            left = []
            for row in range(rows):
                address = b.add(pointers[row // ROW_GROUP], within[row % ROW_GROUP])
                left.append(v.splat(b, v.load(b, F32, address, 4), LANES))
            products = [
                v.fma(b, left[row], xs[column], sums[cell])
                for cell, (row, column) in enumerate(cells)
            ]
            moved = [b.add(pointer, a_column) for pointer in pointers]
            return [*moved, b.add(line, b_row), b.add(soon, ahead_step), *products]

        for row in range(rows):
            for offset in range(0, 4 * LANES * vectors, CACHE_LINE):
                v.prefetch(b, b.add(b.add(c, b.mul(c_row, I64(row))), I64(offset)))
        zeros = [v.constant(kind, 0.0)] * len(cells)
        sums = v.loop(b, depth, [*starts, right, ahead, *zeros], step)[-len(cells) :]
        places = [
            b.add(b.add(c, b.mul(c_row, I64(row))), I64(4 * LANES * column))
            for row, column in cells
        ]
        with b.if_else(b.icmp_signed("==", mode, I64(ADD))) as (add, overwrite):
            with add:
                for place, value in zip(places, sums, strict=True):
                    v.store(b, b.fadd(v.load(b, kind, place, 4), value), place, 4)
            with overwrite:
                for place, value in zip(places, sums, strict=True):
                    v.store(b, value, place, 4)

    return body


TILES = {
    (form + rows,): Shared(
        __file__, f"tenonnx_tile_{form + rows}", [I64] * 12, _tile(rows, vectors, form == KEEP)
    )
    for form, vectors in ((WIDE, VECTORS), (NARROW, 1), (KEEP, VECTORS))
    for rows in range(1, ROWS + 1)
}
