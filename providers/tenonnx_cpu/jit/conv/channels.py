"""Depthwise convolution of images whose rows leave vectors of their own mostly empty."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.conv.depthwise import CHANNELS_FIELDS, GROUP
from tenonnx_cpu.jit.compiling import helper, kernel
from tenonnx_cpu.jit.conv.channel_lanes import finish_lines, slide_channels, spread_lines
from tenonnx_cpu.jit.conv.finish import activate_lines, finish_of
from tenonnx_cpu.jit.conv.signature import CONVOLUTION
from tenonnx_cpu.jit.products.tile import LANES
from tenonnx_cpu.jit.threads.pool import parallel
from tenonnx_cpu.jit.vectors.named import named

VECTOR = 4 * LANES

channels_sizes = named("ChannelsSizes", CHANNELS_FIELDS)


@parallel
def convolve_groups(arguments: Any, task: Any, worker: Any) -> None:
    """Convolves a band of a group of channels; see ``depthwise.channels_layout``."""
    x, w, y, finish, sizes, memory = arguments
    groups = -(-sizes.channels // GROUP)
    item, part = task // (groups * sizes.bands), task % (groups * sizes.bands)
    band, group = part // groups, part % groups
    high = -(-sizes.out_height // sizes.bands)
    end = min(sizes.out_height, (band + 1) * high)
    weights = memory.ctypes.data + 4 * sizes.work * worker
    taps = sizes.kernel * sizes.kernel
    for channel in range(group * GROUP, min(sizes.channels, (group + 1) * GROUP), LANES):
        some = min(LANES, sizes.channels - channel)
        spread_lines(w.ctypes.data + 4 * taps * channel, 4 * taps, some, 0, 1, taps, weights, 0, 0)
        for top in range(band * high, end, sizes.task_height):
            lines = min(end - top, sizes.task_height)
            convolve_band(x, y, finish, sizes, item, channel, some, top, lines, weights)


@helper
def convolve_band(
    x: Any, y: Any, finish: Any, sizes: Any, item: Any, channel: Any, channels: Any, top: Any,
    lines: Any, weights: Any,
) -> None:  # fmt: skip
    """Convolves lines of as many channels as a vector has lanes."""
    height, width, pitch = sizes.height, sizes.width, sizes.pitch
    image, row = item * sizes.channels + channel, top * sizes.stride - sizes.top
    planes, made = weights + VECTOR * sizes.planes, weights + VECTOR * sizes.sums
    seen = (lines - 1) * sizes.stride + sizes.kernel
    above = min(seen, max(0, -row))
    inside = max(0, min(seen, height - row) - above)
    spread_lines(0, 0, 1, 0, 1, 0, planes, 0, above * pitch + sizes.left)
    start = planes + VECTOR * (above * pitch + sizes.left)
    spread_lines(
        x.ctypes.data + 4 * (image * height + row + above) * width, 4 * height * width, channels,
        4 * width, inside, width, start, VECTOR * pitch, pitch - width,
    )  # fmt: skip
    rest = (seen - above - inside) * pitch
    spread_lines(0, 0, 1, 0, 1, 0, start + VECTOR * inside * pitch, 0, rest)
    slide_channels(
        sizes.variant, planes, VECTOR * pitch, weights, made, VECTOR * sizes.out_width,
        sizes.out_width, lines,
    )  # fmt: skip
    area, count = sizes.out_height * sizes.out_width, lines * sizes.out_width
    place = image * area + top * sizes.out_width
    finish_lines(
        made, 0, 1, count, channels, y + 4 * place, 0, 4 * area,
        finish.residual + 4 * place if finish.residual else 0,
        finish.scale + 4 * channel, finish.shift + 4 * channel, finish.low, finish.high,
    )  # fmt: skip
    activate_lines(y + 4 * place, 4 * area, channels, count, finish)


@kernel(CONVOLUTION)
def conv_channels(x, w, y, after, layout, memory, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Convolves as ``tenonnx_cpu.conv.depthwise.channels_layout`` says."""
    sizes = channels_sizes(layout[0])
    finish = finish_of(after)
    convolve_groups((x, w, np.intp(y.ctypes.data), finish, sizes, memory), sizes.tasks, threads)
