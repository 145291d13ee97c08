"""Products of a few rows with matrices whose codes lie column after column, and are read once."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.jit.compiling import In, Kernel, Out, f32, helper, i8, i32, kernel, size
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors.lanes import LANES
from tenonnx_cpu.jit.vectors.shared import under
from tenonnx_cpu.matmul.kernels.epilogue import EXTRAS, finish_rows
from tenonnx_cpu.quantized.kernels.dots import DOT_COLUMNS, PER_LANE, begin_sums, code_dots
from tenonnx_cpu.quantized.kernels.matrix import CODES, WEIGHTS, Weights
from tenonnx_cpu.quantized.kernels.round8 import CHUNK, order_bytes, round_groups
from tenonnx_cpu.quantized.kernels.zeros import make_subtract_zeros

# Codes that a task should have.
TASK_CODES = 1 << 17


@helper
def columns_of_task(columns: Any, depth: Any, threads: Any) -> Any:
    """Return how many columns a task has."""
    tasks = min(4 * threads, max(1, columns * depth // TASK_CODES))
    return -(-columns // (4 * tasks)) * 4


def make_multiply(bits: int, kind: str) -> Any:
    """Return what multiplies 1, 2 or 4 rows by some columns of codes of so many bits."""
    dots, subtract_zeros = under(code_dots, kind, bits), make_subtract_zeros(bits)
    per_lane, most, fewer = PER_LANE[kind], DOT_COLUMNS[1], DOT_COLUMNS[4]

    @helper
    def multiply_columns(
        rows: Any, padded: Any, top: Any, activations: Any, weights: Any, first: Any, c: Any,
        group: Any, left: Any, right: Any, out: Any,
    ) -> None:  # fmt: skip
        """Write some rows' columns from ``left`` to ``right``.

        Args:
            rows: How many.
            padded: With those that are multiplied for nothing.
            top: The first, of the activations and of the result.
            activations: Themselves, their scales, their sums and what sums begin with.
            weights: ``Weights``.
            first: Their column that is the result's first.
            c: The result.
            group: Elements of a row that have a scale in common.
            left: The first column.
            right: The column after the last.
            out: 32 floats to work in.
        """
        x, x_scales, x_sums, starts = activations
        scales, zeros, code_line = weights.scales, weights.zeros, weights.code_line
        columns, depth = c.shape[1], x.shape[1]
        chunk = 8 // bits * per_lane * LANES
        column, wide = left, most if padded < 4 else fewer
        while column < right:
            lines = wide if right - column >= wide else 1
            own = first + column
            dots(
                min(LANES, group * bits // (8 * per_lane)), padded, lines,
                x.ctypes.data + top * x.strides[0], x.strides[0],
                x_scales.ctypes.data + top * x_scales.strides[0], x_scales.strides[0],
                starts.ctypes.data + top * starts.strides[0], starts.strides[0],
                weights.codes.ctypes.data + own * code_line, code_line,
                scales.ctypes.data + 4 * own * scales.shape[1], 4 * scales.shape[1],
                depth // chunk, max(1, weights.block // chunk), weights.flip,
                0 if zeros.size else weights.zero, out.ctypes.data, 16,
            )  # fmt: skip
            for row in range(rows):
                for line in range(lines):
                    c[top + row, column + line] = out[4 * row + line]
                    if zeros.size:
                        subtract_zeros(
                            weights, own + line, x_sums[top + row], weights.block // group,
                            c.ctypes.data + 4 * ((top + row) * columns + column + line),
                            out.ctypes.data + 64,
                        )  # fmt: skip
            column += lines

    return multiply_columns


def make_columns(bits: int, kind: str) -> Any:
    """Return what multiplies 1 to 4 rows by a task's columns of codes of so many bits."""
    # Three rows of bytes as two and one: a fourth, of anything, takes longer than codes read again
    # from the cache. Reals of fewer rows would be rounded otherwise.
    multiply_columns, apart = make_multiply(bits, kind), kind == "bytes"

    @parallel
    def compute_columns(arguments: Any, task: Any, worker: Any) -> None:
        activations, weights, c, extras, group, span, scratch = arguments
        rows, columns = c.shape
        padded = activations[0].shape[0]
        left = task * span
        right = min(columns, left + span)
        whole = 2 if apart and rows == 3 else rows
        multiply_columns(
            whole, 2 if whole < rows else padded, 0, activations, weights, 0, c,
            group, left, right, scratch[worker],
        )  # fmt: skip
        if whole < rows:
            multiply_columns(
                1, 1, whole, activations, weights, 0, c, group, left, right, scratch[worker]
            )
        finish_rows(c, 0, rows, left, right, extras)

    return compute_columns


