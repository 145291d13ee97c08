"""Products of a few rows of bytes: B is read once, four rows of it at a time in long runs."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.int8.kernels import MAX_GEMV_ROWS, SPAN_COLUMNS
from tenonnx_cpu.int8.kernels.finishing import pack_numbers
from tenonnx_cpu.int8.kernels.tile import multiply_bytes
from tenonnx_cpu.jit.compiling import helper
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.dot8 import BYTE_VECTOR, SUMS, dot
from tenonnx_cpu.jit.vectors.lanes import LANES
from tenonnx_cpu.jit.vectors.shared import shared
from tenonnx_cpu.jit.vectors.tiles import addresses
from tenonnx_cpu.jit.vectors.vector import I8, I32, I64, Builder, Value
from tenonnx_cpu.jit.vectors.views import floats
from tenonnx_cpu.matmul.kernels import BYTE_ROOM
from tenonnx_cpu.matmul.kernels.block import split
from tenonnx_cpu.matmul.kernels.tile import COLUMNS, VECTORS
from tenonnx_cpu.quantized.kernels.gemv_groups import interleaved

# Columns whose bytes of one row are a vector.
PANEL_COLUMNS = 4 * LANES

# Four bytes that are 1.
ONES = 0x01010101

# Bytes that are on their way from memory.
PREFETCH_BYTES = 8192


@shared("tenonnx_byte_lines", [(rows,) for rows in range(1, MAX_GEMV_ROWS + 1)])
def add_lines(
    b: Builder, rows: int, /, a: Value, a_row: Value, source: Value, b_row: Value, count: Value,
    ahead: Value, flip: Value, panels: Value, sums: Value, sums_row: Value,
) -> None:  # fmt: skip
    """Add what four rows of B contribute to sums.

    Args:
        a: Address of A's four columns, uint8 and 0 beyond ``count``; ``a_row`` is bytes from row
            to row.
        source: Address of B's rows, whose columns are adjacent; ``b_row`` likewise.
        count: How many rows there are, four or less.
        ahead: Bytes from a row to the one that will be needed soon.
        flip: Bits of B that are inverted: it is signed then.
        panels: How many times ``PANEL_COLUMNS`` columns.
        sums: Address of int32: a line for each row, and one for the sums of B's columns;
            ``sums_row`` is bytes from line to line.
    """
    line = v.vector(I8, PANEL_COLUMNS)
    flips = v.splat(b, b.trunc(flip, I8), PANEL_COLUMNS)
    last = b.sub(count, I64(1))
    steps = [b.select(b.icmp_signed("<", I64(n), last), I64(n), last) for n in range(4)]
    places = [b.add(source, b.mul(b_row, step)) for step in steps]
    # Columns themselves are summed as if by one more row of ones, as many as there are rows.
    ones = b.trunc(b.lshr(I64(ONES), b.mul(I64(8), b.sub(I64(4), count))), I32)
    words = [v.load(b, I32, place) for place in addresses(b, a, a_row, range(rows))]
    lefts = [b.bitcast(v.splat(b, word, LANES), BYTE_VECTOR) for word in (*words, ones)]

    def step(index: Value, carried: list[Value]) -> list[Value]:
        at = b.mul(index, I64(PANEL_COLUMNS))
        for place in places:
            v.prefetch(b, b.add(b.add(place, ahead), at))
        lines = [b.xor(v.load(b, line, b.add(place, at)), flips) for place in places]
        parts = interleaved(b, lines)
        for row, left in enumerate(lefts):
            target = b.add(b.add(sums, b.mul(sums_row, I64(row))), b.mul(at, I64(4)))
            for n, part in enumerate(parts):
                place = b.add(target, I64(4 * LANES * n))
                total = dot(b, v.load(b, SUMS, place, 4), left, part, 1 if row == rows else 8)
                v.store(b, total, place, 4)
        return []

    v.loop(b, panels, [], step)


@shared("tenonnx_byte_lines_add")
def add_words(b: Builder, /, x: Value, y: Value, out: Value) -> None:
    """Add ``COLUMNS`` int32 at two addresses."""
    for n in range(VECTORS):
        one, other, place = (b.add(start, I64(4 * LANES * n)) for start in (x, y, out))
        v.store(b, b.add(v.load(b, SUMS, one, 4), v.load(b, SUMS, other, 4)), place, 4)


@helper
def finish_span(
    c: Any, left: Any, width: Any, depth: Any, columns_own: Any, limits: Any, totals: Any,
    sums: Any, sums_row: Any, own: Any,
) -> None:  # fmt: skip
    """Make results of the sums of some columns, the last panel of the matrix ending where it does.

    Args:
        c: All results, as bytes.
        left: The first column.
        width: How many sums there are, whole panels.
        depth: Rows of B.
        columns_own: What ``pack_numbers`` takes.
        limits: What ``multiply_bytes`` ends with.
        totals: What it takes from every row.
        sums: Address of the sums; see ``add_lines``.
        sums_row: Bytes from line to line of them.
        own: Address of what ``pack_numbers`` writes.
    """
    form, low, high, zero, size, columns = limits
    rows = c.shape[0]
    for place in range(0, width, COLUMNS):
        within = place % PANEL_COLUMNS
        at = min(left + place - within, columns - PANEL_COLUMNS) + within
        starts = floats(sums + rows * sums_row + 4 * place, COLUMNS)
        numbers = floats(own, COLUMNS)
        # They are int32: nothing but their bits is copied.
        for i in range(COLUMNS):
            numbers[i] = starts[i]
        pack_numbers(at, depth, columns_own, own)
        for i in range(COLUMNS):
            starts[i] = numbers[i]
        for row in range(rows):
            add_words(starts.ctypes.data, sums + row * sums_row + 4 * place, own)
            multiply_bytes(
                VECTORS, 1, 0, own, 0, own, own, 0, totals.ctypes.data + 4 * row, own,
                c.ctypes.data + row * c.strides[0] + size * at, c.strides[0],
                COLUMNS, form, low, high, zero,
            )  # fmt: skip


@parallel
def gemv_span(arguments: Any, task: Any, worker: Any) -> None:
    """Compute some columns of all rows."""
    a, b, c, totals, columns_own, flip, limits, span, share, memory = arguments
    depth, columns = b.shape
    rows = c.shape[0]
    left = task * span
    width = -(-min(span, columns - left) // PANEL_COLUMNS) * PANEL_COLUMNS
    whole = min(width, (columns - left) // PANEL_COLUMNS * PANEL_COLUMNS)
    own = memory.ctypes.data + worker * share
    sums, sums_row = own + BYTE_ROOM, 4 * width
    ahead = b.strides[0] * (4 + PREFETCH_BYTES // (4 * min(span, columns)) * 4)
    zeroed = floats(sums, (rows + 1) * width)
    for i in range(zeroed.size):
        zeroed[i] = np.float32(0)
    for k in range(0, depth, 4):
        count = min(4, depth - k)
        source = b.ctypes.data + k * b.strides[0]
        left_of = a.ctypes.data + k
        add_lines(
            rows, left_of, a.strides[0], source + left, b.strides[0], count, ahead, flip,
            whole // PANEL_COLUMNS, sums, sums_row,
        )  # fmt: skip
        if whole < width:
            add_lines(
                rows, left_of, a.strides[0], source + columns - PANEL_COLUMNS, b.strides[0], count,
                0, flip, 1, sums + 4 * whole, sums_row,
            )  # fmt: skip
    finish_span(c, left, width, depth, columns_own, limits, totals, sums, sums_row, own)


@helper
def span_of(columns: Any, threads: Any) -> Any:
    """Return the columns of a task."""
    tasks = max(-(-columns // SPAN_COLUMNS), 2 * threads if threads > 1 else 1)
    return split(columns, -(-columns // tasks), PANEL_COLUMNS)
