"""Products of matrices of bytes, exact in int32: both as they lie in memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.int8.kernels import FEW
from tenonnx_cpu.int8.kernels.band import copy_bytes, fill_bytes
from tenonnx_cpu.int8.kernels.finishing import NUMBERS, ROUNDED, SCALED, pack_numbers
from tenonnx_cpu.int8.kernels.fitting import see_pairs
from tenonnx_cpu.int8.kernels.gemv import PANEL, gemv_span, span_of
from tenonnx_cpu.int8.kernels.tile import multiply_bytes
from tenonnx_cpu.jit.compiling import In, Out, f32, helper, i32, i64, kernel, size, u8
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors.memory import load_word, store_word
from tenonnx_cpu.jit.vectors.shared import under
from tenonnx_cpu.matmul.kernels import BYTE_ROOM
from tenonnx_cpu.matmul.kernels.block import split
from tenonnx_cpu.matmul.kernels.gemm import block_shape
from tenonnx_cpu.matmul.kernels.pack import make_pack
from tenonnx_cpu.matmul.kernels.tile import COLUMNS, ROWS, VECTORS
from tenonnx_cpu.quantized.kernels.pack import STEP, pack_columns, pack_lines

ENOUGH = 6
"""Rows of a task from which on it pays to look at all pairs of weights before."""

pack_words = make_pack("f32")
pack_byte_columns, pack_byte_lines = under(pack_columns, 8), under(pack_lines, 8)


@parallel
def copy_row(arguments: Any, task: Any, worker: Any) -> None:
    """Copies a row of A as unsigned bytes, with zeros behind it, and sums it."""
    a, rows, totals, flip = arguments
    source, target = a[task], rows[task]
    total = np.int32(0)
    for i in range(source.size):
        x = source[i] ^ flip
        target[i] = x
        total += np.int32(x)
    target[source.size :] = np.uint8(0)
    totals[task] = total


@helper
def pack_panel(
    b: Any, first: Any, depth: Any, column: Any, flip: Any, panel: Any, work: Any, start: Any
) -> None:
    """Fills a panel with ``COLUMNS`` columns as signed bytes, and sums each of them.

    Args:
        b: The matrix, for its strides: columns that are adjacent, or rows.
        first: Address of its first element.
        depth: Rows; a multiple of 4 unless columns are adjacent.
        column: The first column.
        flip: Bits that are inverted.
        panel: Address of the panel; of another one behind it if rows are adjacent.
        work: Address of two steps and ``COLUMNS`` int32.
        start: Address of the sums, int32.
    """
    b_row, b_column = b.strides
    source = first + column * b_column
    fours = depth // 4
    zeros = work
    fill_bytes(zeros, STEP, np.uint8(0))
    if b_column != 1:
        words = panel + STEP * fours
        pack_words(source, 4, b_column, fours, COLUMNS, words)
        pack_byte_columns(words, fours, zeros, flip, panel, start, 1)
        return
    pack_byte_lines(source, b_row, fours, zeros, flip, panel, start, 1)
    rest = depth % 4
    if rest:
        last, more = work + STEP, work + 2 * STEP + 64
        for row in range(4):
            line = last + row * COLUMNS
            if row < rest:
                copy_bytes(source + (4 * fours + row) * b_row, line, COLUMNS, np.uint8(0))
            else:
                fill_bytes(line, COLUMNS, np.uint8(flip))
        pack_byte_lines(last, COLUMNS, 1, zeros, flip, panel + STEP * fours, more, 1)
        for i in range(COLUMNS):
            store_word(load_word(start + 4 * i) + load_word(more + 4 * i), start + 4 * i)


@parallel
def multiply_strip(arguments: Any, task: Any, worker: Any) -> None:
    """Computes a block of one product of the batch."""
    a, fours, b, c, offsets, totals, columns_own, flip, limits, shape, share, memory = arguments
    form, low, high, zero, width, columns = limits
    depth = b.shape[0]
    rows = c.shape[0] // offsets.shape[0]
    across = -(-columns // shape[1])
    tasks = across * -(-rows // shape[0])
    item, place = task // tasks, task % tasks
    top, left = place // across * shape[0], place % across * shape[1]
    bottom, right = min(rows, top + shape[0]), min(columns, left + shape[1])
    own = memory.ctypes.data + worker * share
    work, panel = own + 4 * NUMBERS, own + BYTE_ROOM
    steps = -(-depth // 4)
    tall = split(bottom - top, ROWS, 1)
    first = offsets[item, 0] + top
    result = item * rows + top
    for start in range(left, right, COLUMNS):
        # The last panel of the matrix ends where its columns do.
        column = min(start, columns - COLUMNS)
        pack_panel(b, b.ctypes.data + offsets[item, 1], depth, column, flip, panel, work, own)
        fits = 0
        if bottom - top >= ENOUGH:
            see_pairs(panel, steps, work)
            fits = load_word(work)
        pack_numbers(column, depth, columns_own, own)
        for row in range(0, bottom - top, tall):
            multiply_bytes(
                VECTORS, min(tall, bottom - top - row), fits,
                a.ctypes.data + (first + row) * a.strides[0], a.strides[0], fours.ctypes.data,
                panel, steps, totals.ctypes.data + 4 * (first + row), own,
                c.ctypes.data + (result + row) * c.strides[0] + width * column, c.strides[0],
                COLUMNS, form, low, high, zero,
            )  # fmt: skip


@kernel(
    (
        In(u8, 2), In(i64, 1), In(u8, 2, "A"), Out(u8, 2), In(i64, 2), In(u8, 1),
        (In(i32, 1), In(i32, 1), In(f32, 1), In(f32, 1)), (u8, u8), (size, f32, f32, i32),
        (Out(u8, 2), Out(i32, 1)), Out(u8, 1), size,
    ),
    SCALED,
)  # fmt: skip
def byte_gemm(a, fours, b, c, offsets, origin, of_columns, flips, finish, room, memory, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Computes ``(A - origin) @ (B - zeros) + extra`` for every pair of a batch, and finishes it.

    Args:
        a: Rows of all A, unsigned once they are flipped.
        fours: Where every four of a row's bytes begin in it.
        b: The first B, ``(depth, columns)``, signed once it is; ``COLUMNS`` or more. Adjacent
            columns; or adjacent rows, the depth being a multiple of 4.
        c: All results below one another, as bytes.
        offsets: For every pair, the first row of A, and bytes from the first B.
        origin: A's zero point.
        of_columns: B's zero point or that of every column, once it is flipped; what is added to
            every column's sums, or nothing; what they are multiplied by, one or for every column;
            and what is added then, or nothing.
        flips: Bits of A that are inverted, and bits of B.
        finish: ``form``, ``low``, ``high`` and ``zero``: see ``multiply_bytes``.
        room: For A if it must be copied, its rows a multiple of 4 bytes long, or for nothing; zero
            points are 0 then. And for an int32 for every row.
        memory: A part of it for every thread: ``BYTE_ROOM`` bytes and a panel, or two if B's
            columns are not adjacent; or the ``ROOM`` of a few rows if that is more.
        threads: How many to use.
    """
    copy, totals = room
    flip_a, flip_b = flips
    form, low, high, zero = finish
    rows, columns, batch = c.shape[0] // offsets.shape[0], b.shape[1], offsets.shape[0]
    left = a
    if copy.size:
        copy_row((a, copy, totals, flip_a), a.shape[0], threads)
        left = copy
    else:
        for row in range(totals.size):
            totals[row] = 0
    columns_own = (np.int32(origin[0] ^ flip_a), columns, *of_columns)
    limits = (form, low, high, zero, 1 if form == ROUNDED else 4, columns)
    share = memory.size // threads
    if c.shape[0] <= FEW and batch == 1 and columns >= PANEL and b.strides[1] == 1:
        span = span_of(columns, threads)
        few = (left, b, c, totals, columns_own, flip_b, limits, span, share, memory)
        gemv_span(few, -(-columns // span), threads)
        return
    shape = block_shape(rows, columns, b.shape[0], batch, threads)
    tasks = batch * -(-rows // shape[0]) * -(-columns // shape[1])
    multiply_strip(
        (left, fours, b, c, offsets, totals, columns_own, flip_b, limits, shape, share, memory),
        tasks, threads,
    )  # fmt: skip
