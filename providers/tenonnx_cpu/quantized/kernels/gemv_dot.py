"""Products of a few rows with quantized matrices: activations as bytes, codes read once."""

from __future__ import annotations

from typing import Any

from numba.extending import intrinsic

from tenonnx_cpu.jit.compiling import In, Kernel, Out, f32, i8, i32, kernel, size
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors.lanes import LANES
from tenonnx_cpu.jit.vectors.shared import procedure
from tenonnx_cpu.matmul.kernels.epilogue import EXTRAS, finish_rows
from tenonnx_cpu.quantized.kernels.dots import CHUNK, STARTS, make_code_dots
from tenonnx_cpu.quantized.kernels.matrix import CODES, WEIGHTS, Weights
from tenonnx_cpu.quantized.kernels.round8 import round_groups
from tenonnx_cpu.quantized.kernels.zeros import make_subtract_zeros

TASK = 1 << 17
"""Codes that a task should have."""


def make_q_dots(bits: int) -> Kernel:
    """Returns the product of 1 to 4 rows with codes of so many bits, column after column."""
    each = 8 // bits
    code_dots = make_code_dots(bits)
    subtract_zeros = make_subtract_zeros(bits)

    @intrinsic
    def begin_sums(typing_context: Any, x: Any, chunks: Any, factor: Any, out: Any) -> Any:
        """See ``STARTS``."""
        return procedure(STARTS[bits])

    @parallel
    def compute_columns(arguments: Any, task: Any, worker: Any) -> None:
        x, x_scales, x_sums, starts, weights, c, extras, group, span, scratch = arguments
        scales, code_line, block = weights.scales, weights.code_line, weights.block
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
                x_scales.ctypes.data, x_scales.strides[0], starts.ctypes.data, starts.strides[0],
                weights.codes.ctypes.data + column * code_line, code_line,
                scales.ctypes.data + 4 * column * scales.shape[1], 4 * scales.shape[1],
                chunks, shared, weights.flip, out.ctypes.data, 16,
            )  # fmt: skip
            for row in range(rows):
                for line in range(lines):
                    c[row, column + line] = out[4 * row + line]
                    if weights.zeros.size:
                        subtract_zeros(
                            weights, column + line, x_sums[row], block // group,
                            c.ctypes.data + 4 * (row * columns + column + line),
                            out.ctypes.data + 64,
                        )  # fmt: skip
            column += lines
        finish_rows(c, 0, rows, left, right, extras)

    @kernel(
        (
            In(f32, 2), WEIGHTS, size, Out(f32, 2), EXTRAS,
            (Out(i8, 2), Out(f32, 3), Out(i32, 2), Out(f32, 2)), size,
        ),
        CODES,
    )  # fmt: skip
    def product(
        a: Any, weights: Any, group: Any, c: Any, extras: Any, room: Any, threads: Any
    ) -> None:
        """Computes ``C = finish(A @ W)``.

        Args:
            a: ``(rows, depth)``; ``depth`` is a multiple of a chunk's codes.
            weights: See ``WEIGHTS``.
            group: Elements of A that have a scale in common: a divisor of a block's, ``lanes``
                lanes at most.
            c: The result.
            extras: See ``EXTRAS``.
            room: For A as bytes, ``(1, 2 or 4, depth)``; for two floats per group and row,
                ``(2, rows as above, groups)``; for what the sums of chunks begin with, ``(rows as
                above, lanes)``; and for 32 floats per thread.
            threads: How many to use.
        """
        bytes_, numbers, starts, scratch = room
        matrix = Weights(*weights)
        for row in range(a.shape[0]):
            round_groups(
                a[row], group, CHUNK, each, 0, numbers[0, row], numbers[1, row], bytes_[row]
            )
        chunks = a.shape[1] * bits // 8 // CHUNK
        factor = 0 if matrix.zeros.size else -matrix.zero
        for row in range(bytes_.shape[0]):
            begin_sums(bytes_[row].ctypes.data, chunks, factor, starts[row].ctypes.data)
        columns = c.shape[1]
        tasks = min(4 * threads, max(1, columns * a.shape[1] // TASK))
        span = -(-columns // (4 * tasks)) * 4
        compute_columns(
            (bytes_, numbers[0], numbers[1], starts, matrix, c, extras, group, span, scratch),
            -(-columns // span), threads,
        )  # fmt: skip

    return product


q_dots_2, q_dots_4, q_dots_8 = (make_q_dots(bits) for bits in (2, 4, 8))
