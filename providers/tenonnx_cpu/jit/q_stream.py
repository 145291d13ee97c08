"""Products of a few rows with quantised matrices: activations as bytes, codes read once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.extending import intrinsic

from tenonnx_cpu.jit.codes import code_at
from tenonnx_cpu.jit.compiling import In, Out, boolean, f32, helper, i8, kernel, pasted, size, u8
from tenonnx_cpu.jit.epilogue import finish_rows
from tenonnx_cpu.jit.memory import load_float, store_float
from tenonnx_cpu.jit.pool import parallel
from tenonnx_cpu.jit.q_dots import CHUNK, ZEROS, make_code_dots
from tenonnx_cpu.jit.round8 import round_groups
from tenonnx_cpu.jit.shared import procedure
from tenonnx_cpu.jit.tile import LANES

TASK = 1 << 17
"""Codes that a task should have."""


def make_q_dots(bits: int) -> Any:
    """Returns the product of 1 to 4 rows with codes of so many bits, column after column."""
    each = 8 // bits
    code_dots = make_code_dots(bits)

    @intrinsic
    def sum_zeros(
        typing_context: Any, zeros: Any, scales: Any, sums: Any, vectors: Any, flip: Any, out: Any
    ) -> Any:
        """See ``ZEROS``."""
        return procedure(ZEROS[bits])

    @helper
    def subtract_zeros(
        weights: Any, column: Any, group_sums: Any, ratio: Any, c: Any, out: Any
    ) -> None:
        """Subtracts what the zero points of a column bring to an element."""
        _, scales, zeros, _, _, zero_line, flip, zero = weights
        total = np.float32(0)
        groups = group_sums.size
        if not zeros.size:
            own = scales[column]
            if ratio == 1:
                for g in range(groups):
                    total += own[g] * group_sums[g]
            else:
                for g in range(groups):
                    total += own[g // ratio] * group_sums[g]
            total *= np.float32(zero)
        else:
            done = 0
            if ratio == 1:
                done = groups // 4 * 4
                sum_zeros(
                    zeros.ctypes.data + column * zero_line * bits // 8,
                    scales.ctypes.data + 4 * column * scales.shape[1],
                    group_sums.ctypes.data, groups // 4, flip, out,
                )  # fmt: skip
                total = load_float(out)
            for g in range(done, groups):
                code = code_at(zeros.ctypes.data, column * zero_line + g // ratio, bits, flip)
                total += np.float32(code) * scales[column, g // ratio] * group_sums[g]
        store_float(load_float(c) - total, c)

    @parallel
    def compute_columns(arguments: Any, task: Any, worker: Any) -> None:
        x, x_scales, x_sums, weights, c, extras, group, block, span, scratch = arguments
        codes, scales, _, _, code_line, _, flip, _ = weights
        rows, columns = c.shape
        depth = x.shape[1]
        left = task * span
        right = min(columns, left + span)
        lanes = min(LANES, group * bits // 32)
        chunks = depth * bits // 8 // CHUNK
        shared = max(1, block * bits // 8 // CHUNK)
        padded = x.shape[0]
        out = scratch[worker]
        column = left
        while column < right:
            lines = 4 if right - column >= 4 else 1
            code_dots(
                lanes, padded, lines, x.ctypes.data, x.strides[0],
                x_scales.ctypes.data, x_scales.strides[0],
                codes.ctypes.data + column * code_line, code_line,
                scales.ctypes.data + 4 * column * scales.shape[1], 4 * scales.shape[1],
                chunks, shared, flip, out.ctypes.data, 16,
            )  # fmt: skip
            for row in range(rows):
                for line in range(lines):
                    c[row, column + line] = out[4 * row + line]
                    subtract_zeros(
                        weights, column + line, x_sums[row], block // group,
                        c.ctypes.data + 4 * (row * columns + column + line),
                        out.ctypes.data + 64,
                    )  # fmt: skip
            column += lines
        finish_rows(c, 0, rows, left, right, extras)

    @pasted
    def product(
        a: Any, weights: Any, block: Any, group: Any, c: Any, extras: Any, bytes_: Any,
        numbers: Any, scratch: Any, threads: Any,
    ) -> None:  # fmt: skip
        """Computes ``C = finish(A @ W)``.

        Args:
            a: float32, ``(rows, depth)``; ``depth`` is a multiple of a chunk's codes.
            weights: As for ``make_q_product``.
            block: Rows that have a scale in common.
            group: Elements of A that have: a divisor of ``block``, ``lanes`` lanes at most.
            c: The result.
            extras: What ``finish_rows`` takes.
            bytes_: Room for A as bytes, ``(1, 2 or 4, depth)``.
            numbers: Room for two floats per group and row, ``(2, rows as above, groups)``.
            scratch: Room for 32 floats per thread.
            threads: How many to use.
        """
        for row in range(a.shape[0]):
            round_groups(
                a[row], group, CHUNK, each, 0, numbers[0, row], numbers[1, row], bytes_[row]
            )
        columns = c.shape[1]
        tasks = min(4 * threads, max(1, columns * a.shape[1] // TASK))
        span = -(-columns // (4 * tasks)) * 4
        compute_columns(
            (bytes_, numbers[0], numbers[1], weights, c, extras, group, block, span, scratch),
            -(-columns // span), threads,
        )  # fmt: skip

    return product


SIGNATURE = (
    In(f32, 2), In(u8, 1), In(f32, 2), In(u8, 1), boolean, size, size, size, size, size, size,
    Out(f32, 2), In(f32, 1), In(f32, 2), f32, size, f32, f32,
    Out(i8, 2), Out(f32, 3), Out(f32, 2), size,
)  # fmt: skip


dots_2 = make_q_dots(2)


@kernel(SIGNATURE)
def q_dots_2(
    x: Any, codes: Any, scales: Any, zeros: Any, by_column: Any, code_line: Any, zero_line: Any,
    flip: Any, zero: Any, block: Any, group: Any, c: Any, bias: Any, residual: Any, alpha: Any,
    activation: Any, first: Any, second: Any, bytes_: Any, numbers: Any, scratch: Any,
    threads: Any,
) -> None:  # fmt: skip
    """See ``make_q_dots``."""
    weights = (codes, scales, zeros, by_column, code_line, zero_line, flip, zero)
    extras = (bias, residual, alpha, activation, first, second)
    dots_2(x, weights, block, group, c, extras, bytes_, numbers, scratch, threads)


dots_4 = make_q_dots(4)


@kernel(SIGNATURE)
def q_dots_4(
    x: Any, codes: Any, scales: Any, zeros: Any, by_column: Any, code_line: Any, zero_line: Any,
    flip: Any, zero: Any, block: Any, group: Any, c: Any, bias: Any, residual: Any, alpha: Any,
    activation: Any, first: Any, second: Any, bytes_: Any, numbers: Any, scratch: Any,
    threads: Any,
) -> None:  # fmt: skip
    """See ``make_q_dots``."""
    weights = (codes, scales, zeros, by_column, code_line, zero_line, flip, zero)
    extras = (bias, residual, alpha, activation, first, second)
    dots_4(x, weights, block, group, c, extras, bytes_, numbers, scratch, threads)


dots_8 = make_q_dots(8)


@kernel(SIGNATURE)
def q_dots_8(
    x: Any, codes: Any, scales: Any, zeros: Any, by_column: Any, code_line: Any, zero_line: Any,
    flip: Any, zero: Any, block: Any, group: Any, c: Any, bias: Any, residual: Any, alpha: Any,
    activation: Any, first: Any, second: Any, bytes_: Any, numbers: Any, scratch: Any,
    threads: Any,
) -> None:  # fmt: skip
    """See ``make_q_dots``."""
    weights = (codes, scales, zeros, by_column, code_line, zero_line, flip, zero)
    extras = (bias, residual, alpha, activation, first, second)
    dots_8(x, weights, block, group, c, extras, bytes_, numbers, scratch, threads)
