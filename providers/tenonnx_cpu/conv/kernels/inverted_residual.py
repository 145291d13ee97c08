"""A depthwise convolution together with the one of single places that makes its image.

The image between has several times as many channels as the first one, and no one else reads it. A
few lines of some of its channels at a time are made in the second-level cache, and convolved there.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tenonnx_cpu.conv.kernels import EXPANDED_FIELDS
from tenonnx_cpu.conv.kernels.channel_lanes import slide_channels
from tenonnx_cpu.conv.kernels.finish import activate_lines, finish_of
from tenonnx_cpu.conv.kernels.pixel_tile import multiply_pixels
from tenonnx_cpu.conv.kernels.rows import copy_row
from tenonnx_cpu.conv.kernels.signature import AFTER, LAYOUT, WINDOWS
from tenonnx_cpu.jit.compiling import In, Out, f32, helper, kernel, size
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors.lanes import LANES
from tenonnx_cpu.jit.vectors.named import named
from tenonnx_cpu.matmul.kernels.block import split
from tenonnx_cpu.matmul.kernels.tile import COLUMNS, ROWS

expanded_sizes = named("ExpandedSizes", EXPANDED_FIELDS)

# Bytes of a place of the image between: a panel of its channels.
PLACE = 4 * COLUMNS


class Band(NamedTuple):
    """Some lines of the result, and those of the image between that their windows see.

    Attributes:
        image: The number of the image.
        top: The first line of the result.
        lines: How many.
        first: The line that the first window sees first, less than 0 if that is padding.
        begin: The first line seen that the image has.
        end: The one after the last.
        made: The one after the last that the band before has made.
        soon: The first line that the next band sees.
    """

    image: Any
    top: Any
    lines: Any
    first: Any
    begin: Any
    end: Any
    made: Any
    soon: Any


@parallel
def convolve_bands(arguments: Any, task: Any, worker: Any) -> None:
    """Make some lines of some channels; see ``tenonnx_cpu.conv.inverted_residual``."""
    x, w, kernels, y, before, after, sizes, offsets, memory = arguments
    work = memory.ctypes.data + 4 * sizes.work * worker
    groups = -(-sizes.channels // sizes.task_channels)
    strips = -(-sizes.out_height // sizes.task_height)
    image, strip = task // groups // strips, task // groups % strips
    channel = task % groups * sizes.task_channels
    stop = min(sizes.channels, channel + sizes.task_channels)
    last, made = min(sizes.out_height, (strip + 1) * sizes.task_height), np.intp(0)
    for top in range(strip * sizes.task_height, last, sizes.together):
        lines = min(sizes.together, last - top)
        first = top * sizes.stride - sizes.top
        soon = max(0, first + lines * sizes.stride)
        end = min(sizes.height, first + (lines - 1) * sizes.stride + sizes.kernel)
        band = Band(image, top, lines, first, max(0, first), end, made, soon)
        for panel in range(channel, stop, COLUMNS):
            kept = work + 4 * sizes.kept * ((panel - channel) // COLUMNS)
            some = min(COLUMNS, stop - panel)
            expand(x, w, before, sizes, offsets, band, panel, some, kept, work + 4 * sizes.band)
            slide(kernels, y, after, sizes, band, panel, some, work + 4 * sizes.band)
        made = end
        start = place_of(y, sizes, image, top) + 4 * channel
        activate_places(start, 4 * sizes.channels, lines * sizes.out_width, stop - channel, after)


@helper
def expand(
    x: Any, w: Any, finish: Any, sizes: Any, offsets: Any, band: Any, panel: Any, channels: Any,
    kept: Any, target: Any,
) -> None:  # fmt: skip
    """Make a panel of channels of what a band's windows see, but for lines that are kept.

    Args:
        kept: Address of lines of the band before that this one sees, too.
        target: Address of the lines.
    """
    line = PLACE * sizes.width
    known = max(0, band.made - band.begin)
    copy_row(kept, target, known * line // 4)
    begin = band.begin + known
    places = max(0, band.end - begin) * sizes.width
    start, zeros, here = 4 * sizes.pixel, finish.units + 256, target + known * line
    source = x.ctypes.data + start * (band.image * sizes.height + begin) * sizes.width
    if sizes.pixel == 1:  # channels are first
        source += 4 * band.image * (sizes.depth - 1) * sizes.height * sizes.width
    high = split(max(1, places), ROWS, 1)
    for place in range(0, places, high):
        multiply_pixels(
            -(-channels // LANES), min(high, places - place), source + start * place, start,
            offsets.ctypes.data, sizes.depth, w.ctypes.data + 4 * panel * sizes.depth,
            here + PLACE * place, PLACE, 4 * LANES, zeros, 0, finish.scale + 4 * panel,
            finish.shift + 4 * panel, channels, finish.low, finish.high,
        )  # fmt: skip
    activate_places(here, PLACE, places, channels, finish)
    if band.soon < band.end:
        after = target + (band.soon - band.begin) * line
        copy_row(after, kept, (band.end - band.soon) * line // 4)


@helper
def slide(
    kernels: Any, y: Any, finish: Any, sizes: Any, band: Any, panel: Any, channels: Any, source: Any
) -> None:
    """Convolve a panel of channels of a band."""
    place, taps = 4 * sizes.channels, sizes.kernel * sizes.kernel
    start = place_of(y, sizes, band.image, band.top)
    for channel in range(panel, panel + channels, LANES):
        slide_channels(
            sizes.variant, source + 4 * (channel - panel), PLACE * sizes.width, PLACE,
            band.first - band.begin, -sizes.left, max(0, band.end - band.begin), sizes.width,
            kernels.ctypes.data + 4 * taps * channel, min(LANES, panel + channels - channel),
            start + 4 * channel, sizes.out_width * place, place, sizes.out_width, band.lines, 0,
            finish.scale + 4 * channel, finish.shift + 4 * channel, finish.units + 256,
            finish.low, finish.high,
        )  # fmt: skip


@helper
def place_of(y: Any, sizes: Any, image: Any, line: Any) -> Any:
    """Return the address of a line of the result."""
    return y + 4 * (image * sizes.out_height + line) * sizes.out_width * sizes.channels


@helper
def activate_places(start: Any, apart: Any, places: Any, channels: Any, finish: Any) -> None:
    """Apply the activation to channels of places so far apart, if clipping has not done it."""
    if apart == 4 * channels:
        activate_lines(start, 0, 1, places * channels, finish)
    else:
        activate_lines(start, apart, places, channels, finish)


@kernel(
    (In(f32, 1), In(f32, 1), In(f32, 1), Out(f32, 1), AFTER, AFTER, LAYOUT, Out(f32, 1), size),
    WINDOWS,
)
def conv_expanded(x, w, kernels, y, before, after, layout, memory, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Convolve as ``tenonnx_cpu.conv.inverted_residual.expanded_layout`` says.

    Weights are packed: panels of channels, and a vector of channels for each tap of the kernels.
    """
    numbers, offsets, _, _ = layout
    sizes = expanded_sizes(numbers)
    finishes = finish_of(before), finish_of(after)
    arguments = (
        x, w, kernels, np.intp(y.ctypes.data), *finishes, sizes, offsets, memory,
    )  # fmt: skip
    convolve_bands(arguments, sizes.tasks, threads)
