"""Products of a few rows with matrices whose codes lie row after row; codes are read once."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.jit.compiling import In, Kernel, Out, f32, helper, i8, i32, kernel, pasted, size
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors.lanes import LANES
from tenonnx_cpu.jit.vectors.shared import under
from tenonnx_cpu.matmul.kernels import LINES_SLAB, LINES_SLAB_ROW, LINES_SPAN
from tenonnx_cpu.matmul.kernels.epilogue import EXTRAS, finish_rows
from tenonnx_cpu.matmul.kernels.tile import CACHE_LINE
from tenonnx_cpu.quantized.kernels.gemv_groups import add_group, line_bytes
from tenonnx_cpu.quantized.kernels.matrix import CODES, WEIGHTS, Weights
from tenonnx_cpu.quantized.kernels.round8 import round_groups

# Rows of codes that a task should have at least.
MIN_TASK_CODE_ROWS = 512

# Bytes from row to row that, or whose multiples, leave a column of codes too few cache sets.
ALIASED = 1024


@helper
def gather_panels(source: Any, target: Any, first: Any, bits: Any, panel: Any, last: Any) -> None:
    """Put columns from ``first`` on in order; the last panel ends where they do.

    Args:
        source: Whole panels, in the order of ``lines``.
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
def unaligned_columns(codes: Any, code_line: Any, columns: Any, bits: Any, wide: Any) -> Any:
    """Return the columns before the first panel that lies within cache lines, in every row alike.

    Panels that straddle lines need each line twice. Where rows are a large power of two apart, and
    share a few sets of the first-level cache, it has left that by then: half the speed.
    """
    if code_line % ALIASED:
        return 0
    return -codes % min(wide, CACHE_LINE) * 8 // bits


@helper
def columns_of(part: Any, columns: Any, lead: Any, span: Any) -> Any:
    """Return where a part's columns begin, how many are unaligned, and where they end."""
    right = min(columns, lead + (part + 1) * span)
    if part == 0:
        return 0, lead, right
    return lead + part * span, 0, right


@helper
def sum_bytes(x: Any, group: Any, sums: Any) -> None:
    """Write the sums of a row's groups of bytes."""
    for g in range(sums.size):
        total = np.int32(0)
        for i in range(g * group, (g + 1) * group):
            total += np.int32(x[i])
        sums[g] = total


