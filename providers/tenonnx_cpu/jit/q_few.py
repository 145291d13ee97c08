"""Products of a few rows with matrices whose codes lie row after row; codes are read once."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.jit.compiling import (
    In,
    Out,
    boolean,
    f32,
    helper,
    i8,
    i32,
    kernel,
    pasted,
    size,
    u8,
)
from tenonnx_cpu.jit.epilogue import finish_rows
from tenonnx_cpu.jit.pool import parallel
from tenonnx_cpu.jit.q_lines import line_bytes, make_add_group
from tenonnx_cpu.jit.round8 import round_groups
from tenonnx_cpu.jit.tile import LANES
from tenonnx_cpu.jit.workspace import LINES_SLAB, LINES_SLAB_ROW, LINES_SPAN

DEEP = 512
"""Rows of codes that a task should have at least."""


@helper
def gather_panels(source: Any, target: Any, first: Any, bits: Any, panel: Any, last: Any) -> None:
    """Puts columns from ``first`` on in order; the last panel ends where they do.

    Args:
        source: Whole panels, in the order of ``q_lines``.
        target: A row of the result.
        first: The first column that is wanted.
        bits: Of a code.
        panel: Columns of a panel.
        last: The column that the panel begins at which holds ``first``.
    """
    each = 8 // bits
    for column in range(first, target.size):
        own = (column - last) % panel
        base = (column - last) // panel * panel
        byte, plane = own // each, own % each
        target[column] = source[base + (byte // LANES * each + plane) * LANES + byte % LANES]


@helper
def sum_bytes(x: Any, group: Any, sums: Any) -> None:
    """Writes the sums of a row's groups of bytes."""
    for g in range(sums.size):
        total = np.int32(0)
        for i in range(g * group, (g + 1) * group):
            total += np.int32(x[i])
        sums[g] = total


