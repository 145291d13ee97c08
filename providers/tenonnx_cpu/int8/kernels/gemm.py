"""Products of matrices of bytes, exact in int32: both as they lie in memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.int8.kernels import MAX_GEMV_ROWS
from tenonnx_cpu.int8.kernels.band import copy_bytes, fill_bytes
from tenonnx_cpu.int8.kernels.finishing import NUMBERS_BYTES, ROUNDED, SCALED, pack_numbers
from tenonnx_cpu.int8.kernels.gemv import PANEL_COLUMNS, gemv_span, span_of
from tenonnx_cpu.int8.kernels.saturation import see_pairs
from tenonnx_cpu.int8.kernels.tile import multiply_bytes
from tenonnx_cpu.int8.kernels.tiles import begin_products, multiply_in_tiles
from tenonnx_cpu.jit.compiling import In, Out, f32, helper, i32, i64, kernel, size, u8
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors.amx import end_tiles
from tenonnx_cpu.jit.vectors.memory import load_word, store_word
from tenonnx_cpu.jit.vectors.shared import under
from tenonnx_cpu.matmul.kernels import BYTE_ROOM
from tenonnx_cpu.matmul.kernels.block import split
from tenonnx_cpu.matmul.kernels.gemm import block_shape
from tenonnx_cpu.matmul.kernels.pack import make_pack
from tenonnx_cpu.matmul.kernels.tile import COLUMNS, ROWS, VECTORS
from tenonnx_cpu.quantized.kernels.pack import STEP, pack_columns, pack_lines

# Rows of a task from which on it pays to look at all pairs of weights before.
MIN_ROWS_TO_CHECK_PAIRS = 6

pack_words = make_pack("f32")
pack_byte_columns, pack_byte_lines = under(pack_columns, 8), under(pack_lines, 8)


@parallel
def copy_row(arguments: Any, task: Any, worker: Any) -> None:
    """Copy a row of A as unsigned bytes, with zeros behind it, and sum it."""
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
    b: Any, first: Any, depth: Any, steps: Any, column: Any, flip: Any, panel: Any, work: Any,
    start: Any,
) -> None:  # fmt: skip
    """Fill a panel with ``COLUMNS`` columns as signed bytes, and sum each of them.

    Args:
        b: The matrix, for its shape and strides: columns that are adjacent, or rows if there are
            ``COLUMNS`` columns or more.
        first: Address of its first element.
        depth: Rows; a multiple of 4 unless columns are adjacent.
        steps: Fours of rows that the panel has; those beyond the depth become 0.
        column: The first column. If there are fewer than a panel's, the rest is anything.
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
        fill_bytes(words, STEP * (steps - fours), np.uint8(0))
        return
    seen = min(COLUMNS, b.shape[1] - column)
    if seen < COLUMNS:
        # Rows of which as much as a panel's lies before the matrix' end.
        fours = min(fours, max(0, (depth * b_row + seen - COLUMNS) // (4 * max(b_row, 1))))
    pack_byte_lines(source, b_row, fours, zeros, flip, panel, start, 1)
    last, more = work + STEP, work + 2 * STEP + 64
    for four in range(fours, -(-depth // 4)):
        for row in range(4):
            line = last + row * COLUMNS
            if 4 * four + row < depth:
                copy_bytes(source + (4 * four + row) * b_row, line, seen, np.uint8(0))
            else:
                fill_bytes(line, COLUMNS, np.uint8(flip))
        pack_byte_lines(last, COLUMNS, 1, zeros, flip, panel + STEP * four, more, 1)
        for i in range(COLUMNS):
            store_word(load_word(start + 4 * i) + load_word(more + 4 * i), start + 4 * i)
    fours = -(-depth // 4)
    fill_bytes(panel + STEP * fours, STEP * (steps - fours), np.uint8(0))


@helper
def multiply_panel(
    rows: Any, tiles: Any, fits: Any, a: Any, a_row: Any, fours: Any, panel: Any, totals: Any,
    numbers: Any, c: Any, c_row: Any, columns: Any, limits: Any,
) -> None:  # fmt: skip
    """Multiply rows of A by a panel, in tiles if they have been begun; see ``multiply_bytes``."""
    if tiles[0]:
        multiply_in_tiles(
            1, rows, tiles, (a, 0, a_row), fours.ctypes.data, panel, fours.size, totals, 1, numbers,
            (c, 0, c_row), columns, limits,
        )  # fmt: skip
        return
    form, low, high, zero = limits
    tall = split(rows, ROWS, 1)
    for row in range(0, rows, tall):
        multiply_bytes(
            VECTORS, min(tall, rows - row), fits, a + row * a_row, a_row, fours.ctypes.data, panel,
            fours.size, totals + 4 * row, numbers, c + row * c_row, c_row, columns,
            form, low, high, zero,
        )  # fmt: skip


@parallel
def multiply_strip(arguments: Any, task: Any, worker: Any) -> None:
    """Compute a block of one product of the batch."""
    a, fours, b, c, offsets, totals, columns_own, flip, limits, shape, share, memory = arguments
    width, columns = limits[4:]
    depth = b.shape[0]
    rows = c.shape[0] // offsets.shape[0]
    across = -(-columns // shape[1])
    tasks = across * -(-rows // shape[0])
    item, place = task // tasks, task % tasks
    top, left = place // across * shape[0], place % across * shape[1]
    bottom, right = min(rows, top + shape[0]), min(columns, left + shape[1])
    own = memory.ctypes.data + worker * share
    work, panel = own + 4 * NUMBERS_BYTES, own + BYTE_ROOM
    steps, high = fours.size, bottom - top
    tiles = begin_products(high, steps)
    first = offsets[item, 0] + top
    result = item * rows + top
    for start in range(left, right, COLUMNS):
        # The last panel of the matrix ends where its columns do.
        column = max(0, min(start, columns - COLUMNS))
        pack_panel(
            b, b.ctypes.data + offsets[item, 1], depth, steps, column, flip, panel, work, own
        )
        fits = 0
        if high >= MIN_ROWS_TO_CHECK_PAIRS and not tiles[0]:
            see_pairs(panel, steps, work)
            fits = load_word(work)
        pack_numbers(column, depth, columns_own, own)
        seen = a.ctypes.data + first * a.strides[0]
        made = c.ctypes.data + result * c.strides[0] + width * column
        total = totals.ctypes.data + 4 * first
        multiply_panel(
            high, tiles, fits, seen, a.strides[0], fours, panel, total, own, made, c.strides[0],
            min(COLUMNS, columns), limits[:4],
        )  # fmt: skip
    if tiles[0]:
        end_tiles()


@kernel(
    (
        In(u8, 2), In(i64, 1), In(u8, 2, "A"), Out(u8, 2), In(i64, 2), In(u8, 1),
        (In(i32, 1), In(i32, 1), In(f32, 1), In(f32, 1)), (u8, u8), (size, f32, f32, i32),
        (Out(u8, 2), Out(i32, 1)), Out(u8, 1), size,
    ),
    SCALED,
)  # fmt: skip
def byte_gemm(a, fours, b, c, offsets, origin, of_columns, flips, finish, room, memory, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Compute ``(A - origin) @ (B - zeros) + extra`` for every pair of a batch, and finish it.

    Args:
        a: Rows of all A, unsigned once they are flipped.
        fours: Where every four of a row's bytes begin in it; of a copy, beyond the depth, too.
        b: The first B, ``(depth, columns)``, signed once it is. Adjacent columns; or adjacent rows,
            the depth being a multiple of 4 and ``COLUMNS`` or more columns.
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
    if (
        c.shape[0] <= MAX_GEMV_ROWS
        and batch == 1
        and columns >= PANEL_COLUMNS
        and b.strides[1] == 1
    ):
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
