"""Convolution of float32 images as matrix products whose second operand is never unfolded."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.activation import CLIP, RELU
from tenonnx_cpu.jit.compiling import In, Out, f32, helper, i64, kernel, size
from tenonnx_cpu.jit.conv.finish import apply, bounds
from tenonnx_cpu.jit.conv.planes import pack_columns, pack_panel, pack_planes
from tenonnx_cpu.jit.conv.rows import copy_row, place_lines
from tenonnx_cpu.jit.conv.tile import (
    DOT_ROWS,
    DOTS,
    multiply_dots,
    multiply_taps,
    multiply_taps_narrow,
)
from tenonnx_cpu.jit.products.block import split
from tenonnx_cpu.jit.products.tile import ADD, COLUMNS, LANES, ROWS, ZERO
from tenonnx_cpu.jit.threads.pool import parallel

TOLD = 16
"""Lines of the cache of each row that ``ahead`` means: a tile tells as many lines as it is deep."""


@helper
def multiply_strip(
    rows: Any, a: Any, a_row: Any, b: Any, offsets: Any, depth: Any, c: Any, c_row: Any,
    columns: Any, mode: Any, copy: Any, edge: Any, last: Any, y: Any, place: Any, image: Any,
    channel: Any, extras: Any, soon: Any, soon_row: Any,
) -> None:  # fmt: skip
    """Multiplies rows of A by columns of B; writes ``activate(C * scale + shift + residual)``.

    Args:
        rows: Of A and C.
        a: Address of A, whose columns are adjacent, and bytes from row to row.
        a_row: Likewise.
        b: Address that the offsets count from.
        offsets: Address of where the rows of B are.
        depth: Columns of A, rows of B.
        c: Address of C, and bytes from row to row; it has room for whole panels. If it is complete
            with this, nothing is written there.
        c_row: Likewise.
        columns: Of B and C.
        mode: ``ZERO`` or ``ADD``.
        copy: Address of ``ROWS * (depth + 16)`` floats to work in.
        edge: Address of ``DOTS * (depth + 16)`` floats to work in.
        last: Whether C is complete with this.
        y: The result, flat: where what is complete goes.
        place: Of the first element in it.
        image: Floats from row to row of it, which are channels.
        channel: The first one's number among scales and shifts.
        extras: Scale and shift per channel; the residual, like the result, or empty; the
            activation and its parameters; 64 ones and 64 zeros.
        soon: Address of as many rows of B that come next, which memory is told; 0 if there are
            none. Other threads may have made them, and no cache of this one has them then.
        soon_row: Bytes from row to row of them.
    """
    scale, shift, residual, activation, first, second, units = extras
    ones, zeros = units.ctypes.data, units.ctypes.data + 256
    low, high = np.float32(-np.inf), np.float32(np.inf)
    if last:
        low, high = bounds(activation, first, second)
    high_tile = split(rows, ROWS, 1)
    rest = columns % LANES
    dots = rest if rest <= DOTS else 0
    pitch = 4 * depth + 64
    pack_columns(b + 4 * (columns - dots), offsets, depth, dots, edge, pitch)
    told = 0 if soon else depth
    for row in range(0, rows, high_tile):
        count = min(high_tile, rows - row)
        left, apart, line = a + row * a_row, a_row, c + row * c_row
        ahead = left + count * a_row if row + count < rows else a + 4 * depth
        if a_row % 512 == 0 and columns > dots:
            # Rows so far apart would share few places in the cache, where they are to stay.
            for i in range(count):
                copy_row(left + i * a_row, copy + i * pitch, depth)
            left, apart = copy, pitch
        old, old_row = (line, c_row) if mode == ADD else (zeros, 0)
        target, target_row, added, added_row = line, c_row, zeros, 0
        factors, summands = ones, zeros
        if last:
            start = 4 * (place + row * image)
            target, target_row = y.ctypes.data + start, 4 * image
            if residual.size:
                added, added_row = residual.ctypes.data + start, 4 * image
            factors = scale.ctypes.data + 4 * (channel + row)
            summands = shift.ctypes.data + 4 * (channel + row)
        for column in range(0, columns - dots, COLUMNS):
            here, span = 4 * column, columns - dots - column
            before, other = old + (here if old_row else 0), added + (here if added_row else 0)
            told_next, told_row = ahead, a_row
            if column and told < depth:
                told_next, told_row = soon + told * soon_row, soon_row
                told += depth // TOLD
            written = span if last else COLUMNS
            if span <= LANES:
                multiply_taps_narrow(
                    count, left, apart, b + here, offsets, depth, before, old_row, target + here,
                    target_row, other, added_row, factors, summands, told_next, told_row, written,
                    low, high,
                )  # fmt: skip
            else:
                multiply_taps(
                    count, left, apart, b + here, offsets, depth, before, old_row, target + here,
                    target_row, other, added_row, factors, summands, told_next, told_row, written,
                    low, high,
                )  # fmt: skip
        if dots:
            here = 4 * (columns - dots)
            before, other = old + (here if old_row else 0), added + (here if added_row else 0)
            for i in range(0, count, DOT_ROWS):
                multiply_dots(
                    min(DOT_ROWS, count - i), dots, left + i * apart, apart, edge, pitch, depth,
                    before + i * old_row, old_row, target + here + i * target_row, target_row,
                    other + i * added_row, added_row, factors + 4 * i, summands + 4 * i, low, high,
                )  # fmt: skip
        if last and activation > RELU and activation != CLIP:
            for i in range(count):
                begin = place + (row + i) * image
                apply(y[begin : begin + columns], activation, first, second)


@parallel
def convolve_part(arguments: Any, task: Any, worker: Any) -> None:
    """Convolves some rows and lines; see ``tenonnx_cpu.conv.layout``."""
    x, w, y, extras, layout, offsets, panel, planes, memory = arguments
    groups, rows, channels, height, width = layout[1], layout[2], layout[3], layout[4], layout[5]
    out_height, out_width, taps, direct = layout[6], layout[7], layout[11], layout[12]
    block = layout[17]
    bands, lines = -(-rows // layout[14]), -(-out_height // layout[15])
    strips = -(-out_width // layout[16])
    image, part = task // (bands * lines * strips), task % (bands * lines * strips)
    line, part = part // (bands * strips), part % (bands * strips)
    left, band = part // bands * layout[16], part % bands
    top, first = line * layout[15], band * layout[14]
    count, bottom = min(layout[14], rows - first), min(out_height, top + layout[15])
    span = min(layout[16], out_width - left)
    columns = span * (bottom - top)
    c = memory.ctypes.data + 4 * layout[20] * worker
    c_row = 4 * layout[19]
    packed, copy, edge = c + layout[14] * c_row, c + 4 * layout[21], c + 4 * layout[22]
    depth, out_depth, taps_z = layout[23], layout[24], layout[25]
    image, slice_z = image // out_depth, image % out_depth
    row = image % groups * rows + first
    a_row = 4 * channels * taps
    a = w.ctypes.data + row * a_row
    source = x.ctypes.data + 4 * image * (channels // taps_z) * depth * height * width
    image_size = out_depth * out_height * out_width
    place = (image // groups * groups * rows + row) * image_size
    place += (slice_z * out_height + top) * out_width + left
    for channel in range(0, channels, block):
        some = min(block, channels - channel)
        a_block = a + 4 * channel * taps
        mode, last = ADD if channel else ZERO, channel + block >= channels
        b = source + 4 * (channel * height * width + left)
        whole = 0
        if direct:
            # The last panel may lie beyond the image's last element: it is copied.
            whole = columns // COLUMNS * COLUMNS
            if whole:
                multiply_strip(
                    count, a_block, a_row, b, offsets.ctypes.data, some, c, c_row, whole, mode,
                    copy, edge, last, y, place, image_size, row, extras,
                    0 if last else b + 4 * block * width, 4 * width,
                )  # fmt: skip
            if whole == columns:
                continue
            pack_panel(b + 4 * whole, 4 * width, some, columns - whole, packed)
        else:
            wanted = layout[13] // out_width - (layout[15] - (bottom - top))
            if taps_z * depth == 1:
                pack_planes(
                    b, some, top, bottom, layout[4:11], planes, out_width, layout[13], wanted,
                    np.float32(0), packed,
                )  # fmt: skip
            else:
                pack_slices(
                    source, channel, some, slice_z, top, bottom, layout, planes, wanted, packed
                )
        places = panel.ctypes.data if direct else offsets.ctypes.data
        multiply_strip(
            count, a_block, a_row, packed, places, some * taps, c + 4 * whole, c_row,
            columns - whole, mode, copy, edge, last, y, place + whole, image_size, row, extras,
            0, 0,
        )  # fmt: skip


@helper
def pack_slices(
    source: Any, first: Any, count: Any, slice_z: Any, top: Any, bottom: Any, layout: Any,
    planes: Any, lines: Any, target: Any,
) -> None:  # fmt: skip
    """Writes planes of images of a volume's channels, as ``pack_planes`` does of channels.

    Args:
        source: Address of the volume's first channel.
        first: The first of all the channels' images that a window sees, channel by channel.
        count: How many.
        slice_z: Which image of the result it is.
        top: The first row of windows.
        bottom: After the last row of windows.
        layout: As ``tenonnx_cpu.conv.layout.FIELDS`` says.
        planes: As ``pack_planes`` takes them, and the two below.
        lines: Likewise.
        target: Likewise.
    """
    depth, taps_z, out_width, size = layout[23], layout[25], layout[7], layout[13]
    area = 4 * layout[4] * layout[5]
    for index in range(count):
        channel, tap = (first + index) // taps_z, (first + index) % taps_z
        z = slice_z * layout[26] + tap * layout[27] - layout[28]
        place = target + 4 * index * planes.shape[0] * size
        if 0 <= z < depth:
            pack_planes(
                source + (channel * depth + z) * area, 1, top, bottom, layout[4:11], planes,
                out_width, size, lines, np.float32(0), place,
            )  # fmt: skip
        else:
            place_lines(place, 0, place, planes.shape[0] * size, 0, 0, 1, np.float32(0))


@kernel((
    In(f32, 1), In(f32, 1), Out(f32, 1), In(f32, 1), In(f32, 1), In(f32, 1), size, f32, f32,
    In(f32, 1),
    In(i64, 1), In(i64, 1), In(i64, 1), In(i64, 2), Out(f32, 1), size,
))  # fmt: skip
def conv_f32(  # type: ignore[no-untyped-def] # the signature has them
    x, w, y, scale, shift, residual, activation, low, high, units, layout, offsets, panel, planes,
    memory, threads,
):  # fmt: skip
    """Computes ``y = activate(conv(x, w) * scale + shift + residual)``.

    ``tenonnx_cpu.conv.layout`` says what ``layout`` and all after it are.
    """
    extras = (scale, shift, residual, activation, low, high, units)
    convolve_part((x, w, y, extras, layout, offsets, panel, planes, memory), layout[18], threads)
