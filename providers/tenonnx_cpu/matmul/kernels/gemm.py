"""Matrix products: A in place, B packed panel by panel into the cache, results finished there."""

from __future__ import annotations

from typing import Any

from tenonnx_cpu.jit.code.cpu import cpu
from tenonnx_cpu.jit.compiling import Contract, In, Out, f32, helper, i64, kernel, size, u16
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors.lanes import LANES
from tenonnx_cpu.matmul.kernels import (
    COLUMNS_AT_MOST,
    DEPTH,
    SUMS,
    SUMS_AT_MOST,
    WORKSPACE,
)
from tenonnx_cpu.matmul.kernels.band import fits_band, multiply_band
from tenonnx_cpu.matmul.kernels.block import (
    PANEL_ROW_BYTES,
    copy_lines,
    multiply_ahead,
    split,
)
from tenonnx_cpu.matmul.kernels.epilogue import EXTRAS, finish_rows
from tenonnx_cpu.matmul.kernels.pack import WIDTH, make_pack
from tenonnx_cpu.matmul.kernels.panels import multiply_panels
from tenonnx_cpu.matmul.kernels.runs import fits_runs, multiply_runs
from tenonnx_cpu.matmul.kernels.tile import ADD, BY_PANELS, CACHE_LINE, COLUMNS, ROWS, ZERO

# Products that a task should have: fewer do not pay for another thread's attention.
TASK_PRODUCTS = 1 << 19


# Products that a task may have, some hundredths of a second: runs are stopped between two.
MAX_TASK_PRODUCTS = 1 << 29

# Rows and a depth for which memory is read and written as fast as it is multiplied: fewer take as
# long.
FEWEST, SHALLOWEST = 8, 128

# Rows of a block up to which it is multiplied panel by panel: of more, A is read too often.
HIGHEST = 512

# Rows of a block up to which its panels are half as deep where the second-level cache is wide: the
# first of a few tiles packs what fits the first-level cache beside A. On a Sapphire Rapids those of
# 64 to 200 rows took .86 to .97 of the time, those of 512 and more 1.03; on a Zen 4 .97 to 1.03.
MAX_SHALLOW_ROWS = 256 if cpu().has_wide_cache else 0


