"""One row by several panels at a time: one panel's sums would wait for one another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numba.extending import intrinsic

from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.lanes import LANES
from tenonnx_cpu.jit.vectors.shared import Shared, procedure
from tenonnx_cpu.jit.vectors.vector import F32, I64, Builder, Value
from tenonnx_cpu.matmul.kernels.tile import ADD, VECTORS

STRIP = 4
"""Panels: with ``VECTORS`` sums each, enough to hide how long a multiply-add takes."""


def _strip(b: Builder, arguments: Sequence[Value]) -> None:
    a, a_column, right, b_row, b_panel, depth, c, mode = arguments
    kind = v.vector(F32, LANES)
    starts = [b.add(right, b.mul(b_panel, I64(panel))) for panel in range(STRIP)]
    offsets = [I64(4 * LANES * vector) for vector in range(VECTORS)]

    def step(index: Value, carried: list[Value]) -> list[Value]:
        (place, *lines), sums = carried[: 1 + STRIP], carried[1 + STRIP :]
        x = v.splat(b, v.load(b, F32, place, 4), LANES)
        cells = [b.add(line, offset) for line in lines for offset in offsets]
        products = [
            v.fma(b, x, v.load(b, kind, cell, 4), total)
            for cell, total in zip(cells, sums, strict=True)
        ]
        return [b.add(place, a_column), *(b.add(line, b_row) for line in lines), *products]

    zeros = [v.constant(kind, 0.0)] * (STRIP * VECTORS)
    sums = v.loop(b, depth, [a, *starts, *zeros], step)[1 + STRIP :]
    add = b.icmp_signed("==", mode, I64(ADD))
    for n, total in enumerate(sums):
        place = b.add(c, I64(4 * LANES * n))
        with b.if_else(add) as (more, anew):
            with more:
                v.store(b, b.fadd(v.load(b, kind, place, 4), total), place, 4)
            with anew:
                v.store(b, total, place, 4)


STRIPS = Shared(__file__, "tenonnx_strip", [I64] * 8, _strip)


@intrinsic
def multiply_strip(
    typing_context: Any, a: Any, a_column: Any, b: Any, b_row: Any, b_panel: Any, depth: Any,
    c: Any, mode: Any,
) -> Any:  # fmt: skip
    """Computes ``C = A @ B`` or ``C += A @ B`` for one row and ``STRIP`` panels of columns.

    Args:
        a: Address of A's first element, and bytes from column to column.
        a_column: Likewise.
        b: Address of the first panel, and bytes from row to row and from panel to panel.
        b_row: Likewise.
        b_panel: Likewise.
        depth: Columns of A, rows of B.
        c: Address of the result.
        mode: ``ZERO`` or ``ADD``.
    """
    return procedure(STRIPS)
