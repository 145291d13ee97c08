"""Products of a few rows of float32 with matrices whose codes lie column after column."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.jit.compiling import In, Kernel, Out, f32, helper, kernel, size
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors.lanes import LANES
from tenonnx_cpu.matmul.kernels.epilogue import EXTRAS, finish_rows
from tenonnx_cpu.quantized.kernels.gemv_dot import TASK
from tenonnx_cpu.quantized.kernels.matrix import CODES, WEIGHTS, Weights
from tenonnx_cpu.quantized.kernels.real_dots import make_real_dots
from tenonnx_cpu.quantized.kernels.zeros import make_subtract_zeros


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


def make_q_reals(bits: int) -> Kernel:
    """Returns the product of 1 to 4 rows with codes of so many bits, column after column."""
    each = 8 // bits
    real_dots = make_real_dots(bits)
    subtract_zeros = make_subtract_zeros(bits)

    @parallel
    def compute_columns(arguments: Any, task: Any, worker: Any) -> None:
        x, x_sums, weights, c, extras, span, scratch = arguments
        scales, zeros, code_line, block = (
            weights.scales,
            weights.zeros,
            weights.code_line,
            weights.block,
        )
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
                weights.codes.ctypes.data + column * code_line, code_line,
                scales.ctypes.data + 4 * column * scales.shape[1], 4 * scales.shape[1],
                depth // chunk, max(1, block // chunk), weights.flip,
                0 if zeros.size else weights.zero,
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

    @kernel(
        (
            In(f32, 2), WEIGHTS, Out(f32, 2), EXTRAS,
            (Out(f32, 2), Out(f32, 2), Out(f32, 2)), size,
        ),
        CODES,
    )  # fmt: skip
    def product(a: Any, weights: Any, c: Any, extras: Any, room: Any, threads: Any) -> None:
        """Computes ``C = finish(A @ W)``.

        Args:
            a: ``(rows, depth)``; ``depth`` is a multiple of a chunk's codes.
            weights: See ``WEIGHTS``. Blocks are whole chunks, or a half or fourth of one.
            c: The result.
            extras: See ``EXTRAS``.
            room: For A in another order, ``(1, 2 or 4, depth)``; for a float per block and row; and
                for 32 floats per thread.
            threads: How many to use.
        """
        ordered, sums, scratch = room
        matrix = Weights(*weights)
        for row in range(a.shape[0]):
            order_row(a[row], each, ordered[row])
            sum_blocks(a[row], matrix.block, sums[row])
        columns = c.shape[1]
        tasks = min(4 * threads, max(1, columns * a.shape[1] // TASK))
        span = -(-columns // (4 * tasks)) * 4
        compute_columns(
            (ordered, sums, matrix, c, extras, span, scratch), -(-columns // span), threads
        )

    return product


q_reals_2, q_reals_4, q_reals_8 = (make_q_reals(bits) for bits in (2, 4, 8))
