"""Convolution of bytes by int8 weights, with what turns the sums into bytes again."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.jit.compiling import In, Out, f32, helper, i8, i32, i64, kernel, size, u8
from tenonnx_cpu.jit.int8.conv_rows import gather_columns, interleave_fours, place_bytes
from tenonnx_cpu.jit.int8.conv_tile import (
    DOT_ROWS,
    DOTS,
    ROUNDED,
    SUMMED,
    multiply_byte_columns,
    multiply_bytes,
    multiply_bytes_narrow,
    scaled,
)
from tenonnx_cpu.jit.products.block import split
from tenonnx_cpu.jit.products.tile import COLUMNS, LANES, ROWS
from tenonnx_cpu.jit.threads.pool import parallel
from tenonnx_cpu.jit.vectors.memory import store_float, store_word

U8 = np.uint8


@helper
def pack_byte_planes(
    source: Any, channels: Any, top: Any, lines: Any, left: Any, span: Any, layout: Any,
    planes: Any, fill: Any, flip: Any, target: Any, fresh: Any,
) -> None:  # fmt: skip
    """Writes planes of some channels, as far as windows from row to row see them.

    Lines above and below the image are there already unless the memory is ``fresh``.
    """
    height, width, stride_y, stride_x = layout[4], layout[5], layout[8], layout[9]
    for channel in range(channels):
        own = source + channel * height * width
        for plane in range(planes.shape[0]):
            place = target + (channel * planes.shape[0] + plane) * layout[12]
            column = planes[plane, 1] + left * stride_x
            first = max(0, -(column // stride_x))
            stop = max(first, min(span, (width - 1 - column) // stride_x + 1))
            row = top * stride_y + planes[plane, 0] - layout[10]
            above = min(lines, max(0, -(row // stride_y)))
            inside = min(lines, max(above, (height - 1 - row) // stride_y + 1))
            here = own + (row + above * stride_y) * width + column + first * stride_x
            if above and fresh:
                place_bytes(own, 0, place, span, 0, 0, above, 1, fill, flip)
            place += span * above
            place_bytes(
                here, stride_y * width, place, span, first, stop, inside - above, stride_x,
                fill, flip,
            )  # fmt: skip
            place += span * (inside - above)
            if inside < lines and fresh:
                place_bytes(own, 0, place, span, 0, 0, lines - inside, 1, fill, flip)


@parallel
def pack_common(arguments: Any, task: Any, worker: Any) -> None:
    """Writes planes of some channels for all tasks; see ``tenonnx_cpu.int8.conv_layout``."""
    x, layout, planes, fill, flip, common, several = arguments
    first = task * several
    count = min(several, layout[0] * layout[1] * layout[3] - first)
    pack_byte_planes(
        x.ctypes.data + first * layout[4] * layout[5], count, 0, layout[6] + layout[26], 0,
        layout[15], layout, planes, fill, flip, common + first * planes.shape[0] * layout[12], True,
    )  # fmt: skip


@parallel
def convolve_bytes(arguments: Any, task: Any, worker: Any) -> None:
    """Convolves some rows and lines; see ``tenonnx_cpu.int8.conv_layout``."""
    x, w, y, extra, factor, summand, form, low, high, zero, fill, flip = arguments[:12]
    layout, offsets, planes, memory, common = arguments[12:]
    groups, rows, channels = layout[1], layout[2], layout[3]
    out_height, out_width, taps = layout[6], layout[7], layout[11]
    bands, lines = -(-rows // layout[13]), -(-out_height // layout[14])
    strips = -(-out_width // layout[15])
    image, part = task // (bands * lines * strips), task % (bands * lines * strips)
    line, part = part // (bands * strips), part % (bands * strips)
    left, band = part // bands * layout[15], part % bands
    top, first = line * layout[14], band * layout[13]
    count, bottom = min(layout[13], rows - first), min(out_height, top + layout[14])
    span = min(layout[15], out_width - left)
    columns = span * (bottom - top)
    c = memory.ctypes.data + layout[19] * worker
    c_row = 4 * layout[18]
    packed, panel, copy = c + layout[20], c + layout[21], c + layout[22]
    row = image % groups * rows + first
    depth = channels * taps
    size_of_image = out_height * out_width
    place = ((image // groups * groups * rows + row) * out_height + top) * out_width + left
    width = 1 if form == ROUNDED else 4
    done = 0 if form == SUMMED else form
    # Where a plane would be the image itself, panels come from there, but for the last channels:
    # whole vectors are read, which may end beyond the image.
    table, in_place = offsets.ctypes.data, layout[24]
    size_of_channel = layout[4] * layout[5]
    for channel in range(0, channels, layout[16]):
        some = min(layout[16], channels - channel)
        last = channel + some >= channels
        start = (image * channels + channel) * size_of_channel
        source = x.ctypes.data + start
        fours, ready = -(-some * taps // 4), 0
        if in_place:
            beyond = left + -(-columns // COLUMNS) * COLUMNS
            ready = min(fours, max(0, (x.size - start - beyond) // size_of_channel + 1) // 4)
        if layout[25]:
            packed = common + (image * channels + channel) * planes.shape[0] * layout[12]
            packed += top * span
        else:
            pack_byte_planes(
                source + 4 * ready * size_of_channel, some - 4 * ready, top,
                bottom - top + layout[26], left, span, layout, planes, fill, flip,
                packed + 4 * ready * layout[12], channel == 0,
            )  # fmt: skip
        a, a_row = w.ctypes.data + row * depth + channel * taps, depth
        if depth % 4:
            a_row = 4 * fours
            place_bytes(a, depth, copy, a_row, 0, some * taps, count, 1, U8(0), U8(0))
            a = copy
        rest = columns % LANES
        dots = rest if rest <= DOTS else 0
        high_tile = split(count, ROWS, 1)
        for column in range(0, columns - dots, COLUMNS):
            if ready:
                own = table + 4 * offsets.size
                interleave_fours(source + left + column, own, ready, panel, flip)
            interleave_fours(
                packed + column, table + 32 * ready, fours - ready, panel + 4 * COLUMNS * ready,
                U8(0),
            )  # fmt: skip
            whole = last and column + COLUMNS <= columns
            narrow = columns - dots - column <= LANES
            for i in range(0, count, high_tile):
                own = row + i
                ahead = a + (i + high_tile) * a_row
                if i + high_tile >= count:
                    ahead = a + some * taps
                old = c + i * c_row + 4 * column
                target, target_row = old, c_row
                if whole:
                    target = y.ctypes.data + width * (place + i * size_of_image + column)
                    target_row = width * size_of_image
                if narrow:
                    multiply_bytes_narrow(
                        min(high_tile, count - i), a + i * a_row, a_row, panel, fours,
                        old if channel else 0, c_row, target, target_row, done if whole else 0,
                        extra.ctypes.data + 4 * own, factor.ctypes.data + 4 * own,
                        summand.ctypes.data + 4 * own, ahead, low, high, zero,
                    )  # fmt: skip
                    continue
                multiply_bytes(
                    min(high_tile, count - i), a + i * a_row, a_row, panel, fours,
                    old if channel else 0, c_row, target, target_row, done if whole else 0,
                    extra.ctypes.data + 4 * own, factor.ctypes.data + 4 * own,
                    summand.ctypes.data + 4 * own, ahead, low, high, zero,
                )  # fmt: skip
        if dots:
            pitch = -(-some * taps // 64) * 64
            first_dot = columns - dots
            if in_place:
                gather_columns(
                    source + left + first_dot, table + 4 * offsets.size, some * taps, dots,
                    c + layout[23], pitch, flip,
                )  # fmt: skip
            else:
                gather_columns(
                    packed + first_dot, table, some * taps, dots, c + layout[23], pitch, U8(0)
                )
            for i in range(0, count, DOT_ROWS):
                multiply_byte_columns(
                    min(DOT_ROWS, count - i), dots, a + i * a_row, a_row, c + layout[23], pitch,
                    some * taps, c + i * c_row + 4 * (columns - dots), c_row,
                    extra.ctypes.data + 4 * (row + i), np.intp(channel == 0),
                )  # fmt: skip
    whole = columns // COLUMNS * COLUMNS
    for i in range(count):
        sums = memory.view(np.int32)[(c - memory.ctypes.data) // 4 + i * layout[18] :][:columns]
        start = place + i * size_of_image
        result = y[width * (start + whole) : width * (start + columns)]
        finish_row(sums[whole:], result, factor[row + i], summand[row + i], low, high, zero, form)


@helper
def finish_row(
    sums: Any, result: Any, factor: Any, summand: Any, low: Any, high: Any, zero: Any, form: Any
) -> None:
    """Turns sums into what is wanted; see ``multiply_bytes``."""
    if form == ROUNDED:
        for i in range(sums.size):
            x = np.rint(scaled(sums[i], factor, summand))
            x = low if x < low else x
            x = high if x > high else x
            result[i] = U8(np.int32(x) + zero)
    elif form == SUMMED:
        for i in range(sums.size):
            store_word(sums[i], result.ctypes.data + 4 * i)
    else:
        for i in range(sums.size):
            x = scaled(sums[i], factor, summand)
            x = low if x < low else x
            x = high if x > high else x
            store_float(x, result.ctypes.data + 4 * i)


@kernel((
    In(u8, 1), In(i8, 1), Out(u8, 1), In(i32, 1), In(f32, 1), In(f32, 1), size, f32, f32, i32,
    u8, u8,
    In(i64, 1), In(i64, 1), In(i64, 2), Out(f32, 1), size,
))  # fmt: skip
def conv_int8(  # type: ignore[no-untyped-def] # the signature has them
    x, w, y, extra, factor, summand, form, low, high, zero, fill, flip, layout, offsets,
    planes, memory, threads,
):  # fmt: skip
    """Convolves bytes; see ``multiply_bytes`` for what becomes of the sums.

    Args:
        x: The image, as unsigned bytes once ``flip`` is applied.
        w: The weights.
        y: The result's bytes.
        extra: An int32 per row of weights.
        factor: A float32 per row of weights.
        summand: A float32 per row of weights.
        form: ``SUMMED``, ``REAL`` or ``ROUNDED``: what the result is.
        low: The least result but for the zero point.
        high: The greatest.
        zero: The result's zero point.
        fill: What padding is, after ``flip``.
        flip: Bits of the image that are inverted: the highest turns signed bytes into unsigned.
        layout: See ``tenonnx_cpu.int8.conv_layout``; so are ``offsets`` and ``planes``.
        offsets: Likewise.
        planes: Likewise.
        memory: To work in.
        threads: How many threads to use.
    """
    common = memory.ctypes.data + layout[19] * threads
    if layout[25]:
        every = layout[0] * layout[1] * layout[3]
        several = max(1, every // (4 * threads))
        pack_common((x, layout, planes, fill, flip, common, several), -(-every // several), threads)
    arguments = (
        x, w, y, extra, factor, summand, form, low, high, zero, fill, flip, layout, offsets,
        planes, memory, common,
    )  # fmt: skip
    convolve_bytes(arguments, layout[17], threads)
