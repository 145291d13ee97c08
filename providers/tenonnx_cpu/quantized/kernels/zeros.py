"""What the zero points of columns take away from products that were summed without them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba.extending import intrinsic

from tenonnx_cpu.jit.compiling import helper
from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.memory import load_float, store_float
from tenonnx_cpu.jit.vectors.packed_ints import WIDTHS, code_at, spread
from tenonnx_cpu.jit.vectors.shared import Shared, procedure
from tenonnx_cpu.jit.vectors.vector import F32, I8, I64, Builder, Value

ZEROS_AT_ONCE = 8
"""Zero points that ``ZEROS`` takes at a time."""


def _zeros(bits: int) -> Shared:
    """Sums, over whole vectors of blocks, products of zero points, scales and sums of bytes."""
    each = ZEROS_AT_ONCE

    def body(b: Builder, arguments: Sequence[Value]) -> None:
        zeros, scales, sums, vectors, flip, out, ahead = arguments
        flip = b.trunc(flip, I8)
        kind = v.vector(F32, each)

        def step(index: Value, carried: list[Value]) -> list[Value]:
            source = b.add(zeros, b.mul(index, I64(each * bits // 8)))
            v.prefetch(b, b.add(source, ahead))
            codes = spread(b, bits, source, flip, each)
            at = b.mul(index, I64(4 * each))
            factor = b.fmul(
                v.load(b, kind, b.add(scales, at), 4), v.load(b, kind, b.add(sums, at), 4)
            )
            return [v.fma(b, b.sitofp(codes, kind), factor, carried[0])]

        (result,) = v.loop(b, vectors, [v.constant(kind, 0.0)], step)
        v.store(b, v.total(b, result), out, 4)

    return Shared(__file__, f"tenonnx_q_zeros_{bits}", [I64] * 7, body)


ZEROS = {bits: _zeros(bits) for bits in WIDTHS}


def make_subtract_zeros(bits: int) -> Any:
    """Returns ``subtract_zeros`` for zero points of so many bits, column after column."""

    @intrinsic
    def sum_zeros(
        typing_context: Any, zeros: Any, scales: Any, sums: Any, vectors: Any, flip: Any, out: Any,
        ahead: Any,
    ) -> Any:  # fmt: skip
        """See ``ZEROS``."""
        return procedure(ZEROS[bits])

    @helper
    def subtract_zeros(
        weights: Any, column: Any, group_sums: Any, ratio: Any, c: Any, out: Any
    ) -> None:
        """Subtracts what the zero points of a column bring to an element."""
        scales, zeros, zero_line = weights.scales, weights.zeros, weights.zero_line
        total = np.float32(0)
        groups = group_sums.size
        done = 0
        if ratio == 1:
            done = groups // ZEROS_AT_ONCE * ZEROS_AT_ONCE
            sum_zeros(
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
