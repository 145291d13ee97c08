"""Convolution of bytes as products of places by channels, with what turns sums into bytes again."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.conv.kernels.tasks import part_of
from tenonnx_cpu.int8.kernels import BYTE_CONV_FIELDS, TALLEST
from tenonnx_cpu.int8.kernels.band import pack_band
from tenonnx_cpu.int8.kernels.finishing import NUMBERS_BYTES, ROUNDED, SCALED, pack_numbers
from tenonnx_cpu.int8.kernels.tile import multiply_bytes
from tenonnx_cpu.int8.kernels.tiles import begin_products, multiply_in_tiles
from tenonnx_cpu.jit.compiling import In, Out, f32, helper, i8, i32, i64, inlined, kernel, size, u8
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors.amx import end_tiles
from tenonnx_cpu.jit.vectors.lanes import LANES
from tenonnx_cpu.jit.vectors.memory import load_int, store_word
from tenonnx_cpu.jit.vectors.named import named
from tenonnx_cpu.jit.vectors.views import elements
from tenonnx_cpu.matmul.kernels.block import split
from tenonnx_cpu.matmul.kernels.tile import COLUMNS, ROWS

BYTE_CONVOLUTION = (
    In(u8, 1), (In(i8, 1), In(u8, 1)), Out(u8, 1), In(u8, 1), u8,
    (In(i32, 1), In(i32, 1), In(i32, 1), In(f32, 1), In(f32, 1)), (size, f32, f32, i32),
    In(i64, 1), In(i64, 1), Out(u8, 1), size,
)  # fmt: skip
"""The arguments of kernels of convolutions of bytes:

* the image, the weights as ``tenonnx_cpu.int8.conv_weights`` packs them, for every panel of them
  what ``see_pairs`` says of such panels, and the result's bytes;
* the image's zero point, and bits of it and of the image that are inverted;
* for every row of weights its sum, then its zero point or one for all, and, as ``pack_numbers``
  takes them, what is added to sums, what they are multiplied by, and what is added then;
