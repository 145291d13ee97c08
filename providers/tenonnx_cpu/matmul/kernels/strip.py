"""One row by several panels at a time: one panel's sums would wait for one another."""

from __future__ import annotations

from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.lanes import KIND, LANES
from tenonnx_cpu.jit.vectors.shared import shared
from tenonnx_cpu.jit.vectors.tiles import addresses, number, store_sums
from tenonnx_cpu.jit.vectors.vector import I64, Builder, Value
from tenonnx_cpu.matmul.kernels.tile import ADD, VECTORS

# Panels: with `VECTORS` sums each, enough to hide how long a multiply-add takes.
STRIP = 4


@shared("tenonnx_strip")
def multiply_strip(
    b: Builder, /, a: Value, a_column: Value, right: Value, b_row: Value, b_panel: Value,
    depth: Value, c: Value, mode: Value,
) -> None:  # fmt: skip
    """Compute ``C = A @ B`` or ``C += A @ B`` for one row and ``STRIP`` panels of columns.

    Args:
        a: Address of A's first element; ``a_column`` is bytes from column to column.
        right: Address of the first panel; ``b_row`` and ``b_panel`` are bytes from row to row and
            from panel to panel.
        depth: Columns of A, rows of B.
        c: Address of the result.
        mode: ``ZERO`` or ``ADD``.
    """
    offsets = [I64(4 * LANES * n) for n in range(VECTORS)]

    def step(index: Value, carried: list[Value]) -> list[Value]:
        (place, *rows), sums = carried[: 1 + STRIP], carried[1 + STRIP :]
        x = number(b, place)
        cells = [b.add(row, offset) for row in rows for offset in offsets]
        products = [
            v.fma(b, x, v.load(b, KIND, cell, 4), total)
            for cell, total in zip(cells, sums, strict=True)
        ]
        return [b.add(place, a_column), *(b.add(row, b_row) for row in rows), *products]

    zeros = [v.constant(KIND, 0.0)] * (STRIP * VECTORS)
    starts = addresses(b, right, b_panel, range(STRIP))
    sums = v.loop(b, depth, [a, *starts, *zeros], step)[1 + STRIP :]
    places = [b.add(c, I64(4 * LANES * n)) for n in range(len(sums))]
    store_sums(b, sums, places, b.icmp_signed("==", mode, I64(ADD)))
