"""Depthwise convolution of images whose rows leave vectors of their own mostly empty."""

from __future__ import annotations

from typing import Any

from tenonnx_cpu.activation import CLIP, RELU
from tenonnx_cpu.conv.depthwise import GROUP
from tenonnx_cpu.jit.compiling import In, Out, f32, helper, i64, kernel, size
from tenonnx_cpu.jit.conv.channel_lanes import finish_lines, slide_channels, spread_lines
from tenonnx_cpu.jit.conv.finish import apply, bounds
from tenonnx_cpu.jit.products.tile import LANES
from tenonnx_cpu.jit.threads.pool import parallel

VECTOR = 4 * LANES


@parallel
def convolve_groups(arguments: Any, task: Any, worker: Any) -> None:
    """Convolves a band of a group of channels; see ``depthwise.channels_layout``."""
    x, w, y, extras, layout, memory = arguments
    groups = -(-layout[1] // GROUP)
    item, part = task // (groups * layout[10]), task % (groups * layout[10])
    band, group = part // groups, part % groups
    high = -(-layout[5] // layout[10])
    end = min(layout[5], (band + 1) * high)
    weights = memory.ctypes.data + 4 * layout[16] * worker
    for channel in range(group * GROUP, min(layout[1], (group + 1) * GROUP), LANES):
        some = min(LANES, layout[1] - channel)
        taps = layout[9] * layout[9]
        spread_lines(w.ctypes.data + 4 * taps * channel, 4 * taps, some, 0, 1, taps, weights, 0, 0)
        for top in range(band * high, end, layout[11]):
            convolve_band(
                x, y, extras, layout, item * layout[1] + channel, channel, some, top,
                min(end, top + layout[11]), weights,
            )  # fmt: skip


@helper
def convolve_band(
    x: Any, y: Any, extras: Any, layout: Any, image: Any, channel: Any, channels: Any, top: Any,
    bottom: Any, weights: Any,
) -> None:  # fmt: skip
    """Convolves lines of as many channels as a vector has lanes; ``image`` is the first one's."""
    scale, shift, residual, activation, first, second = extras
    height, width, stride, pitch = layout[2], layout[3], layout[8], layout[12]
    planes, made = weights + VECTOR * layout[14], weights + VECTOR * layout[15]
    row = top * stride - layout[6]
    lines = (bottom - top - 1) * stride + layout[9]
    above = min(lines, max(0, -row))
    inside = max(0, min(lines, height - row) - above)
    spread_lines(0, 0, 1, 0, 1, 0, planes, 0, above * pitch + layout[7])
    start = planes + VECTOR * (above * pitch + layout[7])
    spread_lines(
        x.ctypes.data + 4 * (image * height + row + above) * width, 4 * height * width, channels,
        4 * width, inside, width, start, VECTOR * pitch, pitch - width,
    )  # fmt: skip
    rest = (lines - above - inside) * pitch
    spread_lines(0, 0, 1, 0, 1, 0, start + VECTOR * inside * pitch, 0, rest)
    slide_channels(
        layout[13], planes, VECTOR * pitch, weights, made, VECTOR * layout[4],
        layout[4], bottom - top,
    )  # fmt: skip
    low, high = bounds(activation, first, second)
    area, count = layout[5] * layout[4], (bottom - top) * layout[4]
    place = image * area + top * layout[4]
    finish_lines(
        made, 0, 1, count, channels, y.ctypes.data + 4 * place, 0, 4 * area,
        residual.ctypes.data + 4 * place if residual.size else 0,
        scale.ctypes.data + 4 * channel, shift.ctypes.data + 4 * channel, low, high,
    )  # fmt: skip
    if activation > RELU and activation != CLIP:
        for i in range(channels):
            apply(y[place + i * area :][:count], activation, first, second)


@kernel((
    In(f32, 1), In(f32, 1), Out(f32, 1), In(f32, 1), In(f32, 1), In(f32, 1), size, f32, f32,
    In(f32, 1),
    In(i64, 1), In(i64, 1), In(i64, 1), In(i64, 2), Out(f32, 1), size,
))  # fmt: skip
def conv_channels(  # type: ignore[no-untyped-def] # the signature has them
    x, w, y, scale, shift, residual, activation, low, high, units, layout, offsets, panel, planes,
    memory, threads,
):  # fmt: skip
    """Like ``conv_depthwise``, for the layouts of ``depthwise.channels_layout``."""
    extras = (scale, shift, residual, activation, low, high)
    convolve_groups((x, w, y, extras, layout, memory), layout[17], threads)