* ``form``, ``low``, ``high`` and ``zero``: see ``multiply_bytes``;
* ``numbers`` and ``offsets`` as ``tenonnx_cpu.int8.conv_layout`` makes them;
* bytes to work in, a part for every thread, and how many threads to use.
"""

# Bytes from which on vectors add them up faster; as many have a sum of 16 bits.
FEW_BYTES = 64

# Every second byte of a word, and what adds up its four parts of 16 bits in the highest.
EVEN_BYTES, ONE_PER_PAIR = 0x00FF00FF00FF00FF, 0x0001000100010001

byte_conv_sizes = named("ByteConvSizes", BYTE_CONV_FIELDS)


@parallel
def convolve_bytes(arguments: Any, task: Any, worker: Any) -> None:
    """Make some channels of some lines; see ``tenonnx_cpu.int8.conv_layout``."""
    x, weights, y, origin, flip, rows_own, limits, sizes, offsets, memory = arguments
    w, fits = weights
    part = part_of(task, sizes)
    image, group = part.image // sizes.groups, part.image % sizes.groups
    work = memory.ctypes.data + sizes.work * worker
    source = x.ctypes.data + image * sizes.image + group * sizes.channels * sizes.from_channel
    width = part.columns // part.lines
    if sizes.copied:
        fill, band = np.uint8(origin), work + sizes.band
        pack_band(source, part.top, part.lines, part.left, width, sizes, fill, flip, band)
        source = band
    else:
        source += part.top * sizes.stride_y * sizes.line + part.left * sizes.pixel
    sums, zeros, extra, factor, summand = rows_own
    totals, with_totals = work + 4 * NUMBERS_BYTES, False
    for zero in zeros:
        with_totals = with_totals or zero != 0
    add_totals(part.lines if with_totals else 0, width, source, offsets.ctypes.data, sizes, totals)
    columns_own = origin, sums.size, zeros, extra, factor, summand
    tiles = begin_products(width, -(-sizes.run // 4))
    first = group * sizes.rows + part.first
    panels = -(-sizes.rows // COLUMNS)
    line = (image * sizes.out_height + part.top) * sizes.out_width + part.left
    for channel in range(0, part.rows, COLUMNS):
        for i in range(COLUMNS):
            store_word(sums[min(first + channel + i, sums.size - 1)], work + 4 * i)
        pack_numbers(first + channel, sizes.depth, columns_own, work)
        number = group * panels + (part.first + channel) // COLUMNS
        panel = w.ctypes.data + 4 * COLUMNS * sizes.fours * number
        multiply_lines(
            part.lines, width, tiles, source, offsets.ctypes.data, panel,
            totals if with_totals else 0, fits[number], work, y, line, first + channel,
            min(COLUMNS, part.rows - channel), limits, sizes,
        )  # fmt: skip
    if tiles[0]:
        end_tiles()


@helper
def add_totals(lines: Any, width: Any, source: Any, offsets: Any, sizes: Any, totals: Any) -> None:
    """Write the total of what each place sees, or zeros for a tile if there are no lines."""
    if not lines:
        for row in range(TALLEST):
            store_word(np.int32(0), totals + 4 * row)
    apart = -(-sizes.run // 4)
    for line in range(lines):
        here = source + line * sizes.stride_y * sizes.line
        for place in range(width):
            total = i64(0)
            for four in range(0, sizes.fours, apart):
                total += total_of_bytes(here + load_int(offsets + 8 * four), sizes.run)
            store_word(np.int32(total), totals + 4 * (line * width + place))
            here += sizes.pixel


@inlined
def total_of_bytes(address: Any, count: Any) -> Any:
    """Add up unsigned bytes: few of them in the four parts of a word, which hold their sums."""
    pairs, whole = i64(0), count // 8 * 8 if count < FEW_BYTES else 0
    for at in range(0, whole, 8):
        word = load_int(address + at)
        pairs += (word & EVEN_BYTES) + ((word >> 8) & EVEN_BYTES)
    total = ((pairs * ONE_PER_PAIR) >> 48) & 0xFFFF
    for byte in elements(address + whole, count - whole, np.uint8):
        total += i64(byte)
    return total


@helper
def multiply_lines(
    lines: Any, width: Any, tiles: Any, source: Any, offsets: Any, panel: Any, totals: Any,
    fits: Any, numbers: Any, y: Any, line: Any, channel: Any, columns: Any, limits: Any, sizes: Any,
) -> None:  # fmt: skip
    """Make a panel's channels of some lines.

    Args:
        lines: How many.
        width: How many places of each.
        tiles: What ``begin_products`` returned for them.
        source: Address that offsets count from at the first place.
        offsets: Address of where fours of what a place sees are.
        panel: Address of the weights.
        totals: Address of an int32 for every place, or 0.
        fits: What ``see_pairs`` says of them.
        numbers: Address of what ``pack_numbers`` has written; zeros are behind it.
        y: Address of the result.
        line: The first place's number among all of the result.
        channel: The first one's number among the result's.
        columns: How many channels.
        limits: The form, the least and the greatest result, and the zero point.
        sizes: As ``BYTE_CONV_FIELDS`` says.
    """
    form, low, high, zero = limits
    bytes_each = 1 if form == ROUNDED else 4
    apart, tall = bytes_each * sizes.groups * sizes.rows, split(width, ROWS, 1)
    if tiles[0]:
        multiply_in_tiles(
            lines, width, tiles, (source, sizes.stride_y * sizes.line, sizes.pixel), offsets, panel,
            sizes.fours, totals if totals else numbers + 4 * NUMBERS_BYTES,
            4 * width if totals else 0, numbers, (y + line * apart + bytes_each * channel,
            sizes.out_width * apart, apart), columns, limits,
        )  # fmt: skip
        return
    vectors = -(-columns // LANES)
    for row in range(lines):
        here = source + row * sizes.stride_y * sizes.line
        there = y + (line + row * sizes.out_width) * apart + bytes_each * channel
        for place in range(0, width, tall):
            own = totals + 4 * (row * width + place) if totals else numbers + 4 * NUMBERS_BYTES
            multiply_bytes(
                vectors, min(tall, width - place), fits, here + place * sizes.pixel, sizes.pixel,
                offsets, panel, sizes.fours, own, numbers, there + place * apart, apart, columns,
                form, low, high, zero,
            )  # fmt: skip


@kernel(BYTE_CONVOLUTION, SCALED)
def conv_int8(x, w, y, origin, flip, rows_own, limits, numbers, offsets, memory, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Convolve bytes as ``tenonnx_cpu.int8.conv_layout.bytes_layout`` says."""
    sizes = byte_conv_sizes(numbers)
    zero = np.int32(origin[0] ^ flip)
    arguments = (
        x, w, np.intp(y.ctypes.data), zero, flip, rows_own, limits, sizes, offsets, memory,
    )  # fmt: skip
    convolve_bytes(arguments, sizes.tasks, threads)