def make_few(bits: int, kind: str) -> Any:
    """Returns the product of 1 to 4 rows with codes of so many bits, row after row."""
    each = 8 // bits
    add_group = make_add_group(bits, kind)
    width = 1 if kind == "bytes" else 4
    taken = 4 if kind == "bytes" else 1

    @helper
    def order_columns(source: Any, target: Any, bits: Any, panel: Any) -> None:
        """Puts a row's panels in order; the last one may begin within the one before it."""
        whole = target.size // panel * panel
        gather_panels(source[:whole], target[:whole], 0, bits, panel, 0)
        gather_panels(source[whole:], target, whole, bits, panel, target.size - panel)

    @helper
    def sum_groups(
        x: Any, x_scales: Any, x_sums: Any, weights: Any, group: Any, block: Any, start: Any,
        stop: Any, column: Any, panels: Any, target: Any,
    ) -> None:  # fmt: skip
        """Adds rows of codes to whole panels from a column on, which lie at an address."""
        codes, scales, zeros, _, code_line, _, flip, zero = weights
        padded, depth = x.shape
        byte = column * bits // 8
        for k in range(start, stop, group):
            line, g = k // block, k // group
            ahead = group * code_line if k + group < stop else 0
            add_group(
                padded, 1 if zeros.size else 0, x.ctypes.data + width * k, width * depth,
                x_scales.ctypes.data + 4 * g, x_sums.ctypes.data + 4 * g, x_scales.strides[0],
                codes.ctypes.data + k * code_line + byte, code_line,
                scales.ctypes.data + 4 * (line * scales.shape[1] + column),
                zeros.ctypes.data + line * code_line + byte, zero, group // taken, panels,
                flip, ahead, 4 * scales.shape[1] if ahead else 0, target, 4 * LINES_SLAB_ROW,
            )  # fmt: skip

    @parallel
    def compute_part(arguments: Any, task: Any, worker: Any) -> None:
        x, x_scales, x_sums, weights, c, extras, memory, group, block, span, deep = arguments
        rows, columns = c.shape
        padded, depth = x.shape
        across, down = -(-columns // span), -(-depth // deep)
        left = task % across * span
        start = task // across * deep
        stop = min(depth, start + deep)
        wide = min(span, columns - left)
        panel = line_bytes(bits, padded) * each
        whole = wide // panel
        slab = (task if down > 1 else worker) * LINES_SLAB
        for row in range(padded):
            first = slab + row * LINES_SLAB_ROW
            for i in range(first, first + (whole + 1) * panel):
                memory[i] = np.float32(0)
        sums = memory.ctypes.data + 4 * slab
        given = x, x_scales, x_sums, weights, group, block, start, stop
        if whole:
            sum_groups(*given, left, whole, sums)
        if wide > whole * panel:
            sum_groups(*given, left + wide - panel, 1, sums + 4 * whole * panel)
        if down == 1:
            for row in range(rows):
                first = slab + row * LINES_SLAB_ROW
                source = memory[first : first + (whole + 1) * panel]
                order_columns(source, c[row, left : left + wide], bits, panel)
            finish_rows(c, 0, rows, left, left + wide, extras)

    @parallel
    def join_parts(arguments: Any, task: Any, worker: Any) -> None:
        c, extras, memory, padded, span, down = arguments
        columns = c.shape[1]
        across = -(-columns // span)
        left = task * span
        wide = min(span, columns - left)
        panel = line_bytes(bits, padded) * each
        length = (wide // panel + 1) * panel
        for row in range(c.shape[0]):
            first = task * LINES_SLAB + row * LINES_SLAB_ROW
            total = memory[first : first + length]
            for part in range(1, down):
                start = first + part * across * LINES_SLAB
                source = memory[start : start + length]
                for i in range(length):
                    total[i] += source[i]
            order_columns(total, c[row, left : left + wide], bits, panel)
        finish_rows(c, 0, c.shape[0], left, left + wide, extras)

    @pasted
    def product(
        x: Any, x_scales: Any, x_sums: Any, weights: Any, block: Any, group: Any, c: Any,
        extras: Any, memory: Any, threads: Any,
    ) -> None:  # fmt: skip
        """Computes ``C = finish(X @ W)``.

        Args:
            x: int8 or float32, ``(1, 2 or 4, depth)``; beyond C's rows anything.
            x_scales: Scales of groups, for int8.
            x_sums: Sums of groups' bytes, for int8.
            weights: As for ``make_q_product``.
            block: Rows that have a scale in common.
            group: Rows that X has: a divisor of ``block`` and of ``depth``, a multiple of 4.
            c: The result.
            extras: What ``finish_rows`` takes.
            memory: ``WORKSPACE`` floats for every thread.
            threads: How many to use.
        """
        padded, depth = x.shape
        columns = c.shape[1]
        panel = line_bytes(bits, padded) * each
        across = -(-columns // LINES_SPAN)
        span = -(-columns // (across * panel)) * panel
        across = -(-columns // span)
        down = 1
        if across < threads:
            most = max(1, depth // max(DEEP, group))
            twice = -(-2 * threads // across)
            down = twice if twice <= most else min(-(-threads // across), most)
        deep = -(-depth // (down * group)) * group
        down = -(-depth // deep)
        compute_part(
            (x, x_scales, x_sums, weights, c, extras, memory, group, block, span, deep),
            across * down, threads,
        )  # fmt: skip
        if down > 1:
            join_parts((c, extras, memory, padded, span, down), across, threads)

    return product


def make_bytes(bits: int) -> Any:
    """Returns ``make_few``'s product for float32 that is rounded to bytes first."""
    few = make_few(bits, "bytes")

    @pasted
    def product(
        a: Any, weights: Any, block: Any, group: Any, c: Any, extras: Any, bytes_: Any,
        numbers: Any, sums: Any, memory: Any, threads: Any,
    ) -> None:  # fmt: skip
        for row in range(a.shape[0]):
            round_groups(a[row], group, 1, 1, 0, numbers[0, row], numbers[1, row], bytes_[row])
            sum_bytes(bytes_[row], group, sums[row])
        few(bytes_, numbers[0], sums, weights, block, group, c, extras, memory, threads)

    return product


WEIGHTS = (In(u8, 1), In(f32, 2), In(u8, 1), boolean, size, size, size, size, size, size)
EXTRAS = (Out(f32, 2), In(f32, 1), In(f32, 2), f32, size, f32, f32)
BYTES_SIGNATURE = (
    In(f32, 2), *WEIGHTS, *EXTRAS, Out(i8, 2), Out(f32, 3), Out(i32, 2), Out(f32, 1), size,
)  # fmt: skip
REALS_SIGNATURE = (In(f32, 2), *WEIGHTS, *EXTRAS, In(f32, 2), In(i32, 2), Out(f32, 1), size)


bytes_2 = make_bytes(2)


@kernel(BYTES_SIGNATURE)
def q_few_bytes_2(
    x: Any, codes: Any, scales: Any, zeros: Any, by_column: Any, code_line: Any, zero_line: Any,
    flip: Any, zero: Any, block: Any, group: Any, c: Any, bias: Any, residual: Any, alpha: Any,
    activation: Any, first: Any, second: Any, rounded: Any, numbers: Any, sums: Any,
    memory: Any, threads: Any,
) -> None:  # fmt: skip
    """See ``make_bytes``."""
    weights = (codes, scales, zeros, by_column, code_line, zero_line, flip, zero)
    extras = (bias, residual, alpha, activation, first, second)
    bytes_2(x, weights, block, group, c, extras, rounded, numbers, sums, memory, threads)


bytes_4 = make_bytes(4)


@kernel(BYTES_SIGNATURE)
def q_few_bytes_4(
    x: Any, codes: Any, scales: Any, zeros: Any, by_column: Any, code_line: Any, zero_line: Any,
    flip: Any, zero: Any, block: Any, group: Any, c: Any, bias: Any, residual: Any, alpha: Any,
    activation: Any, first: Any, second: Any, rounded: Any, numbers: Any, sums: Any,
    memory: Any, threads: Any,
) -> None:  # fmt: skip
    """See ``make_bytes``."""
    weights = (codes, scales, zeros, by_column, code_line, zero_line, flip, zero)
    extras = (bias, residual, alpha, activation, first, second)
    bytes_4(x, weights, block, group, c, extras, rounded, numbers, sums, memory, threads)


reals_2 = make_few(2, "reals")


@kernel(REALS_SIGNATURE)
def q_few_reals_2(
    x: Any, codes: Any, scales: Any, zeros: Any, by_column: Any, code_line: Any, zero_line: Any,
    flip: Any, zero: Any, block: Any, group: Any, c: Any, bias: Any, residual: Any, alpha: Any,
    activation: Any, first: Any, second: Any, numbers: Any, sums: Any, memory: Any, threads: Any,
) -> None:  # fmt: skip
    """See ``make_few``."""
    weights = (codes, scales, zeros, by_column, code_line, zero_line, flip, zero)
    extras = (bias, residual, alpha, activation, first, second)
    reals_2(x, numbers, sums, weights, block, group, c, extras, memory, threads)


reals_4 = make_few(4, "reals")


@kernel(REALS_SIGNATURE)
def q_few_reals_4(
    x: Any, codes: Any, scales: Any, zeros: Any, by_column: Any, code_line: Any, zero_line: Any,
    flip: Any, zero: Any, block: Any, group: Any, c: Any, bias: Any, residual: Any, alpha: Any,
    activation: Any, first: Any, second: Any, numbers: Any, sums: Any, memory: Any, threads: Any,
) -> None:  # fmt: skip
    """See ``make_few``."""
    weights = (codes, scales, zeros, by_column, code_line, zero_line, flip, zero)
    extras = (bias, residual, alpha, activation, first, second)
    reals_4(x, numbers, sums, weights, block, group, c, extras, memory, threads)


reals_8 = make_few(8, "reals")


@kernel(REALS_SIGNATURE)
def q_few_reals_8(
    x: Any, codes: Any, scales: Any, zeros: Any, by_column: Any, code_line: Any, zero_line: Any,
    flip: Any, zero: Any, block: Any, group: Any, c: Any, bias: Any, residual: Any, alpha: Any,
    activation: Any, first: Any, second: Any, numbers: Any, sums: Any, memory: Any, threads: Any,
) -> None:  # fmt: skip
    """See ``make_few``."""
    weights = (codes, scales, zeros, by_column, code_line, zero_line, flip, zero)
    extras = (bias, residual, alpha, activation, first, second)
    reals_8(x, numbers, sums, weights, block, group, c, extras, memory, threads)
