"""The micro-kernel of products of bytes: sums in int32 per group, scaled and summed in float32."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from numba.extending import intrinsic

from tenonnx_cpu.jit.code.cpu import cpu
from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.dot8 import BYTES, SUMS, dot
from tenonnx_cpu.jit.vectors.lanes import LANES
from tenonnx_cpu.jit.vectors.shared import Shared, one_of
from tenonnx_cpu.jit.vectors.vector import F32, I32, I64, Builder, Value
from tenonnx_cpu.matmul.kernels.tile import ADD, COLUMNS, ROW_GROUP, VECTORS

ROWS = 6 if cpu().registers == 32 else 2
"""Rows of the largest tile: sums in int32 and in float32 share the registers."""

WIDE = v.vector(F32, LANES)


def _tile(rows: int) -> Callable[[Builder, Sequence[Value]], None]:
    cells = [(row, column) for row in range(rows) for column in range(VECTORS)]
    groups = range(0, rows, ROW_GROUP)

    def body(b: Builder, arguments: Sequence[Value]) -> None:
        x, x_row, x_scales, scale_row, codes, scales, starts = arguments[:7]
        count, steps, c, c_row, mode = arguments[7:]
        within = [I64(0), x_row, b.add(x_row, x_row)]
        firsts = [b.add(x, b.mul(x_row, I64(group))) for group in groups]
        left_scales = [b.add(x_scales, b.mul(scale_row, I64(row))) for row in range(rows)]

        def step(index: Value, carried: list[Value]) -> list[Value]:
            pointers, line, sums = (
                carried[: len(groups)],
                carried[len(groups)],
                carried[len(groups) + 1 :],
            )
            right = [v.load(b, BYTES, b.add(line, I64(4 * LANES * n)), 4) for n in range(VECTORS)]
            result = []
            for row in range(rows):
                address = b.add(pointers[row // ROW_GROUP], within[row % ROW_GROUP])
                left = b.bitcast(v.splat(b, v.load(b, I32, address), LANES), BYTES)
                own = sums[row * VECTORS : (row + 1) * VECTORS]
                result += [dot(b, total, left, x) for total, x in zip(own, right, strict=True)]
            moved = [b.add(pointer, I64(4)) for pointer in pointers]
            return [*moved, b.add(line, I64(4 * COLUMNS)), *result]

        def group(index: Value, carried: list[Value]) -> list[Value]:
            state, totals = carried[: len(groups) + 1], carried[len(groups) + 1 :]
            at = b.mul(index, I64(4 * COLUMNS))
            first = [
                v.load(b, SUMS, b.add(b.add(starts, at), I64(4 * LANES * n)), 4)
                for n in range(VECTORS)
            ]
            after = v.loop(b, steps, [*state, *(first[n] for _, n in cells)], step)
            sums = after[len(groups) + 1 :]
            own = [
                v.load(b, WIDE, b.add(b.add(scales, at), I64(4 * LANES * n)), 4)
                for n in range(VECTORS)
            ]
            result = []
            for cell, (row, n) in enumerate(cells):
                place = b.add(left_scales[row], b.mul(index, I64(4)))
                factor = b.fmul(own[n], v.splat(b, v.load(b, F32, place, 4), LANES))
                result.append(v.fma(b, b.sitofp(sums[cell], WIDE), factor, totals[cell]))
            return [*after[: len(groups) + 1], *result]

        zeros = [v.constant(WIDE, 0.0)] * len(cells)
        totals = v.loop(b, count, [*firsts, codes, *zeros], group)[len(groups) + 1 :]
        places = [b.add(b.add(c, b.mul(c_row, I64(row))), I64(4 * LANES * n)) for row, n in cells]
        with b.if_else(b.icmp_signed("==", mode, I64(ADD))) as (add, overwrite):
            with add:
                for place, value in zip(places, totals, strict=True):
                    v.store(b, b.fadd(v.load(b, WIDE, place, 4), value), place, 4)
            with overwrite:
                for place, value in zip(places, totals, strict=True):
                    v.store(b, value, place, 4)

    return body


TILES = {
    (rows,): Shared(__file__, f"tenonnx_q_tile_{rows}", [I64] * 12, _tile(rows))
    for rows in range(1, ROWS + 1)
}


@intrinsic
def multiply_codes(
    typing_context: Any, rows: Any, x: Any, x_row: Any, x_scales: Any, scale_row: Any,
    codes: Any, scales: Any, starts: Any, count: Any, steps: Any, c: Any, c_row: Any, mode: Any,
) -> Any:  # fmt: skip
    """Computes ``C = X @ W`` or ``C += X @ W`` for some rows and ``COLUMNS``.

    Args:
        rows: 1 to ``ROWS``.
        x: Address of X, uint8 in the order of the panel's steps, and bytes from row to row.
        x_row: Likewise.
        x_scales: Address of X's scales, one for every group, and bytes from row to row.
        scale_row: Likewise.
        codes: Address of a panel of int8: for every step four of each column.
        scales: Address of the columns' scales, for every group.
        starts: Address of the int32 that the columns' sums begin with, for every group.
        count: Groups.
        steps: Steps in each.
        c: Address of the result, and bytes from row to row.
        c_row: Likewise.
        mode: ``ZERO`` or ``ADD``.
    """
    return one_of(TILES)
