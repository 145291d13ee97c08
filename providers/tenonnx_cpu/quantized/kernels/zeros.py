"""The terms of columns' zero points, subtracted from products that were summed without them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.jit.compiling import helper
from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.memory import load_float, store_float
from tenonnx_cpu.jit.vectors.packed_ints import WIDTHS, code_at, spread
from tenonnx_cpu.jit.vectors.shared import shared, under
from tenonnx_cpu.jit.vectors.vector import F32, I8, I64, Builder, Value

# Zero points that `sum_zeros` takes at a time.
ZEROS_AT_ONCE = 8


@shared("tenonnx_q_zeros", [(bits,) for bits in WIDTHS])
def sum_zeros(
    b: Builder, bits: int, /, zeros: Value, scales: Value, sums: Value, vectors: Value,
    flip: Value, out: Value, ahead: Value,
) -> None:  # fmt: skip
    """Sum, over whole vectors of blocks, products of zero points, scales and sums of bytes."""
    each, kind = ZEROS_AT_ONCE, v.vector(F32, ZEROS_AT_ONCE)
    flip = b.trunc(flip, I8)

    def step(index: Value, carried: list[Value]) -> list[Value]:
        source = b.add(zeros, b.mul(index, I64(each * bits // 8)))
        v.prefetch(b, b.add(source, ahead))
        codes = spread(b, bits, source, flip, each)
        at = b.mul(index, I64(4 * each))
        factor = b.fmul(v.load(b, kind, b.add(scales, at), 4), v.load(b, kind, b.add(sums, at), 4))
        return [v.fma(b, b.sitofp(codes, kind), factor, carried[0])]

    (result,) = v.loop(b, vectors, [v.constant(kind, 0.0)], step)
    v.store(b, v.total(b, result), out, 4)


def make_subtract_zeros(bits: int) -> Any:
    """Return ``subtract_zeros`` for zero points of so many bits, column after column."""
    sum_own = under(sum_zeros, bits)

    @helper
    def subtract_zeros(
        weights: Any, column: Any, group_sums: Any, ratio: Any, c: Any, out: Any
    ) -> None:
        """Subtract what the zero points of a column bring to an element."""
        scales, zeros, zero_line = weights.scales, weights.zeros, weights.zero_line
        total = np.float32(0)
        groups = group_sums.size
        done = 0
        if ratio == 1:
            done = groups // ZEROS_AT_ONCE * ZEROS_AT_ONCE
            sum_own(
                zeros.ctypes.data + column * zero_line * bits // 8,
                scales.ctypes.data + 4 * column * scales.shape[1],
                group_sums.ctypes.data, groups // ZEROS_AT_ONCE, weights.flip, out,
                8 * zero_line * bits // 8,
            )  # fmt: skip
            total = load_float(out)
        for g in range(done, groups):
            code = code_at(zeros.ctypes.data, column * zero_line + g // ratio, bits, weights.flip)
            total += np.float32(code) * scales[column, g // ratio] * group_sums[g]
        store_float(load_float(c) - total, c)

    return subtract_zeros