def make_gemv_axpy(bits: int, kind: str) -> Any:
    """Return the product of 1 to 4 rows with codes of so many bits, row after row."""
    each = 8 // bits
    add = under(add_group, kind, bits)
    width = 1 if kind == "bytes" else 4
    taken = 4 if kind == "bytes" else 1

    @helper
    def order_columns(source: Any, target: Any, lead: Any, panel: Any) -> None:
        """Put a row's panels in order; see ``sum_groups`` for which there are."""
        aligned = target[lead:]
        whole = aligned.size // panel * panel
        gather_panels(source[:whole], aligned[:whole], 0, bits, panel, 0)
        gather_panels(source[whole:], aligned, whole, bits, panel, aligned.size - panel)
        gather_panels(source[whole + panel :], target[:lead], 0, bits, panel, 0)

    @helper
    def sum_groups(
        x: Any, x_scales: Any, x_sums: Any, weights: Any, group: Any, start: Any, stop: Any,
        left: Any, lead: Any, right: Any, target: Any,
    ) -> None:  # fmt: skip
        """Add rows of codes to panels, which lie at an address.

        Whole ones begin with the column ``left + lead``; then there is room for one that ends
        with the column before ``right``, and for one that begins with ``left``. Both are there if
        columns are left over, and overlap others.
        """
        scales, zeros, code_line = weights.scales, weights.zeros, weights.code_line
        padded, depth = x.shape
        panel = line_bytes(bits, padded) * each
        whole = (right - left - lead) // panel
        over = right - left - lead > whole * panel
        for k in range(start, stop, group):
            line, g = k // weights.block, k // group
            ahead = group * code_line if k + group < stop else 0
            for part in range(3):
                column, panels, place = left + lead, whole, 0
                if part == 1:
                    column, panels, place = right - panel, 1 if over else 0, whole
                elif part == 2:
                    column, panels, place = left, 1 if lead else 0, whole + 1
                if not panels:
                    continue
                byte = column * bits // 8
                add(
                    padded, 1 if zeros.size else 0, x.ctypes.data + width * k, width * depth,
                    x_scales.ctypes.data + 4 * g, x_sums.ctypes.data + 4 * g, x_scales.strides[0],
                    weights.codes.ctypes.data + k * code_line + byte, code_line,
                    scales.ctypes.data + 4 * (line * scales.shape[1] + column),
                    zeros.ctypes.data + line * code_line + byte, weights.zero, group // taken,
                    panels, weights.flip, ahead, 4 * scales.shape[1] if ahead else 0,
                    target + 4 * place * panel, 4 * LINES_SLAB_ROW,
                )  # fmt: skip

    @parallel
    def compute_part(arguments: Any, task: Any, worker: Any) -> None:
        x, x_scales, x_sums, weights, c, extras, memory, group, shape = arguments
        rows, columns = c.shape
        padded, depth = x.shape
        across, lead, span, deep = shape
        down = -(-depth // deep)
        left, lead, right = columns_of(task % across, columns, lead, span)
        start = task // across * deep
        stop = min(depth, start + deep)
        panel = line_bytes(bits, padded) * each
        whole = (right - left - lead) // panel
        slab = (task if down > 1 else worker) * LINES_SLAB
        for row in range(padded):
            first = slab + row * LINES_SLAB_ROW
            for i in range(first, first + (whole + 2) * panel):
                memory[i] = np.float32(0)
        sum_groups(
            x, x_scales, x_sums, weights, group, start, stop, left, lead, right,
            memory.ctypes.data + 4 * slab,
        )  # fmt: skip
        if down == 1:
            for row in range(rows):
                first = slab + row * LINES_SLAB_ROW
                source = memory[first : first + (whole + 2) * panel]
                order_columns(source, c[row, left:right], lead, panel)
            finish_rows(c, 0, rows, left, right, extras)

    @parallel
    def join_parts(arguments: Any, task: Any, worker: Any) -> None:
        c, extras, memory, padded, shape, down = arguments
        columns = c.shape[1]
        across, lead, span, _ = shape
        left, lead, right = columns_of(task, columns, lead, span)
        panel = line_bytes(bits, padded) * each
        length = ((right - left - lead) // panel + 2) * panel
        for row in range(c.shape[0]):
            first = task * LINES_SLAB + row * LINES_SLAB_ROW
            total = memory[first : first + length]
            for part in range(1, down):
                start = first + part * across * LINES_SLAB
                source = memory[start : start + length]
                for i in range(length):
                    total[i] += source[i]
            order_columns(total, c[row, left:right], lead, panel)
        finish_rows(c, 0, c.shape[0], left, right, extras)

    @pasted
    def product(
        x: Any, x_scales: Any, x_sums: Any, weights: Any, group: Any, c: Any, extras: Any,
        memory: Any, threads: Any,
    ) -> None:  # fmt: skip
        """Compute ``C = finish(X @ W)``.

        Args:
            x: int8 or float32, ``(1, 2 or 4, depth)``; beyond C's rows anything.
            x_scales: Scales of groups, for int8; else any array.
            x_sums: Sums of groups' bytes, likewise.
            weights: ``Weights``.
            group: Elements of X that have a scale in common: a divisor of a block's and of
                ``depth``, a multiple of 4.
            c: The result.
            extras: See ``EXTRAS``.
            memory: ``LINES_ROOM`` floats for every thread.
            threads: How many to use.
        """
        padded, depth = x.shape
        columns = c.shape[1]
        wide = line_bytes(bits, padded)
        panel = wide * each
        lead = unaligned_columns(weights.codes.ctypes.data, weights.code_line, columns, bits, wide)
        across = -(-(columns - lead) // LINES_SPAN)
        span = -(-(columns - lead) // (across * panel)) * panel
        across = -(-(columns - lead) // span)
        down = 1
        if across < threads:
            most = max(1, depth // max(MIN_TASK_CODE_ROWS, group))
            twice = -(-2 * threads // across)
            down = twice if twice <= most else min(-(-threads // across), most)
        deep = -(-depth // (down * group)) * group
        down = -(-depth // deep)
        shape = (across, lead, span, deep)
        compute_part(
            (x, x_scales, x_sums, weights, c, extras, memory, group, shape),
            across * down, threads,
        )  # fmt: skip
        if down > 1:
            join_parts((c, extras, memory, padded, shape, down), across, threads)

    return product


def make_q_gemv_bytes(bits: int) -> Kernel:
    """Return the product of 1 to 4 rows, rounded to bytes, with codes of so many bits."""
    few = make_gemv_axpy(bits, "bytes")

    @kernel(
        (
            In(f32, 2), WEIGHTS, size, Out(f32, 2), EXTRAS,
            (Out(i8, 2), Out(f32, 3), Out(i32, 2), Out(f32, 1)), size,
        ),
        CODES,
    )  # fmt: skip
    def product(
        a: Any, weights: Any, group: Any, c: Any, extras: Any, room: Any, threads: Any
    ) -> None:
        """Compute ``C = finish(A @ W)``; see ``make_gemv_axpy``'s.

        ``room`` is for A as bytes, ``(1, 2 or 4, depth)``; for two floats per group and row, ``(2,
        rows as above, groups)``; for an integer, likewise; and what ``make_gemv_axpy``'s takes.
        """
        bytes_, numbers, sums, memory = room
        for row in range(a.shape[0]):
            round_groups(a[row], group, 0, numbers[0, row], numbers[1, row], bytes_[row])
            sum_bytes(bytes_[row], group, sums[row])
        few(bytes_, numbers[0], sums, Weights(*weights), group, c, extras, memory, threads)

    return product


def make_q_gemv_reals(bits: int) -> Kernel:
    """Return the product of 1 to 4 rows of float32 with codes of so many bits."""
    few = make_gemv_axpy(bits, "reals")

    @kernel(
        (In(f32, 2), WEIGHTS, size, Out(f32, 2), EXTRAS, (Out(f32, 2), Out(f32, 1)), size),
        CODES,
    )
    def product(
        a: Any, weights: Any, group: Any, c: Any, extras: Any, room: Any, threads: Any
    ) -> None:
        """Compute ``C = finish(A @ W)``; see ``make_gemv_axpy``'s.

        ``room`` is for A, ``(1, 2 or 4, depth)``, and what ``make_gemv_axpy``'s takes.
        """
        rows, memory = room
        for row in range(a.shape[0]):
            source, target = a[row], rows[row]
            for i in range(target.size):
                target[i] = source[i]
        few(rows, rows, rows, Weights(*weights), group, c, extras, memory, threads)

    return product


q_gemv_bytes_2, q_gemv_bytes_4 = (make_q_gemv_bytes(bits) for bits in (2, 4))
q_gemv_reals_2, q_gemv_reals_4, q_gemv_reals_8 = (make_q_gemv_reals(bits) for bits in (2, 4, 8))
