"""Convolution of float32 images as matrix products of places by channels."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tenonnx_cpu.conv.kernels import PIXELS_FIELDS
from tenonnx_cpu.conv.kernels.channel_lanes import finish_lines
from tenonnx_cpu.conv.kernels.finish import activate_lines, finish_of
from tenonnx_cpu.conv.kernels.pixel_tile import multiply_pixels
from tenonnx_cpu.conv.kernels.rows import place_lines
from tenonnx_cpu.conv.kernels.signature import CONVOLUTION, WINDOWS
from tenonnx_cpu.conv.kernels.tasks import part_of
from tenonnx_cpu.jit.compiling import helper, kernel
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors.lanes import LANES
from tenonnx_cpu.jit.vectors.named import named
from tenonnx_cpu.matmul.kernels.block import split
from tenonnx_cpu.matmul.kernels.tile import COLUMNS, ROWS

pixels_sizes = named("PixelsSizes", PIXELS_FIELDS)


class PixelLine(NamedTuple):
    """A line of the result, or a part of one, of one task's channels.

    Attributes:
        source: Address that offsets count from at the first place.
        weights: Address of the first channel's panel.
        image: The number of the image.
        channel: The first one.
        channels: How many.
        row: Which line.
        left: Its first place.
        width: How many places.
        high: How many of them a tile makes at most.
    """

    source: Any
    weights: Any
    image: Any
    channel: Any
    channels: Any
    row: Any
    left: Any
    width: Any
    high: Any


@parallel
def convolve_places(arguments: Any, task: Any, worker: Any) -> None:
    """Make some channels of some lines; see ``tenonnx_cpu.conv.pixels``."""
    x, w, y, finish, sizes, offsets, memory = arguments
    part = part_of(task, sizes)
    work = memory.ctypes.data + 4 * sizes.work * worker
    source = x.ctypes.data + 4 * part.image * sizes.planes * sizes.height * sizes.line
    if sizes.copied:
        pack_band(source, part.top, part.lines, sizes, work)
        source, apart = work, 4 * sizes.padded * sizes.stride_y
    else:
        apart = 4 * sizes.line * sizes.stride_y
        source += part.top * apart
    width, weights = part.columns // part.lines, w.ctypes.data + 4 * part.first * sizes.depth
    high = split(width, ROWS, 1)
    for row in range(part.lines):
        line = PixelLine(
            source + row * apart + 4 * part.left * sizes.pixel, weights, part.image, part.first,
            part.rows, part.top + row, part.left, width, high,
        )  # fmt: skip
        if sizes.last:
            make_places(line, offsets.ctypes.data, y, finish, sizes)
        else:
            make_channels(line, offsets.ctypes.data, y, finish, sizes, work + 4 * sizes.sums)


@helper
def pack_band(source: Any, top: Any, lines: Any, sizes: Any, target: Any) -> None:
    """Copy what some lines of the result see, with zeros for padding."""
    first = top * sizes.stride_y - sizes.top
    seen = (lines - 1) * sizes.stride_y + sizes.taps_y
    above = min(seen, max(0, -first))
    inside = max(0, min(seen, sizes.height - first) - above)
    zero, line = np.float32(0), 4 * sizes.padded
    for plane in range(sizes.planes):
        here = source + 4 * (plane * sizes.height + first + above) * sizes.line
        place = target + 4 * plane * sizes.plane
        place_lines(source, 0, place, sizes.padded, 0, 0, above, zero)
        place_lines(
            here, 4 * sizes.line, place + above * line, sizes.padded, sizes.left,
            sizes.left + sizes.line, inside, zero,
        )  # fmt: skip
        rest = seen - above - inside
        place_lines(source, 0, place + (above + inside) * line, sizes.padded, 0, 0, rest, zero)


@helper
def make_places(line: Any, offsets: Any, y: Any, finish: Any, sizes: Any) -> None:
    """Make a line of a result that has its channels last."""
    apart, zeros = 4 * sizes.rows, finish.units + 256
    first = (line.image * sizes.out_height + line.row) * sizes.out_width + line.left
    for place in range(0, line.width, line.high):
        count = min(line.high, line.width - place)
        start = (first + place) * apart + 4 * line.channel
        for channel in range(0, line.channels, COLUMNS):
            some, here = min(COLUMNS, line.channels - channel), start + 4 * channel
            added, step = (finish.residual + here, apart) if finish.residual else (zeros, 0)
            own = 4 * (line.channel + channel)
            multiply_pixels(
                -(-some // LANES), count, line.source + 4 * place * sizes.pixel, 4 * sizes.pixel,
                offsets, sizes.depth, line.weights + 4 * channel * sizes.depth, y + here, apart,
                4 * LANES, added, step, finish.scale + own, finish.shift + own, some, finish.low,
                finish.high,
            )  # fmt: skip
        if line.channels == sizes.rows:
            activate_lines(y + start, 0, 1, count * sizes.rows, finish)
        else:
            activate_lines(y + start, apart, count, line.channels, finish)


@helper
def make_channels(line: Any, offsets: Any, y: Any, finish: Any, sizes: Any, sums: Any) -> None:
    """Make a line of a result that has its channels first, by sums that have them in vectors."""
    ones, zeros = finish.units, finish.units + 256
    none, endless = -np.float32(np.inf), np.float32(np.inf)
    area, vector = sizes.out_height * sizes.out_width, 4 * LANES * (line.width + LANES)
    place_of_line = line.row * sizes.out_width + line.left
    for channel in range(0, line.channels, COLUMNS):
        panel = line.weights + 4 * channel * sizes.depth
        vectors = -(-min(COLUMNS, line.channels - channel) // LANES)
        for place in range(0, line.width, line.high):
            multiply_pixels(
                vectors, min(line.high, line.width - place), line.source + 4 * place * sizes.pixel,
                4 * sizes.pixel, offsets, sizes.depth, panel, sums + 4 * LANES * place, 4 * LANES,
                vector, zeros, 0, ones, zeros, COLUMNS, none, endless,
            )  # fmt: skip
        for number in range(vectors):
            own = line.channel + channel + LANES * number
            some = min(LANES, line.channels - channel - LANES * number)
            start = 4 * ((line.image * sizes.rows + own) * area + place_of_line)
            finish_lines(
                sums + vector * number, 0, 1, line.width, some, y + start, 0, 4 * area,
                finish.residual + start if finish.residual else 0,
                finish.scale + 4 * own, finish.shift + 4 * own, finish.low, finish.high,
            )  # fmt: skip
            activate_lines(y + start, 4 * area, some, line.width, finish)


@kernel(CONVOLUTION, WINDOWS)
def conv_pixels(x, w, y, after, layout, memory, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Convolve as ``tenonnx_cpu.conv.pixels.pixels_layout`` says."""
    numbers, offsets, _, _ = layout
    sizes = pixels_sizes(numbers)
    finish = finish_of(after)
    arguments = (x, w, np.intp(y.ctypes.data), finish, sizes, offsets, memory)
    convolve_places(arguments, sizes.tasks, threads)
