"""Depthwise convolution of bytes: every channel by itself."""

from __future__ import annotations

from typing import Any

from tenonnx_cpu.jit.compiling import In, Out, f32, helper, i32, i64, kernel, size, u8
from tenonnx_cpu.jit.int8.conv_rows import place_bytes
from tenonnx_cpu.jit.int8.conv_tile import ROUNDED
from tenonnx_cpu.jit.int8.slide import slide_bytes
from tenonnx_cpu.jit.products.tile import LANES
from tenonnx_cpu.jit.threads.pool import parallel


@helper
def fill_plane(source: Any, layout: Any, fill: Any, flip: Any, plane: Any, fresh: Any) -> None:
    """Writes a channel as unsigned bytes, with what windows see around it.

    Lines above and below are there already unless the plane is ``fresh``; what is written beyond
    a line is ``fill``, too.
    """
    height, width, top, left = layout[3], layout[4], layout[9], layout[10]
    lines, pitch = layout[11], layout[12]
    inside = min(lines, top + height)
    if fresh:
        place_bytes(source, 0, plane, pitch, 0, 0, lines, 1, fill, flip)
    place_bytes(
        source, width, plane + top * pitch, pitch, left, min(pitch, left + width), inside - top, 1,
        fill, flip,
    )  # fmt: skip


@helper
def copy_bytes(source: Any, target: Any) -> None:
    """Copies bytes that lie apart; assigning to a slice may allocate, in case they do not."""
    for i in range(target.size):
        target[i] = source[i]


@parallel
def convolve_channels(arguments: Any, task: Any, worker: Any) -> None:
    """Convolves some channels; see ``byte_depthwise_layout``."""
    x, words, y, numbers, extra, factor, summand, limits, layout, offsets, memory = arguments
    form, fill, flip = numbers
    low, high, zero = limits
    channels, multiple, together = layout[0], layout[1], layout[2]
    plane = memory.ctypes.data + layout[16] * worker
    made = plane + layout[17] * layout[13]
    size_of_image = layout[5] * layout[6]
    width = 1 if form == ROUNDED else 4
    per_image = -(-channels // together)
    item, first = task // per_image, task % per_image * together
    known = layout[14] if layout[14] in (3, 10) else 0
    last = min(channels, first + together)
    several = layout[17]
    for channel in range(first, last, several):
        # A line that is just being written is slow to read: other channels' come between.
        few = min(several, last - channel)
        for n in range(few):
            source = x.ctypes.data + (item * channels + channel + n) * layout[3] * layout[4]
            fill_plane(source, layout, fill, flip, plane + n * layout[13], channel == first)
        for row in range(channel * multiple, (channel + few) * multiple):
            start = (item * channels * multiple + row) * size_of_image * width
            # What is written beyond a row is overwritten, unless another task's follows so soon.
            apart = (last * multiple - row - 1) * size_of_image < LANES
            slide_bytes(
                layout[8], known, plane + (row // multiple - channel) * layout[13],
                layout[7] * layout[12], offsets.ctypes.data,
                words.ctypes.data + 4 * layout[14] * row, layout[14],
                made if apart else y.ctypes.data + start, layout[6], layout[5],
                extra[row], form, factor[row], summand[row], low, high, zero,
            )  # fmt: skip
            if apart:
                count = size_of_image * width
                copy_bytes(memory[made - memory.ctypes.data :][:count], y[start : start + count])


@kernel((
    In(u8, 1), In(i32, 1), Out(u8, 1), In(i32, 1), In(f32, 1), In(f32, 1), size, f32, f32, i32,
    u8, u8, In(i64, 1), In(i64, 1), Out(u8, 1), size,
))  # fmt: skip
def byte_depthwise(  # type: ignore[no-untyped-def] # the signature has them
    x, words, y, extra, factor, summand, form, low, high, zero, fill, flip, layout, offsets, memory,
    threads,
):  # fmt: skip
    """Convolves every channel of bytes by itself.

    Args:
        x: The image, as unsigned bytes once ``flip`` is applied.
        words: The weights, as ``weight_words`` returns them.
        y: The result's bytes.
        extra: What the sums of every row of weights begin with.
        factor: What they are multiplied by.
        summand: What is added then.
        form: See ``slide_bytes``; so are ``low``, ``high`` and ``zero``.
        low: Likewise.
        high: Likewise.
        zero: Likewise.
        fill: What padding is, after ``flip``.
        flip: Bits of the image that are inverted.
        layout: See ``byte_depthwise_layout``; so are ``offsets``.
        offsets: Likewise.
        memory: To work in.
        threads: How many threads to use.
    """
    convolve_channels(
        (
            x, words, y, (form, fill, flip), extra, factor, summand, (low, high, zero), layout,
            offsets, memory,
        ),
        layout[15], threads,
    )  # fmt: skip
