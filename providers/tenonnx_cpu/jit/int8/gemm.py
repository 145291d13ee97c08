"""Products of matrices of bytes, exact in int32: both as they lie in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.extending import intrinsic

from tenonnx_cpu.jit.compiling import In, Out, f32, helper, i32, i64, kernel, size, u8
from tenonnx_cpu.jit.int8.conv_rows import place_bytes
from tenonnx_cpu.jit.int8.conv_tile import ROUNDED
from tenonnx_cpu.jit.int8.tile import NUMBERS, multiply_bytes
from tenonnx_cpu.jit.products.block import split
from tenonnx_cpu.jit.products.gemm import block_shape
from tenonnx_cpu.jit.products.pack import make_pack
from tenonnx_cpu.jit.products.tile import COLUMNS, ROWS
from tenonnx_cpu.jit.quantised.pack import PACK_COLUMNS, PACK_LINES, STEP
from tenonnx_cpu.jit.threads.pool import parallel
from tenonnx_cpu.jit.vectors.memory import load_word, store_float, store_word
from tenonnx_cpu.jit.vectors.shared import procedure
from tenonnx_cpu.jit.workspace import BYTE_ROOM

pack_words = make_pack("f32")


@intrinsic
def pack_byte_columns(
    typing_context: Any, words: Any, count: Any, zeros: Any, flip: Any, panel: Any, start: Any,
    weight: Any,
) -> Any:  # fmt: skip
    """See ``PACK_COLUMNS``."""
    return procedure(PACK_COLUMNS[8])


@intrinsic
def pack_byte_lines(
    typing_context: Any, source: Any, stride: Any, count: Any, zeros: Any, flip: Any, panel: Any,
    start: Any, weight: Any,
) -> Any:  # fmt: skip
    """See ``PACK_LINES``."""
    return procedure(PACK_LINES[8])


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
    place_bytes(zeros, 0, zeros, STEP, 0, 0, 1, 1, np.uint8(0), np.uint8(0))
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
            count = COLUMNS if row < rest else 0
            place_bytes(
                source + (4 * fours + row) * b_row, 0, line, COLUMNS, 0, count, 1, 1,
                np.uint8(flip), np.uint8(0),
            )  # fmt: skip
        pack_byte_lines(last, COLUMNS, 1, zeros, flip, panel + STEP * fours, more, 1)
        for i in range(COLUMNS):
            store_word(load_word(start + 4 * i) + load_word(more + 4 * i), start + 4 * i)


@helper
def pack_numbers(
    column: Any, depth: Any, origin: Any, zeros: Any, extra: Any, factor: Any, summand: Any,
    numbers: Any,
) -> None:  # fmt: skip
    """Writes what ``multiply_bytes`` takes of a panel's columns, of which the sums are there."""
    for i in range(COLUMNS):
        j = column + i
        zero = zeros[j if zeros.size > 1 else 0]
        start = origin * (np.int32(depth) * zero - np.int32(load_word(numbers + 4 * i)))
        if extra.size:
            start += extra[j]
        store_word(start, numbers + 4 * i)
        store_word(zero, numbers + NUMBERS + 4 * i)
        store_float(factor[j if factor.size > 1 else 0], numbers + 2 * NUMBERS + 4 * i)
        shift = summand[j] if summand.size else np.float32(0)
        store_float(shift, numbers + 3 * NUMBERS + 4 * i)


