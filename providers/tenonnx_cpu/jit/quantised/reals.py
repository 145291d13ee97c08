"""Products of a few rows of float32 with matrices whose codes lie column after column."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.jit.compiling import (
    In,
    Kernel,
    Out,
    boolean,
    f32,
    helper,
    kernel,
    pasted,
    size,
    u8,
)
from tenonnx_cpu.jit.products.epilogue import finish_rows
from tenonnx_cpu.jit.products.tile import LANES
from tenonnx_cpu.jit.quantised.real_dots import make_real_dots
from tenonnx_cpu.jit.quantised.stream import TASK
from tenonnx_cpu.jit.quantised.zeros import make_subtract_zeros
from tenonnx_cpu.jit.threads.pool import parallel


@helper
def order_row(x: Any, each: Any, out: Any) -> None:
    """Reorders a row for chunks of ``LANES`` bytes: what their first codes are for comes first."""
    run = LANES * each
    for start in range(0, x.size, run):
        for plane in range(each):
            for lane in range(LANES):
                out[start + plane * LANES + lane] = x[start + lane * each + plane]


@helper
def sum_blocks(x: Any, block: Any, sums: Any) -> None:
    """Writes the sums of a row's blocks."""
    for g in range(sums.size):
        total = np.float32(0)
        for i in range(g * block, min(x.size, (g + 1) * block)):
            total += x[i]
        sums[g] = total


def make_q_reals(bits: int) -> Any:
    """Returns the product of 1 to 4 rows with codes of so many bits, column after column."""
    each = 8 // bits
    real_dots = make_real_dots(bits)
    subtract_zeros = make_subtract_zeros(bits)

    @parallel
    def compute_columns(arguments: Any, task: Any, worker: Any) -> None:
        x, x_sums, weights, block, c, extras, span, scratch = arguments
        codes, scales, zeros, _, code_line, _, flip, zero = weights
        rows, columns = c.shape
        padded, depth = x.shape
        left = task * span
        right = min(columns, left + span)
        chunk = LANES * each
        out = scratch[worker]
        column = left
        while column < right:
            lines = 4 if right - column >= 4 else 1
            real_dots(
                min(LANES, block // each), padded, lines, x.ctypes.data, x.strides[0],
                codes.ctypes.data + column * code_line, code_line,
                scales.ctypes.data + 4 * column * scales.shape[1], 4 * scales.shape[1],
                depth // chunk, max(1, block // chunk), flip, 0 if zeros.size else zero,
                out.ctypes.data, 16,
            )  # fmt: skip
            for row in range(rows):
                for line in range(lines):
                    c[row, column + line] = out[4 * row + line]
                    if zeros.size:
                        subtract_zeros(
                            weights, column + line, x_sums[row], 1,
                            c.ctypes.data + 4 * (row * columns + column + line),
                            out.ctypes.data + 64,
                        )  # fmt: skip
            column += lines
        finish_rows(c, 0, rows, left, right, extras)

    @pasted
    def product(
        a: Any, weights: Any, block: Any, c: Any, extras: Any, ordered: Any, sums: Any,
        scratch: Any, threads: Any,
    ) -> None:  # fmt: skip
        """Computes ``C = finish(A @ W)``.

        Args:
            a: float32, ``(rows, depth)``; ``depth`` is a multiple of a chunk's codes.
            weights: As for ``make_q_product``.
            block: Rows that have a scale in common: whole chunks, or a half or fourth of one.
            c: The result.
            extras: What ``finish_rows`` takes.
            ordered: Room for A, ``(1, 2 or 4, depth)``.
            sums: Room for a float per block and row.
            scratch: Room for 32 floats per thread.
            threads: How many to use.
        """
        for row in range(a.shape[0]):
            order_row(a[row], each, ordered[row])
            sum_blocks(a[row], block, sums[row])
        columns = c.shape[1]
        tasks = min(4 * threads, max(1, columns * a.shape[1] // TASK))
        span = -(-columns // (4 * tasks)) * 4
        compute_columns(
            (ordered, sums, weights, block, c, extras, span, scratch), -(-columns // span), threads
        )

    return product


SIGNATURE = (
    In(f32, 2), In(u8, 1), In(f32, 2), In(u8, 1), boolean, size, size, size, size, size,
    Out(f32, 2), In(f32, 1), In(f32, 2), f32, size, f32, f32,
    Out(f32, 2), Out(f32, 2), Out(f32, 2), size,
)  # fmt: skip


def make_kernel(bits: int) -> Kernel:
    """Returns ``make_q_reals``'s product for Python to call."""
    product = make_q_reals(bits)

    @kernel(SIGNATURE)
    def compute(
        x: Any, codes: Any, scales: Any, zeros: Any, by_column: Any, code_line: Any, zero_line: Any,
        flip: Any, zero: Any, block: Any, c: Any, bias: Any, residual: Any, alpha: Any,
        activation: Any, first: Any, second: Any, ordered: Any, sums: Any, scratch: Any,
        threads: Any,
    ) -> None:  # fmt: skip
        weights = (codes, scales, zeros, by_column, code_line, zero_line, flip, zero)
        extras = (bias, residual, alpha, activation, first, second)
        product(x, weights, block, c, extras, ordered, sums, scratch, threads)

    return compute


q_reals_2, q_reals_4, q_reals_8 = (make_kernel(bits) for bits in (2, 4, 8))
