"""A convolution of 1 x 1, a depthwise one and another of 1 x 1, band by band of the result."""

from __future__ import annotations

from typing import Any

from tenonnx_cpu.activation import CLIP, RELU
from tenonnx_cpu.jit.compiling import In, Out, f32, helper, i64, kernel, size
from tenonnx_cpu.jit.conv.conv import multiply_strip
from tenonnx_cpu.jit.conv.finish import apply, bounds
from tenonnx_cpu.jit.conv.planes import pack_panel
from tenonnx_cpu.jit.conv.rows import copy_row
from tenonnx_cpu.jit.conv.stencil import slide_directly
from tenonnx_cpu.jit.products.tile import ADD, COLUMNS, ZERO
from tenonnx_cpu.jit.threads.pool import parallel


@parallel
def convolve_bands(arguments: Any, task: Any, worker: Any) -> None:
    """Makes some lines of an image; see ``tenonnx_cpu.conv.separable``."""
    x, first, second, third, y, extras, layout, offsets, memory = arguments
    item, part = task // layout[12], task % layout[12]
    stop = min(layout[5], (part + 1) * layout[13])
    room = layout[25] * worker
    seen, end = 0, 0
    for line in range(part * layout[13], stop, layout[14]):
        lines = min(layout[14], stop - line)
        low = max(0, line * layout[7] - layout[9])
        high = min(layout[3], (line + lines - 1) * layout[7] - layout[9] + layout[8])
        source, apart = item * layout[1] * layout[3] + low, layout[3] * layout[4]
        if layout[18]:
            kept = max(0, end - low)
            keep_lines(memory, layout, room, low - seen, kept)
            expand(x, first, extras[0], layout, offsets, memory, room, item, low, low + kept, high)
            seen, end = low, high
            slide_band(memory, room, layout[16], second, extras[1], layout, memory, room, line,
                       lines, low, high)  # fmt: skip
        else:
            slide_band(x, source * layout[4], apart, second, extras[1], layout, memory, room, line,
                       lines, low, high)  # fmt: skip
        project(third, y, extras[2], layout, offsets, memory, room, item, line, lines)


@helper
def keep_lines(memory: Any, layout: Any, room: Any, first: Any, lines: Any) -> None:
    """Moves lines of the band before, which this one sees too, to where it begins."""
    if lines > 0 and first > 0:
        for channel in range(layout[1]):
            place = memory.ctypes.data + 4 * (room + layout[16] * channel)
            copy_row(place + 4 * first * layout[4], place, lines * layout[4])


@helper
def expand(
    x: Any, weights: Any, extras: Any, layout: Any, offsets: Any, memory: Any, room: Any, item: Any,
    low: Any, fresh: Any, high: Any,
) -> None:  # fmt: skip
    """Makes lines from ``fresh`` to before ``high`` of all hidden channels; ``low`` comes first."""
    channels, width = layout[0], layout[4]
    area, columns = layout[3] * width, (high - fresh) * width
    source = x.ctypes.data + 4 * (item * channels * area + fresh * width)
    place, start = room + (fresh - low) * width, memory.ctypes.data + 4 * room
    panel, copy, edge = (start + 4 * layout[22], start + 4 * layout[23], start + 4 * layout[24])
    # The last panel may lie beyond the image's last element: it is copied.
    whole = columns // COLUMNS * COLUMNS
    if whole:
        multiply_strip(
            layout[1], weights.ctypes.data, 4 * channels, source, offsets.ctypes.data, channels,
            0, 0, whole, ZERO, copy, edge, True, memory, place, layout[16], 0, extras, 0, 0,
        )  # fmt: skip
    if whole < columns:
        pack_panel(source + 4 * whole, 4 * area, channels, columns - whole, panel)
        multiply_strip(
            layout[1], weights.ctypes.data, 4 * channels, panel,
            offsets.ctypes.data + 8 * channels, channels, 0, 0, columns - whole, ZERO, copy, edge,
            True, memory, place + whole, layout[16], 0, extras, 0, 0,
        )  # fmt: skip


@helper
def slide_band(
    x: Any, place: Any, apart: Any, weights: Any, extras: Any, layout: Any, memory: Any, room: Any,
    line: Any, lines: Any, low: Any, high: Any,
) -> None:  # fmt: skip
    """Convolves each hidden channel by itself.

    Args:
        x: Where they are, flat.
        place: Of line ``low`` of the first one in it.
        apart: Floats from channel to channel.
        weights: All, flat.
        extras: See ``multiply_strip``.
        layout: See ``tenonnx_cpu.conv.separable``.
        memory: Room for all threads.
        room: Where this one's begins.
        line: The first line of the result.
        lines: How many.
        low: The first line of the image that there is.
        high: After the last one.
    """
    scale, shift, _, activation, first, second, _ = extras
    least, most = bounds(activation, first, second)
    taps, count = layout[8] * layout[8], lines * layout[6]
    for channel in range(layout[1]):
        target = room + layout[20] + layout[17] * channel
        slide_directly(
            layout[11], x.ctypes.data + 4 * (place + apart * channel), high - low, layout[4],
            line * layout[7] - layout[9] - low, -layout[10],
            weights.ctypes.data + 4 * taps * channel, memory.ctypes.data + 4 * target, 0,
            layout[6], lines, scale[channel], shift[channel], least, most,
        )  # fmt: skip
        if activation > RELU and activation != CLIP:
            apply(memory[target : target + count], activation, first, second)


@helper
def project(
    weights: Any, y: Any, extras: Any, layout: Any, offsets: Any, memory: Any, room: Any, item: Any,
    line: Any, lines: Any,
) -> None:  # fmt: skip
    """Makes lines of the result of what has become of hidden channels."""
    hidden, rows, area = layout[1], layout[2], layout[5] * layout[6]
    start = memory.ctypes.data + 4 * room
    for channel in range(0, hidden, layout[19]):
        some = min(layout[19], hidden - channel)
        multiply_strip(
            rows, weights.ctypes.data + 4 * channel, 4 * hidden,
            start + 4 * (layout[20] + layout[17] * channel), offsets.ctypes.data + 16 * layout[0],
            some, start + 4 * layout[21], 4 * layout[17], lines * layout[6],
            ADD if channel else ZERO, start + 4 * layout[23], start + 4 * layout[24],
            channel + some >= hidden, y, item * rows * area + line * layout[6], area, 0, extras,
            0, 0,
        )  # fmt: skip


@kernel((
    In(f32, 1), In(f32, 1), In(f32, 1), In(f32, 1), Out(f32, 1), In(f32, 1), In(f32, 1),
    In(f32, 1), In(f32, 1), In(f32, 1), In(i64, 1), In(i64, 1), Out(f32, 1), size,
))  # fmt: skip
def conv_separable(  # type: ignore[no-untyped-def] # the signature has them
    x, first, second, third, y, residual, scales, shifts, limits, units, layout, offsets, memory,
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
        layout: See ``tenonnx_cpu.conv.separable``, as for the rest.
        offsets: Where rows of the image begin, those of a panel, and those of hidden channels.
        memory: Room.
        threads: How many to use.
    """
    hidden, nothing = layout[1], units[:0]
    middle = hidden if layout[18] else 0
    last = middle + hidden
    extras = (
        (scales, shifts, nothing, layout[26], limits[0], limits[1], units),
        (scales[middle:], shifts[middle:], nothing, layout[27], limits[2], limits[3], units),
        (scales[last:], shifts[last:], residual, layout[28], limits[4], limits[5], units),
    )
    arguments = (x, first, second, third, y, extras, layout, offsets, memory)
    convolve_bands(arguments, layout[15], threads)
