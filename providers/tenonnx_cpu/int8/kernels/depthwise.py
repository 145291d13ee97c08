"""Convolution of every channel of bytes by itself, channels side by side in vectors."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.conv.kernels.tasks import part_of
from tenonnx_cpu.int8.kernels.band import pack_band
from tenonnx_cpu.int8.kernels.conv import BYTE_CONVOLUTION, byte_conv_sizes
from tenonnx_cpu.int8.kernels.finishing import (
    ROUNDED,
    SCALED,
    finish_sums,
    own_numbers,
    pack_numbers,
)
from tenonnx_cpu.jit.compiling import kernel
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.dot8 import BYTE_VECTOR, FITS, SUMS, dot
from tenonnx_cpu.jit.vectors.lanes import LANES
from tenonnx_cpu.jit.vectors.memory import store_word
from tenonnx_cpu.jit.vectors.shared import shared
from tenonnx_cpu.jit.vectors.tiles import addresses
from tenonnx_cpu.jit.vectors.vector import F32, I8, I32, I64, Builder, Value
from tenonnx_cpu.matmul.kernels.block import split
from tenonnx_cpu.matmul.kernels.tile import COLUMNS

# Places that are summed together: they share the weights.
PLACES_TOGETHER = 7


@shared(
    "tenonnx_byte_slide",
    [(rows, fits) for rows in range(1, PLACES_TOGETHER + 1) for fits in FITS],
    last=(F32, F32, I32),
)
def slide_bytes(
    b: Builder, rows: int, fits: int, /, a: Value, a_row: Value, offsets: Value, words: Value,
    fours: Value, numbers: Value, c: Value, c_row: Value, columns: Value, form: Value, low: Value,
    high: Value, zero: Value,
) -> None:  # fmt: skip
    """Sum what some places see of as many channels as a vector has, and finish it.

    Args:
        a: Address that the offsets count from at the first; ``a_row`` is bytes from place to place.
        offsets: Address of an int64 for every tap: bytes to what it sees; fours of them.
        words: Address of four int8 for every channel, for every four taps.
        fours: How many.
        numbers: See ``multiply_bytes``, as for the rest.
    """
    # Four vectors of bytes, as loaded one after the other, and their bytes channel by channel.
    mixed = [LANES * (n % 4) + n // 4 for n in range(4 * LANES)]
    starts = addresses(b, a, a_row, range(rows))

    def step(index: Value, sums: list[Value]) -> list[Value]:
        weights = v.load(b, BYTE_VECTOR, b.add(words, b.mul(index, I64(4 * LANES))), 4)
        table = b.add(offsets, b.mul(index, I64(32)))
        places = [v.load(b, I64, b.add(table, I64(8 * n)), 8) for n in range(4)]
        made = []
        for start, total in zip(starts, sums, strict=True):
            seen = [v.load(b, v.vector(I8, LANES), b.add(start, place)) for place in places]
            pairs = [v.shuffle(b, seen[n], seen[n + 1], range(2 * LANES)) for n in (0, 2)]
            four = v.shuffle(b, pairs[0], pairs[1], range(4 * LANES))
            made.append(dot(b, total, v.shuffle(b, four, four, mixed), weights, 7 if fits else 8))
        return made

    sums = v.loop(b, fours, [own_numbers(b, numbers, 0, 0, SUMS)] * rows, step)
    finish_sums(b, sums, 1, numbers, [c, c_row, columns, form, low, high, zero])


@parallel
def convolve_channels(arguments: Any, task: Any, worker: Any) -> None:
    """Make some lines; see ``tenonnx_cpu.int8.conv_layout``."""
    x, weights, y, origin, flip, rows_own, limits, sizes, offsets, memory = arguments
    words, fits = weights
    part = part_of(task, sizes)
    work = memory.ctypes.data + sizes.work * worker
    source, width = x.ctypes.data + part.image * sizes.image, part.columns // part.lines
    fill, band = np.uint8(origin), work + sizes.band
    pack_band(source, part.top, part.lines, part.left, width, sizes, fill, flip, band)
    sums, zeros, extra, factor, summand = rows_own
    columns_own = origin, sums.size, zeros, extra, factor, summand
    form, low, high, zero = limits
    bytes_each, tall = 1 if form == ROUNDED else 4, split(width, PLACES_TOGETHER, 1)
    apart = bytes_each * sizes.channels
    line = (part.image * sizes.out_height + part.top) * sizes.out_width + part.left
    for channel in range(0, sizes.channels, LANES):
        for i in range(COLUMNS):
            store_word(sums[min(channel + i, sums.size - 1)], work + 4 * i)
        pack_numbers(channel, 0, columns_own, work)
        own = words.ctypes.data + 4 * sizes.fours * channel
        for row in range(part.lines):
            here = band + row * sizes.stride_y * sizes.line + channel
            there = y + (line + row * sizes.out_width) * apart + bytes_each * channel
            for place in range(0, width, tall):
                slide_bytes(
                    min(tall, width - place), fits[channel // LANES], here + place * sizes.pixel,
                    sizes.pixel, offsets.ctypes.data, own, sizes.fours, work,
                    there + place * apart, apart, sizes.channels - channel, form, low, high, zero,
                )  # fmt: skip


@kernel(BYTE_CONVOLUTION, SCALED)
def byte_depthwise(x, w, y, origin, flip, rows_own, limits, numbers, offsets, memory, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Convolve every channel by itself; zero points are in the weights already."""
    sizes = byte_conv_sizes(numbers)
    zero = np.int32(origin[0] ^ flip)
    arguments = (
        x, w, np.intp(y.ctypes.data), zero, flip, rows_own, limits, sizes, offsets, memory,
    )  # fmt: skip
    convolve_channels(arguments, sizes.tasks, threads)
