"""The micro-kernel of products of bytes: sums in int32 per group, scaled and summed in float32."""

from __future__ import annotations

from tenonnx_cpu.jit.code.cpu import cpu
from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.dot8 import BYTE_VECTOR, SUMS, dot
from tenonnx_cpu.jit.vectors.lanes import KIND
from tenonnx_cpu.jit.vectors.shared import shared
from tenonnx_cpu.jit.vectors.tiles import (
    Rows,
    add_products,
    addresses,
    cells,
    number,
    side_by_side,
    store_sums,
    word,
)
from tenonnx_cpu.jit.vectors.vector import I64, Builder, Value
from tenonnx_cpu.matmul.kernels.tile import ADD, COLUMNS, VECTORS

# Rows of the largest tile: sums in int32 and in float32 share the registers.
Q_TILE_ROWS = 6 if cpu().registers == 32 else 2


# Of codes: those of 2 are multiplied as those of 4 are.
BITS = (4, 8)


@shared("tenonnx_q_tile", [(bits, rows) for bits in BITS for rows in range(1, Q_TILE_ROWS + 1)])
def multiply_codes(
    b: Builder, bits: int, rows: int, /, x: Value, x_row: Value, x_scales: Value, scale_row: Value,
    codes: Value, scales: Value, starts: Value, count: Value, steps: Value, c: Value,
    c_row: Value, mode: Value,
) -> None:  # fmt: skip
    """Compute ``C = X @ W`` or ``C += X @ W`` for some rows and ``COLUMNS``.

    Args:
        x: Address of X, uint8 in the order of the panel's steps; ``x_row`` is bytes from row to
            row, as ``scale_row`` and ``c_row`` are.
        x_scales: Address of X's scales, one for every group.
        codes: Address of a panel of int8: for every step four of each column.
        scales: Address of the columns' scales, for every group.
        starts: Address of the int32 that the columns' sums begin with, for every group.
        count: Groups.
        steps: Steps in each.
        c: Address of the result.
        mode: ``ZERO`` or ``ADD``.
    """
    left = Rows(b, x, x_row, rows)
    pointers = len(left.pointers)
    left_scales = addresses(b, x_scales, scale_row, range(rows))

    def multiply(b: Builder, left: Value, right: Value, total: Value) -> Value:
        return dot(b, total, left, right, bits)

    def step(index: Value, carried: list[Value]) -> list[Value]:
        own, line, sums = carried[:pointers], carried[pointers], carried[pointers + 1 :]
        rights = side_by_side(b, BYTE_VECTOR, line, VECTORS)
        lefts = (word(b, address) for address in left.at(b, own))
        result = add_products(b, multiply, lefts, rights, sums)
        return [*(b.add(each, I64(4)) for each in own), b.add(line, I64(4 * COLUMNS)), *result]

    def group(index: Value, carried: list[Value]) -> list[Value]:
        state, totals = carried[: pointers + 1], carried[pointers + 1 :]
        at = b.mul(index, I64(4 * COLUMNS))
        first = side_by_side(b, SUMS, b.add(starts, at), VECTORS)
        after = v.loop(b, steps, [*state, *first * rows], step)
        own = side_by_side(b, KIND, b.add(scales, at), VECTORS)
        result = []
        for cell, total in enumerate(after[pointers + 1 :]):
            row, n = divmod(cell, VECTORS)
            factor = b.fmul(own[n], number(b, b.add(left_scales[row], b.mul(index, I64(4)))))
            result.append(v.fma(b, b.sitofp(total, KIND), factor, totals[cell]))
        return [*after[: pointers + 1], *result]

    zeros = [v.constant(KIND, 0.0)] * (rows * VECTORS)
    totals = v.loop(b, count, [*left.pointers, codes, *zeros], group)[pointers + 1 :]
    store_sums(b, totals, cells(b, c, c_row, rows, VECTORS), b.icmp_signed("==", mode, I64(ADD)))
