"""Depthwise convolution: every channel by itself, in vectors along its rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.activation import CLIP, RELU
from tenonnx_cpu.jit.compiling import In, Out, f32, helper, i64, kernel, size
from tenonnx_cpu.jit.conv.finish import apply, bounds
from tenonnx_cpu.jit.conv.planes import pack_planes
from tenonnx_cpu.jit.conv.slide import slide_sums
from tenonnx_cpu.jit.conv.stencil import DIRECT, slide_directly
from tenonnx_cpu.jit.threads.pool import parallel


@parallel
def convolve_channels(arguments: Any, task: Any, worker: Any) -> None:
    """Convolves some channels, or some lines of one; see ``tenonnx_cpu.conv.depthwise``."""
    x, w, y, extras, layout, offsets, planes, memory = arguments
    channels, multiple, together = layout[1], layout[2], layout[3]
    bands, lines = layout[12], layout[15]
    packed = memory.ctypes.data + 4 * layout[17] * worker
    groups = -(-channels // together)
    item, part = task // (groups * bands), task % (groups * bands)
    band, first = part // groups, part % groups * together
    high = -(-layout[6] // bands)
    end = min(layout[6], (band + 1) * high)
    for channel in range(first, min(channels, first + together)):
        for top in range(band * high, end, lines):
            bottom = min(end, top + lines)
            image = item * channels + channel
            source = x.ctypes.data + 4 * image * layout[4] * layout[5]
            if DIRECT and layout[18]:
                for n in range(multiple):
                    finish_lines(w, y, extras, layout, offsets, item, channel * multiple + n, top,
                                 bottom, source)  # fmt: skip
                continue
            pack_planes(
                source, 1, top, bottom, layout[4:11], planes, layout[14], layout[13],
                layout[13] // layout[14] - (lines - (bottom - top)), np.float32(0), packed,
            )  # fmt: skip
            for n in range(multiple):
                finish_lines(w, y, extras, layout, offsets, item, channel * multiple + n, top,
                             bottom, packed)  # fmt: skip


@helper
def finish_lines(
    w: Any, y: Any, extras: Any, layout: Any, offsets: Any, item: Any, row: Any, top: Any,
    bottom: Any, packed: Any,
) -> None:  # fmt: skip
    """Convolves some lines of a channel for one row of weights.

    ``packed`` is the address of the channel if the kernel is one that reads it there, else of its
    planes.
    """
    scale, shift, residual, activation, first, second = extras
    width, taps = layout[7], layout[11]
    low, high = bounds(activation, first, second)
    image = (item * layout[1] * layout[2] + row) * layout[6]
    weights = w.ctypes.data + 4 * row * taps
    start = (image + top) * width
    added = residual.ctypes.data + 4 * start if residual.size else 0
    if DIRECT and layout[18]:
        slide_directly(
            layout[18], packed, layout[4], layout[5], top * layout[8] - layout[10], layout[19],
            weights, y.ctypes.data + 4 * start, added, width, bottom - top,
            scale[row], shift[row], low, high,
        )  # fmt: skip
    else:
        slide_sums(
            packed, 4 * layout[14], offsets.ctypes.data, weights, taps,
            y.ctypes.data + 4 * start, added, width, bottom - top, layout[18],
            scale[row], shift[row], low, high,
        )  # fmt: skip
    if activation > RELU and activation != CLIP:
        apply(y[start : start + (bottom - top) * width], activation, first, second)


@kernel((
    In(f32, 1), In(f32, 1), Out(f32, 1), In(f32, 1), In(f32, 1), In(f32, 1), size, f32, f32,
    In(f32, 1),
    In(i64, 1), In(i64, 1), In(i64, 1), In(i64, 2), Out(f32, 1), size,
))  # fmt: skip
def conv_depthwise(  # type: ignore[no-untyped-def] # the signature has them
    x, w, y, scale, shift, residual, activation, low, high, units, layout, offsets, panel, planes,
    memory, threads,
):  # fmt: skip
    """Like ``conv_f32``, for one input channel per group; see ``tenonnx_cpu.conv.depthwise``."""
    extras = (scale, shift, residual, activation, low, high)
    convolve_channels((x, w, y, extras, layout, offsets, planes, memory), layout[16], threads)
