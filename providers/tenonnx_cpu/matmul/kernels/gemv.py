"""Products of a few rows: B is read once, as fast as memory gives it, and never packed."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors.lanes import LANES
from tenonnx_cpu.matmul.kernels.epilogue import finish_rows
from tenonnx_cpu.matmul.kernels.gemm import product_of
from tenonnx_cpu.matmul.kernels.gemv_axpy import make_sum_lines
from tenonnx_cpu.matmul.kernels.gemv_dot import make_dot_lines
from tenonnx_cpu.matmul.kernels.pack import WIDTH

# Columns of a task at most: so much of a few rows of the result fits the first-level cache.
SPAN_COLUMNS = 2048

SLAB_ROW = SPAN_COLUMNS + 16
# Floats that a task sums in; no power of two from row to row, which would share cache sets.
SLAB = 8 * SLAB_ROW

# Rows of B that a task should have at least.
MIN_TASK_DEPTH = 64


def make_gemv(kind: str) -> Any:
    """Return the product of a few rows of float32 by B of a kind of elements.

    Either B's columns are adjacent, and A has 8 rows at most; or B's rows and A's columns are.
    """
    sum_lines, dots = make_sum_lines(kind), make_dot_lines(kind)
    width = WIDTH[kind]

    @parallel
    def by_lines(arguments: Any, task: Any, worker: Any) -> None:
        a, b, c, offsets, extras, memory, span, deep = arguments
        depth, columns = b.shape
        rows = c.shape[0] // offsets.shape[0]
        across, down = -(-columns // span), -(-depth // deep)
        item, part, left = task // (across * down), task // across % down, task % across * span
        wide = min(span, columns - left)
        slab = (task if down > 1 else worker) * SLAB
        sum_lines(
            rows, wide, part * deep, min(depth, (part + 1) * deep), depth - 1,
            a.ctypes.data + offsets[item, 0], a.strides[0], a.strides[1],
            b.ctypes.data + offsets[item, 1] + left * width, b.strides[0],
            memory.ctypes.data + 4 * slab, 4 * SLAB_ROW,
        )  # fmt: skip
        if down == 1:
            for row in range(rows):
                source = memory[slab + row * SLAB_ROW : slab + row * SLAB_ROW + wide]
                target = c[item * rows + row, left : left + wide]
                for i in range(wide):
                    target[i] = source[i]
            finish_rows(c, item * rows, (item + 1) * rows, left, left + wide, extras)

    @parallel
    def join_parts(arguments: Any, task: Any, worker: Any) -> None:
        c, extras, memory, span, down = arguments
        columns = c.shape[1]
        across = -(-columns // span)
        left = task * span
        wide = min(span, columns - left)
        for row in range(c.shape[0]):
            target = c[row, left : left + wide]
            for part in range(down):
                start = (part * across + task) * SLAB + row * SLAB_ROW
                source = memory[start : start + wide]
                for i in range(wide):
                    target[i] = source[i] + (target[i] if part else np.float32(0))
        finish_rows(c, 0, c.shape[0], left, left + wide, extras)

    @parallel
    def by_dots(arguments: Any, task: Any, worker: Any) -> None:
        a, b, c, offsets, extras, span = arguments
        depth, columns = b.shape
        rows = c.shape[0] // offsets.shape[0]
        across = -(-columns // span)
        item, left = task // across, task % across * span
        wide = min(span, columns - left)
        dots(
            rows, wide, depth, a.ctypes.data + offsets[item, 0], a.strides[0],
            b.ctypes.data + offsets[item, 1] + left * b.strides[1], b.strides[1],
            c.ctypes.data + 4 * (item * rows * columns + left), 4 * columns,
        )  # fmt: skip
        finish_rows(c, item * rows, (item + 1) * rows, left, left + wide, extras)

    def gemv(a: Any, b: Any, c: Any, offsets: Any, extras: Any, memory: Any, threads: Any) -> None:
        """Compute what ``make_product``'s does, with as much memory."""
        batch, columns, depth = offsets.shape[0], b.shape[1], b.shape[0]
        if b.strides[1] != width:
            span = max(LANES, -(-columns * batch // (4 * threads)))
            by_dots((a, b, c, offsets, extras, span), batch * -(-columns // span), threads)
            return
        across = -(-columns // SPAN_COLUMNS)
        span = -(-columns // (across * LANES)) * LANES
        down = 1
        if batch == 1 and across < threads:
            # Longer runs of B for each thread than narrower columns would be.
            down = max(1, min(-(-2 * threads // across), depth // MIN_TASK_DEPTH))
        deep = -(-depth // down)
        down = -(-depth // deep)
        tasks = batch * across * down
        by_lines((a, b, c, offsets, extras, memory, span, deep), tasks, threads)
        if down > 1:
            join_parts((c, extras, memory, span, down), across, 1)

    return gemv


gemv_f32, gemv_f16, gemv_bf16 = (
    product_of(kind)(make_gemv(kind)) for kind in ("f32", "f16", "bf16")
)