def make_q_dots(bits: int) -> Kernel:
    """Return the product of 1 to 4 rows, rounded to bytes, with codes of so many bits."""
    compute_columns, begin = make_columns(bits, "bytes"), under(begin_sums, bits)
    order = under(order_bytes, bits, CHUNK)

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
        """Compute ``C = finish(A @ W)``.

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
            own = bytes_[row]
            round_groups(a[row], group, 0, numbers[0, row], numbers[1, row], own)
            order(own.ctypes.data, own.size)
        chunks = a.shape[1] * bits // 8 // CHUNK
        factor = 0 if matrix.zeros.size else -matrix.zero
        for row in range(bytes_.shape[0]):
            begin(bytes_[row].ctypes.data, chunks, factor, starts[row].ctypes.data)
        span = columns_of_task(c.shape[1], a.shape[1], threads)
        compute_columns(
            ((bytes_, numbers[0], numbers[1], starts), matrix, c, extras, group, span, scratch),
            -(-c.shape[1] // span), threads,
        )  # fmt: skip

    return product


@helper
def order_row(x: Any, each: Any, out: Any) -> None:
    """Reorder a row for chunks of ``LANES`` bytes: what their first codes are for comes first."""
    run, step = LANES * each, np.uintp(each)
    for start in range(0, x.size, run):
        own = x[start : start + run]
        for plane in range(each):
            line = out[start + plane * LANES : start + (plane + 1) * LANES]
            for lane in range(line.size):
                line[lane] = own[step * np.uintp(lane) + np.uintp(plane)]


@helper
def sum_blocks(x: Any, block: Any, sums: Any) -> None:
    """Write the sums of a row's blocks."""
    for g in range(sums.size):
        total = np.float32(0)
        for i in range(g * block, min(x.size, (g + 1) * block)):
            total += x[i]
        sums[g] = total


def make_q_reals(bits: int) -> Kernel:
    """Return the product of 1 to 4 rows of float32 with codes of so many bits."""
    each = 8 // bits
    compute_columns = make_columns(bits, "reals")

    @kernel(
        (
            In(f32, 2), WEIGHTS, Out(f32, 2), EXTRAS,
            (Out(f32, 2), Out(f32, 2), Out(f32, 2)), size,
        ),
        CODES,
    )  # fmt: skip
    def product(a: Any, weights: Any, c: Any, extras: Any, room: Any, threads: Any) -> None:
        """Compute ``C = finish(A @ W)``, as ``make_q_dots``'s does.

        Blocks are whole chunks, or a half or fourth of one. ``room`` is for A in another order,
        ``(1, 2 or 4, depth)``; for a float per block and row, if there are zero points; and for 32
        floats per thread.
        """
        ordered, sums, scratch = room
        matrix = Weights(*weights)
        for row in range(a.shape[0]):
            order_row(a[row], each, ordered[row])
            sum_blocks(a[row], matrix.block, sums[row])
        span = columns_of_task(c.shape[1], a.shape[1], threads)
        compute_columns(
            ((ordered, ordered, sums, ordered), matrix, c, extras, matrix.block, span, scratch),
            -(-c.shape[1] // span), threads,
        )  # fmt: skip

    return product


q_dots_2, q_dots_4, q_dots_8 = (make_q_dots(bits) for bits in (2, 4, 8))
q_reals_2, q_reals_4, q_reals_8 = (make_q_reals(bits) for bits in (2, 4, 8))