@helper
def short(high: Any, width: Any, depth: Any) -> Any:
    """Return the rows and columns of a task, fewer if it would be too long."""
    deep = max(SHALLOWEST, depth)
    most = MAX_TASK_PRODUCTS // (deep * max(FEWEST, high))
    width = min(width, max(1, most // COLUMNS_AT_MOST) * COLUMNS_AT_MOST)
    return min(high, max(8 * ROWS, MAX_TASK_PRODUCTS // (deep * max(1, width)))), width


@helper
def block_shape(rows: Any, columns: Any, work: Any, batch: Any, threads: Any) -> Any:
    """Return how many rows and columns of the result one task computes.

    Several tasks per thread even out what else the machine does, but every task packs its part of
    B anew, so it should have many tiles to use that for: wide tasks rather than high ones, until
    there are too few.
    """
    if threads == 1:
        return short(rows, COLUMNS_AT_MOST, work)
    wanted = max(1, min(-(-4 * threads // batch), rows * columns * work // TASK_PRODUCTS))
    bands = max(1, min(wanted, rows // (8 * ROWS)))
    across = -(-wanted // bands)
    width = max(2 * COLUMNS, min(COLUMNS_AT_MOST, columns // across))
    width = split(columns, width, COLUMNS)
    bands = max(1, min(bands, -(-wanted // -(-columns // width))))
    return short(split(rows, -(-rows // bands), 1), width, work)


@helper
def task_shape(rows: Any, columns: Any, work: Any, batch: Any, threads: Any) -> Any:
    """Return the rows and columns of the result that a task computes, and columns at a time.

    Every task packs its part of B anew, so it should have many tiles to use that for: wide tasks
    rather than high ones, until there are too few. What a task reads next is on its way while it
    computes, but at its beginning it waits: there is one for every thread.
    """
    if threads == 1:
        high, width = short(rows, columns, work)
        return high, width, COLUMNS_AT_MOST
    wanted = max(1, min(-(-threads // batch), rows * columns * work // TASK_PRODUCTS))
    bands = max(1, min(wanted, rows // (8 * ROWS)))
    across = -(-wanted // bands)
    width = split(columns, max(2 * COLUMNS, -(-columns // across)), COLUMNS)
    bands = max(1, min(bands, -(-wanted // -(-columns // width))))
    high, width = short(split(rows, -(-rows // bands), 1), width, work)
    return high, width, split(width, COLUMNS_AT_MOST, COLUMNS)


def make_product(kind: str) -> Any:
    """Return the product of float32 by B of a kind of elements, for a kernel to be made of."""
    pack = make_pack(kind)
    width = WIDTH[kind]

    @helper
    def compute_block(
        a: Any, b: Any, c: Any, top: Any, high: Any, left: Any, wide: Any, offsets: Any,
        packed: Any, follows: Any, beside: Any,
    ) -> None:  # fmt: skip
        """Compute a block of one product of the batch, packing B as it goes.

        Args:
            a: The first A.
            b: The first B.
            c: All results.
            top: The block's first row, in ``c``.
            high: How many.
            left: Its first column.
            wide: How many, ``COLUMNS_AT_MOST`` at most.
            offsets: Bytes from the first A and B to the rows and the product at hand.
            packed: Address of the worker's memory.
            follows: Whether the columns on the right come next.
            beside: Whether another thread writes those.
        """
        depth, columns = a.shape[1], b.shape[1]
        a_row, a_column = a.strides
        b_row, b_column = b.strides
        a_block = a.ctypes.data + offsets[0]
        b_block = b.ctypes.data + offsets[1] + left * b_column
        in_lines = b_column == width
        is_low = high <= MAX_SHALLOW_ROWS
        deep = split(depth, DEPTH // 2 if is_low else DEPTH, 1)
        result = c.ctypes.data + 4 * (top * columns + left)
        sums, sums_row = result, 4 * columns
        wider = wide + 2 * LANES - wide % LANES
        if beside and deep < depth and high * wider <= SUMS_AT_MOST:
            # Where sums are read again and again, the cores would fetch each other's lines of them.
            sums, sums_row = packed + 4 * SUMS, 4 * wider
        for k in range(0, depth, deep):
            kk = min(deep, depth - k)
            source = b_block + k * b_row
            ahead = source + kk * b_row
            if k + kk >= depth:
                ahead = b_block + wide * b_column if follows else 0
            if BY_PANELS and kind == "f32" and high <= HIGHEST:
                multiply_panels(
                    high, wide, kk, a_block + k * a_column, a_row, a_column,
                    source, b_row, b_column, sums, sums_row, ADD if k else ZERO, ahead, packed,
                )  # fmt: skip
                continue
            whole = wide // COLUMNS * COLUMNS if in_lines and kind == "f32" else 0
            for column in range(whole, wide, COLUMNS):
                target = packed + PANEL_ROW_BYTES * kk * (column // COLUMNS)
                span = min(COLUMNS, wide - column)
                pack(source + column * b_column, b_row, b_column, kk, span, target)
            into = ahead % CACHE_LINE
            multiply_ahead(
                high, wide, kk, a_block + k * a_column, a_row, a_column,
                packed, b_row, source if whole else 0, sums, sums_row, ADD if k else ZERO,
                ahead - into, b_row if in_lines else b_column,
                -(-(into + (wide if in_lines else kk) * width) // CACHE_LINE),
            )  # fmt: skip
        if sums != result:
            copy_lines(sums, sums_row, result, 4 * columns, high, wide)

    @parallel
    def compute_blocks(arguments: Any, task: Any, worker: Any) -> None:
        a, b, c, offsets, extras, shape, memory = arguments
        columns = b.shape[1]
        rows = c.shape[0] // offsets.shape[0]
        across = -(-columns // shape[1])
        tasks = across * -(-rows // shape[0])
        item, place = task // tasks, task % tasks
        top, first = place // across * shape[0], place % across * shape[1]
        high, last = min(shape[0], rows - top), min(columns, first + shape[1])
        packed = memory.ctypes.data + 4 * WORKSPACE * worker
        starts = (offsets[item, 0] + top * a.strides[0], offsets[item, 1])
        above = item * rows + top
        if kind == "f32" and fits_runs(high, last - first, a, b):
            multiply_runs(
                high, last - first, b.shape[0], a.ctypes.data + starts[0], a.strides[0],
                b.ctypes.data + starts[1] + 4 * first, b.strides[0],
                c.ctypes.data + 4 * (above * columns + first), 4 * columns, packed,
            )  # fmt: skip
            finish_rows(c, above, above + high, first, last, extras)
            return
        if kind == "f32" and fits_band(rows, a, b):
            multiply_band(
                rows, last - first, b.shape[0], a.ctypes.data + starts[0], a.strides[0],
                b.ctypes.data + starts[1] + 4 * first, b.strides[0], 4,
                c.ctypes.data + 4 * (above * columns + first), 4 * columns, packed,
            )  # fmt: skip
            finish_rows(c, above, above + high, first, last, extras)
            return
        for left in range(first, last, shape[2]):
            wide = min(shape[2], last - left)
            follows = left + wide < last
            compute_block(a, b, c, above, high, left, wide, starts, packed, follows, across > 1)
            finish_rows(c, above, above + high, left, left + wide, extras)

    def product(
        a: Any, b: Any, c: Any, offsets: Any, extras: Any, memory: Any, threads: Any
    ) -> None:
        """Compute ``C[i] = finish(A[i] @ B[i])`` for every i of a batch.

        Args:
            a: The first A, ``(rows, depth)``.
            b: The first B, ``(depth, columns)``.
            c: All results below one another, ``(batch * rows, columns)``.
            offsets: Bytes from the first A and B to the others, ``(batch, 2)``.
            extras: See ``EXTRAS``.
            memory: ``WORKSPACE`` floats for every thread.
            threads: How many threads to use.
        """
        batch = offsets.shape[0]
        rows = c.shape[0] // batch
        shape = task_shape(rows, b.shape[1], b.shape[0], batch, threads)
        tasks = batch * -(-rows // shape[0]) * -(-b.shape[1] // shape[1])
        compute_blocks((a, b, c, offsets, extras, shape, memory), tasks, threads)

    return product


def product_of(kind: str) -> Any:
    """Decorate a product of float32 by B of a kind of elements."""
    element = f32 if kind == "f32" else u16
    return kernel(
        (In(f32, 2, "A"), In(element, 2, "A"), Out(f32, 2), In(i64, 2), EXTRAS, Out(f32, 1), size),
        Contract(
            launch="A's columns are B's rows; a bias has a number per column, a residual the "
            "result's shape",
        ),
    )


gemm_f32, gemm_f16, gemm_bf16 = (
    product_of(kind)(make_product(kind)) for kind in ("f32", "f16", "bf16")
)