@parallel
def multiply_strip(arguments: Any, task: Any, worker: Any) -> None:
    """Computes a block of one product of the batch."""
    a, b, c, offsets, totals, columns_own, numbers, shape, depth, limits, memory = arguments
    origin, flip, form, room = numbers
    low, high, zero = limits
    zeros, extra, factor, summand = columns_own
    columns = b.shape[1]
    rows = c.shape[0] // offsets.shape[0]
    across = -(-columns // shape[1])
    tasks = across * -(-rows // shape[0])
    item, place = task // tasks, task % tasks
    top, left = place // across * shape[0], place % across * shape[1]
    bottom, right = min(rows, top + shape[0]), min(columns, left + shape[1])
    own = memory.ctypes.data + worker * room
    work, panel = own + 4 * NUMBERS, own + BYTE_ROOM
    width = 1 if form == ROUNDED else 4
    steps = -(-depth // 4)
    tall = split(bottom - top, ROWS, 1)
    first = offsets[item, 0] + top
    result = item * rows + top
    for start in range(left, right, COLUMNS):
        # The last panel of the matrix ends where its columns do.
        column = min(start, columns - COLUMNS)
        pack_panel(b, b.ctypes.data + offsets[item, 1], depth, column, flip, panel, work, own)
        pack_numbers(column, depth, origin, zeros, extra, factor, summand, own)
        for row in range(0, bottom - top, tall):
            multiply_bytes(
                min(tall, bottom - top - row),
                a.ctypes.data + (first + row) * a.strides[0], a.strides[0], panel, steps,
                totals.ctypes.data + 4 * (first + row), own,
                c.ctypes.data + (result + row) * c.strides[0] + width * column, c.strides[0],
                form, low, high, zero,
            )  # fmt: skip


@kernel((
    In(u8, 2), In(u8, 2, "A"), Out(u8, 2), In(i64, 2),
    In(i32, 1), In(i32, 1), In(f32, 1), In(f32, 1),
    i32, u8, u8, size, f32, f32, i32, Out(u8, 2), Out(i32, 1), Out(u8, 1), size,
))  # fmt: skip
def byte_gemm(  # type: ignore[no-untyped-def] # the signature has them
    a, b, c, offsets, zeros, extra, factor, summand, origin, flip_a, flip_b, form, low, high, zero,
    copy, totals, memory, threads,
):  # fmt: skip
    """Computes ``(A - origin) @ (B - zeros) + extra`` for every pair of a batch, and finishes it.

    Args:
        a: Rows of all A, unsigned once ``flip_a`` is applied.
        b: The first B, ``(depth, columns)``, signed once ``flip_b`` is; ``COLUMNS`` or more.
            Adjacent columns; or adjacent rows, the depth being a multiple of 4.
        c: All results below one another, as bytes.
        offsets: For every pair, the first row of A, and bytes from the first B.
        zeros: B's zero point or that of every column, after ``flip_b``.
        extra: What is added to every column's sums; or empty.
        factor: What sums are multiplied by, one or for every column.
        summand: What is added then; or empty.
        origin: A's zero point, after ``flip_a``.
        flip_a: Bits of A that are inverted.
        flip_b: Bits of B that are.
        form: See ``multiply_bytes``; so are ``low``, ``high`` and ``zero``.
        low: Likewise.
        high: Likewise.
        zero: Likewise.
        copy: Room for A if it must be copied, its rows a multiple of 4 bytes long; or empty.
        totals: An int32 for every row of A; 0 unless A is copied, and ``zeros`` are 0 then.
        memory: A part of it for every thread: ``BYTE_ROOM`` bytes and a panel, or two if B's
            columns are not adjacent.
        threads: How many to use.
    """
    rows, columns = c.shape[0] // offsets.shape[0], b.shape[1]
    left = a
    if copy.size:
        copy_row((a, copy, totals, flip_a), a.shape[0], threads)
        left = copy
    depth = b.shape[0]
    shape = block_shape(rows, columns, depth, offsets.shape[0], threads)
    tasks = offsets.shape[0] * -(-rows // shape[0]) * -(-columns // shape[1])
    multiply_strip(
        (
            left, b, c, offsets, totals, (zeros, extra, factor, summand),
            (origin, flip_b, form, memory.size // threads), shape, depth, (low, high, zero), memory,
        ),
        tasks, threads,
    )  # fmt: skip
