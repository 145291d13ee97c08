"""Depthwise convolution of bytes: every channel by itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.int8.depthwise import FIELDS
from tenonnx_cpu.jit.compiling import In, Out, f32, helper, i32, i64, kernel, size, u8
from tenonnx_cpu.jit.int8.conv_rows import place_bytes
from tenonnx_cpu.jit.int8.conv_tile import ROUNDED, Finish
from tenonnx_cpu.jit.int8.slide import KNOWN, slide_bytes
from tenonnx_cpu.jit.threads.pool import parallel
from tenonnx_cpu.jit.vectors.lanes import LANES
from tenonnx_cpu.jit.vectors.memory import load_float, load_word
from tenonnx_cpu.jit.vectors.named import named

byte_depthwise_sizes = named("ByteDepthwiseSizes", FIELDS)


@helper
def fill_plane(source: Any, sizes: Any, fill: Any, flip: Any, plane: Any, fresh: Any) -> None:
    """Writes a channel as unsigned bytes, with what windows see around it.

    Lines above and below are there already unless the plane is ``fresh``; what is written beyond
    a line is ``fill``, too.
    """
    height, width, top, left = sizes.height, sizes.width, sizes.top, sizes.left
    lines, pitch = sizes.lines, sizes.pitch
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
    x, words, y, finish, fill, flip, sizes, offsets, memory = arguments
    channels, multiple, together = sizes.channels, sizes.multiple, sizes.together
    plane = memory.ctypes.data + sizes.work * worker
    made = plane + sizes.several * sizes.plane
    area = sizes.out_height * sizes.out_width
    width = 1 if finish.form == ROUNDED else 4
    per_image = -(-channels // together)
    item, first = task // per_image, task % per_image * together
    known = sizes.entries if sizes.entries in KNOWN else 0
    last = min(channels, first + together)
    for channel in range(first, last, sizes.several):
        # A line that is just being written is slow to read: other channels' come between.
        few = min(sizes.several, last - channel)
        for n in range(few):
            source = x.ctypes.data + (item * channels + channel + n) * sizes.height * sizes.width
            fill_plane(source, sizes, fill, flip, plane + n * sizes.plane, channel == first)
        for row in range(channel * multiple, (channel + few) * multiple):
            start = (item * channels * multiple + row) * area * width
            # What is written beyond a row is overwritten, unless another task's follows so soon.
            apart = (last * multiple - row - 1) * area < LANES
            slide_bytes(
                sizes.stride_x, known, plane + (row // multiple - channel) * sizes.plane,
                sizes.stride_y * sizes.pitch, offsets.ctypes.data,
                words.ctypes.data + 4 * sizes.entries * row, sizes.entries,
                made if apart else y.ctypes.data + start, sizes.out_width, sizes.out_height,
                load_word(finish.extra + 4 * row), finish.form,
                load_float(finish.factor + 4 * row), load_float(finish.summand + 4 * row),
                finish.low, finish.high, finish.zero,
            )  # fmt: skip
            if apart:
                count = area * width
                copy_bytes(memory[made - memory.ctypes.data :][:count], y[start : start + count])


@kernel((
    In(u8, 1), In(i32, 1), Out(u8, 1), In(i32, 1), In(f32, 1), In(f32, 1), size, f32, f32, i32,
    u8, u8, In(i64, 1), In(i64, 1), Out(u8, 1), size,
))  # fmt: skip
def byte_depthwise(  # type: ignore[no-untyped-def] # the signature has them
    x, words, y, extra, factor, summand, form, low, high, zero, fill, flip, numbers, offsets,
    memory, threads,
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
        numbers: See ``byte_depthwise_layout``; so are ``offsets``.
        offsets: Likewise.
        memory: To work in.
        threads: How many threads to use.
    """
    sizes = byte_depthwise_sizes(numbers)
    finish = Finish(
        np.intp(extra.ctypes.data), np.intp(factor.ctypes.data), np.intp(summand.ctypes.data),
        form, low, high, zero,
    )  # fmt: skip
    arguments = (x, words, y, finish, fill, flip, sizes, offsets, memory)
    convolve_channels(arguments, sizes.tasks, threads)
