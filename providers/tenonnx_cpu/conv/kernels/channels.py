"""Depthwise convolution with channels in the lanes of vectors, which need not be last in images."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tenonnx_cpu.conv.kernels import CHANNELS_FIELDS
from tenonnx_cpu.conv.kernels.channel_lanes import finish_lines, slide_channels, spread_lines
from tenonnx_cpu.conv.kernels.finish import activate_lines, finish_of
from tenonnx_cpu.conv.kernels.signature import CONVOLUTION, WINDOWS
from tenonnx_cpu.jit.compiling import helper, kernel
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors.lanes import LANES
from tenonnx_cpu.jit.vectors.named import named

VECTOR_BYTES = 4 * LANES
# The floats of a line of the cache: its vectors are computed one after the other.
GROUP = 16

channels_sizes = named("ChannelsSizes", CHANNELS_FIELDS)


@parallel
def convolve_groups(arguments: Any, task: Any, worker: Any) -> None:
    """Convolve some lines of some channels; see ``depthwise.channels_layout``."""
    x, w, y, finish, sizes, memory = arguments
    work = memory.ctypes.data + 4 * sizes.work * worker
    groups = -(-sizes.channels // sizes.task_channels)
    strips = -(-sizes.out_height // sizes.task_height)
    item, strip = task // groups // strips, task // groups % strips
    first, top = task % groups * sizes.task_channels, strip * sizes.task_height
    lines = min(sizes.task_height, sizes.out_height - top)
    stop = min(sizes.channels, first + sizes.task_channels)
    for group in range(first, stop, GROUP):
        for line in range(top, top + lines, sizes.together):
            count = min(sizes.together, top + lines - line)
            for channel in range(group, min(stop, group + GROUP), LANES):
                some = min(LANES, sizes.channels - channel)
                image = image_of(x, sizes, item, channel, some, line, count, work)
                weights = w.ctypes.data + 4 * sizes.kernel * sizes.kernel * channel
                slide(image, weights, y, finish, sizes, item, channel, some, line, count, work)
    if sizes.to_last:
        place = (item * sizes.out_height + top) * sizes.out_width
        start, count = y + 4 * (place * sizes.channels + first), lines * sizes.out_width
        if stop - first == sizes.channels:
            activate_lines(start, 0, 1, count * sizes.channels, finish)
        else:
            activate_lines(start, 4 * sizes.channels, count, stop - first, finish)


class Image(NamedTuple):
    """The places of an image's channels for windows, a vector of channels at each place.

    Attributes:
        start: Address of its first place.
        line: Bytes from line to line.
        place: Bytes from place to place.
        top: The line that the first window sees first, less than 0 if that is padding.
        left: The column, likewise.
        height: How many lines there are.
        width: How many columns.
    """

    start: Any
    line: Any
    place: Any
    top: Any
    left: Any
    height: Any
    width: Any


@helper
def image_of(
    x: Any, sizes: Any, item: Any, channel: Any, channels: Any, top: Any, lines: Any, target: Any
) -> Any:
    """Return what lines of the result see, which is copied if channels are not last."""
    height, width, first = sizes.height, sizes.width, top * sizes.stride - sizes.top
    if sizes.from_last:
        place = 4 * sizes.channels
        start = x.ctypes.data + item * height * width * place + 4 * channel
        return Image(start, width * place, place, first, -sizes.left, height, width)
    above = max(0, -first)
    stop = min(height, first + (lines - 1) * sizes.stride + sizes.kernel)
    inside = max(0, stop - first - above)
    area, line = 4 * height * width, VECTOR_BYTES * width
    source = x.ctypes.data + (item * sizes.channels + channel) * area
    spread_lines(
        source + 4 * (first + above) * width, area, channels, 4 * width, inside, width, target,
        line,
    )  # fmt: skip
    return Image(target, line, VECTOR_BYTES, -above, -sizes.left, inside, width)


@helper
def slide(
    image: Any, weights: Any, y: Any, finish: Any, sizes: Any, item: Any, channel: Any,
    channels: Any, top: Any, lines: Any, work: Any,
) -> None:  # fmt: skip
    """Convolve some lines of as many channels as a vector has, at most."""
    scale, shift = finish.scale + 4 * channel, finish.shift + 4 * channel
    ones, zeros = finish.units, finish.units + 256
    area, first = sizes.out_height * sizes.out_width, top * sizes.out_width
    if sizes.to_last:
        place = 4 * sizes.channels
        start = (item * area + first) * place + 4 * channel
        added = finish.residual + start if finish.residual else 0
        slide_channels(
            sizes.variant, image.start, image.line, image.place, image.top, image.left,
            image.height, image.width, weights, channels, y + start, sizes.out_width * place,
            place, sizes.out_width, lines, added, scale, shift, zeros, finish.low, finish.high,
        )  # fmt: skip
        return
    # Behind the last place of an image there is nothing; a copy has all lanes.
    some = channels if sizes.from_last else LANES
    sums, none, endless = work + VECTOR_BYTES * sizes.sums, -np.float32(np.inf), np.float32(np.inf)
    slide_channels(
        sizes.variant, image.start, image.line, image.place, image.top, image.left, image.height,
        image.width, weights, some, sums, VECTOR_BYTES * sizes.out_width, VECTOR_BYTES,
        sizes.out_width, lines, 0, ones, zeros, zeros, none, endless,
    )  # fmt: skip
    start, count = 4 * ((item * sizes.channels + channel) * area + first), lines * sizes.out_width
    finish_lines(
        sums, 0, 1, count, channels, y + start, 0, 4 * area,
        finish.residual + start if finish.residual else 0, scale, shift, finish.low, finish.high,
    )  # fmt: skip
    activate_lines(y + start, 4 * area, channels, count, finish)


@kernel(CONVOLUTION, WINDOWS)
def conv_channels(x, w, y, after, layout, memory, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Convolve as ``tenonnx_cpu.conv.depthwise.channels_layout`` says."""
    sizes = channels_sizes(layout[0])
    finish = finish_of(after)
    convolve_groups((x, w, np.intp(y.ctypes.data), finish, sizes, memory), sizes.tasks, threads)
