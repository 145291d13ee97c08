"""The micro-kernel of every matrix product: a tile of the result kept in registers."""

from __future__ import annotations

from tenonnx_cpu.jit.code.cpu import cpu
from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.lanes import KIND, LANES
from tenonnx_cpu.jit.vectors.shared import shared
from tenonnx_cpu.jit.vectors.tiles import (
    Rows,
    add_products,
    addresses,
    cells,
    number,
    side_by_side,
    store_sums,
)
from tenonnx_cpu.jit.vectors.vector import I64, Builder, Value

VECTORS = 2
# Rows of the largest tile: it, two vectors of B and one of A fill the registers.
ROWS = 14 if cpu().registers == 32 else 6
COLUMNS = LANES * VECTORS

CACHE_LINE = 64
# Cache lines of a panel's row.
PANEL_ROW_LINES = max(1, 4 * COLUMNS // CACHE_LINE)

# Rows of B from one that ``KEEP`` reads to one that is brought into the first-level cache, where
# hardware does not: rows of a panel lie far apart.
PREFETCHED_ROWS = 16

# The effect of a tile on its memory: overwrite or add.
ZERO, ADD = 0, 1

# Forms of a tile, added to its rows: `COLUMNS` wide, half as wide; or wide, and packing B or
# bringing along what comes next at a pace.
WIDE, NARROW, KEEP, PACED = 0, 32, 64, 96

# Whether B is multiplied panel by panel: the second-level cache has A then, and no packed block.
#
# That of processors with AVX2 has half a megabyte or less.
BY_PANELS = LANES == 8


@shared(
    "tenonnx_tile",
    {
        (form + rows,): (rows, 1 if form == NARROW else VECTORS, form)
        for form in (WIDE, NARROW, KEEP, PACED)
        for rows in range(1, ROWS + 1)
    },
)
def multiply_tile(
    b: Builder, rows: int, vectors: int, form: int, /, a: Value, a_row: Value, a_column: Value,
    right: Value, b_row: Value, depth: Value, c: Value, c_row: Value, mode: Value, ahead: Value,
    ahead_step: Value, panel: Value,
) -> None:  # fmt: skip
    """Compute ``C = A @ B`` or ``C += A @ B`` for some rows and ``COLUMNS`` of float32.

    Its key is 1 to ``ROWS``, plus a form.

    Args:
        a: Address of A's first element; ``a_row`` and ``a_column`` are bytes from row to row and
            from column to column.
        right: Address of B's first row, whose columns are adjacent; ``b_row`` from row to row.
        depth: Columns of A, rows of B; at least 1.
        c: Address of the result, whose columns are adjacent; ``c_row`` from row to row.
        mode: ``ZERO`` or ``ADD``.
        ahead: Address that will be needed soon, ``ahead_step`` to the next; ``PANEL_ROW_LINES``
            cache lines for every row of B are brought into the second-level cache meanwhile.
        panel: Where ``KEEP`` leaves B, row after row. ``PACED`` takes as many bits of a row's
            number away to count the steps of ``ahead``.
    """
    left = Rows(b, a, a_row, rows)
    count = len(left.pointers)

    def step(index: Value, carried: list[Value]) -> list[Value]:
        pointers, (line, soon), sums = carried[:count], carried[count:][:2], carried[count + 2 :]
        xs = side_by_side(b, KIND, line, vectors)
        if form == KEEP:
            place = b.add(panel, b.mul(index, I64(4 * COLUMNS)))
            for n, x in enumerate(xs):
                v.store(b, x, b.add(place, I64(4 * LANES * n)), 4)
        if form == PACED:
            paced = b.add(ahead, b.mul(b.lshr(index, panel), ahead_step))
            for n in range(PANEL_ROW_LINES):
                v.prefetch(b, b.add(paced, I64(CACHE_LINE * n)))
        elif form == KEEP and BY_PANELS:
            # What a row of the panel begins in came with the panel before.
            v.prefetch(
                b, b.add(b.add(line, I64(CACHE_LINE - 4)), b.mul(b_row, I64(PREFETCHED_ROWS))), 1
            )
        else:
            for n in range(PANEL_ROW_LINES):
                v.prefetch(b, b.add(soon, I64(CACHE_LINE * n)))
        ys = [number(b, address) for address in left.at(b, pointers)]
        products = add_products(b, v.fma, ys, xs, sums)
        moved = [b.add(pointer, a_column) for pointer in pointers]
        return [*moved, b.add(line, b_row), b.add(soon, ahead_step), *products]

    for start in addresses(b, c, c_row, range(rows)):
        for offset in range(0, 4 * LANES * vectors, CACHE_LINE):
            v.prefetch(b, b.add(start, I64(offset)))
    zeros = [v.constant(KIND, 0.0)] * (rows * vectors)
    sums = v.loop(b, depth, [*left.pointers, right, ahead, *zeros], step)[count + 2 :]
    store_sums(b, sums, cells(b, c, c_row, rows, vectors), b.icmp_signed("==", mode, I64(ADD)))
