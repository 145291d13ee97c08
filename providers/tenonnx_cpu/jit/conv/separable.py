"""A convolution of 1 x 1, a depthwise one and another of 1 x 1, band by band of the result."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.conv.separable_layout import FIELDS
from tenonnx_cpu.jit.compiling import In, Out, f32, helper, i64, kernel, size
from tenonnx_cpu.jit.conv.finish import activate_lines, finish_of
from tenonnx_cpu.jit.conv.rows import copy_row
from tenonnx_cpu.jit.conv.stencil import slide_directly
from tenonnx_cpu.jit.conv.strip import Result, Room, Rows, multiply_image, multiply_strip
from tenonnx_cpu.jit.products.tile import ADD, ZERO
from tenonnx_cpu.jit.threads.pool import parallel
from tenonnx_cpu.jit.vectors.memory import load_float
from tenonnx_cpu.jit.vectors.named import named

separable_sizes = named("SeparableSizes", FIELDS)


@parallel
def convolve_bands(arguments: Any, task: Any, worker: Any) -> None:
    """Makes some lines of an image; see ``tenonnx_cpu.conv.separable_layout``."""
    x, first, second, third, y, finishes, sizes, offsets, memory = arguments
    item, part = task // sizes.parts, task % sizes.parts
    stop = min(sizes.out_height, (part + 1) * sizes.task_height)
    mine = sizes.work * worker
    begin, end = 0, 0
    for line in range(part * sizes.task_height, stop, sizes.band):
        lines = min(sizes.band, stop - line)
        low = max(0, line * sizes.stride - sizes.top)
        high = min(sizes.height, (line + lines - 1) * sizes.stride - sizes.top + sizes.kernel)
        if sizes.expands:
            kept = max(0, end - low)
            keep_lines(memory, sizes, mine, low - begin, kept)
            expand(x, first, finishes[0], sizes, offsets, memory, mine, item, low, low + kept, high)
            begin, end = low, high
            slide_band(memory, mine, sizes.wide, second, finishes[1], sizes, memory, mine, line,
                       lines, low, high)  # fmt: skip
        else:
            source = (item * sizes.hidden * sizes.height + low) * sizes.width
            slide_band(x, source, sizes.height * sizes.width, second, finishes[1], sizes, memory,
                       mine, line, lines, low, high)  # fmt: skip
        project(third, y, finishes[2], sizes, offsets, memory, mine, item, line, lines)


@helper
def keep_lines(memory: Any, sizes: Any, mine: Any, first: Any, lines: Any) -> None:
    """Moves lines of the band before, which this one sees too, to where it begins."""
    if lines > 0 and first > 0:
        for channel in range(sizes.hidden):
            place = memory.ctypes.data + 4 * (mine + sizes.wide * channel)
            copy_row(place + 4 * first * sizes.width, place, lines * sizes.width)


@helper
def expand(
    x: Any, weights: Any, finish: Any, sizes: Any, offsets: Any, memory: Any, mine: Any, item: Any,
    low: Any, fresh: Any, high: Any,
) -> None:  # fmt: skip
    """Makes lines from ``fresh`` to before ``high`` of all hidden channels; ``low`` comes first."""
    channels, area = sizes.channels, sizes.height * sizes.width
    source = x.ctypes.data + 4 * (item * channels * area + fresh * sizes.width)
    start, place = memory.ctypes.data + 4 * mine, mine + (fresh - low) * sizes.width
    table = offsets.ctypes.data
    multiply_image(
        sizes.hidden, channels, (high - fresh) * sizes.width,
        Rows(weights.ctypes.data, 4 * channels), source, 4 * area, table, table + 8 * channels,
        start + 4 * sizes.panel, Rows(0, 0), ZERO, True,
        Result(np.intp(memory.ctypes.data), place, sizes.wide, 0, finish),
        Room(start + 4 * sizes.copy, start + 4 * sizes.edge),
    )  # fmt: skip


@helper
def slide_band(
    x: Any, place: Any, apart: Any, weights: Any, finish: Any, sizes: Any, memory: Any, mine: Any,
    line: Any, lines: Any, low: Any, high: Any,
) -> None:  # fmt: skip
    """Convolves each hidden channel by itself.

    Args:
        x: Where they are, flat.
        place: Of line ``low`` of the first one in it.
        apart: Floats from channel to channel.
        weights: All, flat.
        finish: What becomes of sums.
        sizes: See ``tenonnx_cpu.conv.separable_layout``.
        memory: Room for all threads.
        mine: Where this one's begins.
        line: The first line of the result.
        lines: How many.
        low: The first line of the image that there is.
        high: After the last one.
    """
    taps = sizes.kernel * sizes.kernel
    for channel in range(sizes.hidden):
        made = memory.ctypes.data + 4 * (mine + sizes.second + sizes.narrow * channel)
        scale, shift = (
            load_float(finish.scale + 4 * channel),
            load_float(finish.shift + 4 * channel),
        )
        slide_directly(
            sizes.variant, x.ctypes.data + 4 * (place + apart * channel), high - low, sizes.width,
            line * sizes.stride - sizes.top - low, -sizes.left,
            weights.ctypes.data + 4 * taps * channel, made, 0,
            sizes.out_width, lines, scale, shift, finish.low, finish.high,
        )  # fmt: skip
        activate_lines(made, 0, 1, lines * sizes.out_width, finish)


@helper
def project(
    weights: Any, y: Any, finish: Any, sizes: Any, offsets: Any, memory: Any, mine: Any, item: Any,
    line: Any, lines: Any,
) -> None:  # fmt: skip
    """Makes lines of the result of what has become of hidden channels."""
    area, start = sizes.out_height * sizes.out_width, memory.ctypes.data + 4 * mine
    place = item * sizes.rows * area + line * sizes.out_width
    room = Room(start + 4 * sizes.copy, start + 4 * sizes.edge)
    for channel in range(0, sizes.hidden, sizes.block):
        some = min(sizes.block, sizes.hidden - channel)
        multiply_strip(
            sizes.rows, some, lines * sizes.out_width,
            Rows(weights.ctypes.data + 4 * channel, 4 * sizes.hidden),
            start + 4 * (sizes.second + sizes.narrow * channel),
            offsets.ctypes.data + 16 * sizes.channels,
            Rows(start + 4 * sizes.sums, 4 * sizes.narrow), ADD if channel else ZERO,
            channel + some >= sizes.hidden, Result(y, place, area, 0, finish), room, Rows(0, 0),
        )  # fmt: skip


@kernel((
    In(f32, 1), In(f32, 1), In(f32, 1), In(f32, 1), Out(f32, 1), In(f32, 1), In(f32, 1),
    In(f32, 1), In(f32, 1), In(f32, 1), In(i64, 1), In(i64, 1), Out(f32, 1), size,
))  # fmt: skip
def conv_separable(  # type: ignore[no-untyped-def] # the signature has them
    x, first, second, third, y, residual, scales, shifts, limits, units, numbers, offsets, memory,
    threads,
):  # fmt: skip
    """Computes three convolutions, or the last two, with what is done to each one's result.

    Args:
        x: Images, flat like all others.
        first: Weights of the first convolution; none if there are two.
        second: Of the depthwise one.
        third: Of the last one.
        y: The result.
        residual: What is added to it, or nothing.
        scales: A factor for every channel that each convolution makes.
        shifts: A summand, likewise.
        limits: Both parameters of each one's activation.
        units: 64 ones and 64 zeros.
        numbers: See ``tenonnx_cpu.conv.separable_layout``, as for the rest.
        offsets: Where rows of the image begin, those of a panel, and those of hidden channels.
        memory: Room.
        threads: How many to use.
    """
    sizes, nothing = separable_sizes(numbers), units[:0]
    middle = sizes.hidden if sizes.expands else 0
    last = middle + sizes.hidden
    finishes = (
        finish_of((scales, shifts, nothing, sizes.kind, limits[0], limits[1], units)),
        finish_of(
            (scales[middle:], shifts[middle:], nothing, sizes.second_kind, limits[2], limits[3],
             units)
        ),
        finish_of(
            (scales[last:], shifts[last:], residual, sizes.third_kind, limits[4], limits[5], units)
        ),
    )  # fmt: skip
    arguments = (x, first, second, third, np.intp(y.ctypes.data), finishes, sizes, offsets, memory)
    convolve_bands(arguments, sizes.tasks, threads)
