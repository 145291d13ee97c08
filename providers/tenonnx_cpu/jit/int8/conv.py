"""Convolution of bytes by int8 weights, with what turns the sums into bytes again."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.int8.conv_layout import FIELDS
from tenonnx_cpu.jit.compiling import In, Out, f32, helper, i8, i32, i64, kernel, size, u8
from tenonnx_cpu.jit.conv.strip import Result, Rows
from tenonnx_cpu.jit.conv.tasks import part_of
from tenonnx_cpu.jit.int8.conv_rows import place_bytes
from tenonnx_cpu.jit.int8.conv_tile import Finish
from tenonnx_cpu.jit.int8.strip import Seen, finish_rows, multiply_byte_strip
from tenonnx_cpu.jit.products.tile import COLUMNS
from tenonnx_cpu.jit.threads.pool import parallel
from tenonnx_cpu.jit.vectors.named import named

U8 = np.uint8

byte_conv_sizes = named("ByteConvSizes", FIELDS)


@helper
def pack_byte_planes(
    source: Any, channels: Any, top: Any, lines: Any, left: Any, sizes: Any, planes: Any,
    fill: Any, flip: Any, target: Any, fresh: Any,
) -> None:  # fmt: skip
    """Writes planes of some channels, as far as windows see them; see ``pack_planes``.

    Lines above and below the image are there already unless the memory is ``fresh``.
    """
    height, width, stride_y, stride_x = sizes.height, sizes.width, sizes.stride_y, sizes.stride_x
    for channel in range(channels):
        own = source + channel * height * width
        for plane in range(planes.shape[0]):
            place = target + (channel * planes.shape[0] + plane) * sizes.plane
            column = planes[plane, 1] + left * stride_x
            first = max(0, -(column // stride_x))
            stop = max(first, min(sizes.line, (width - 1 - column) // stride_x + 1))
            row = top * stride_y + planes[plane, 0] - sizes.top
            above = min(lines, max(0, -(row // stride_y)))
            inside = min(lines, max(above, (height - 1 - row) // stride_y + 1))
            here = own + (row + above * stride_y) * width + column + first * stride_x
            if above and fresh:
                place_bytes(own, 0, place, sizes.line, 0, 0, above, 1, fill, flip)
            place += sizes.line * above
            place_bytes(
                here, stride_y * width, place, sizes.line, first, stop, inside - above, stride_x,
                fill, flip,
            )  # fmt: skip
            place += sizes.line * (inside - above)
            if inside < lines and fresh:
                place_bytes(own, 0, place, sizes.line, 0, 0, lines - inside, 1, fill, flip)


@parallel
def pack_common(arguments: Any, task: Any, worker: Any) -> None:
    """Writes planes of some channels for all tasks; see ``tenonnx_cpu.int8.conv_layout``."""
    x, sizes, planes, fill, flip, common, several = arguments
    first = task * several
    count = min(several, sizes.batch * sizes.groups * sizes.channels - first)
    source = x.ctypes.data + first * sizes.height * sizes.width
    target = common + first * planes.shape[0] * sizes.plane
    lines = sizes.out_height + sizes.reach
    pack_byte_planes(source, count, 0, lines, 0, sizes, planes, fill, flip, target, True)


@parallel
def convolve_bytes(arguments: Any, task: Any, worker: Any) -> None:
    """Convolves some rows and lines; see ``tenonnx_cpu.int8.conv_layout``."""
    x, w, y, finish, fill, flip, sizes, offsets, planes, memory, common = arguments
    part = part_of(task, sizes)
    row, area = part.image % sizes.groups * sizes.rows + part.first, sizes.height * sizes.width
    apart = sizes.out_height * sizes.out_width
    place = (part.image // sizes.groups * sizes.groups * sizes.rows + row) * apart
    place += part.top * sizes.out_width + part.left
    work, depth = memory.ctypes.data + sizes.work * worker, sizes.channels * sizes.taps
    c, result = Rows(work, 4 * sizes.pitch), Result(y, place, apart, row, finish)
    table, own = offsets.ctypes.data, offsets.ctypes.data + 4 * offsets.size
    for channel in range(0, sizes.channels, sizes.block):
        some = min(sizes.block, sizes.channels - channel)
        image = part.image * sizes.channels + channel
        source, packed = x.ctypes.data + image * area, work + sizes.packed
        ready = fours_in_place(x.size - image * area, some, part, sizes)
        if sizes.common:
            packed = common + image * planes.shape[0] * sizes.plane + part.top * sizes.line
        else:
            pack_byte_planes(
                source + 4 * ready * area, some - 4 * ready, part.top, part.lines + sizes.reach,
                part.left, sizes, planes, fill, flip, packed + 4 * ready * sizes.plane,
                channel == 0,
            )  # fmt: skip
        length = some * sizes.taps
        a = Rows(w.ctypes.data + row * depth + channel * sizes.taps, depth)
        if depth % 4:
            copy = Rows(work + sizes.copy, 4 * -(-length // 4))
            place_bytes(
                a.start, depth, copy.start, copy.apart, 0, length, part.rows, 1, U8(0), U8(0)
            )
            a = copy
        multiply_byte_strip(
            part.rows, length, part.columns, a,
            Seen(packed, table, source + part.left, own, ready, flip), c, channel == 0,
            channel + some >= sizes.channels, result, work + sizes.panel, work + sizes.edge,
        )  # fmt: skip
    finish_rows(part.rows, part.columns, c, result)


@helper
def fours_in_place(size: Any, channels: Any, part: Any, sizes: Any) -> Any:
    """Returns how many fours of channels are read where they are, of so many bytes from there on.

    Where a plane would be the image itself, panels come from there, but for the last channels:
    whole vectors are read, which may end beyond the image.
    """
    if not sizes.in_place:
        return 0
    beyond = part.left + -(-part.columns // COLUMNS) * COLUMNS
    safe = max(0, (size - beyond) // (sizes.height * sizes.width) + 1)
    return min(-(-channels // 4), safe // 4)


@kernel((
    In(u8, 1), In(i8, 1), Out(u8, 1), In(i32, 1), In(f32, 1), In(f32, 1), size, f32, f32, i32,
    u8, u8,
    In(i64, 1), In(i64, 1), In(i64, 2), Out(f32, 1), size,
))  # fmt: skip
def conv_int8(  # type: ignore[no-untyped-def] # the signature has them
    x, w, y, extra, factor, summand, form, low, high, zero, fill, flip, numbers, offsets,
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
        numbers: See ``tenonnx_cpu.int8.conv_layout``; so are ``offsets`` and ``planes``.
        offsets: Likewise.
        planes: Likewise.
        memory: To work in.
        threads: How many threads to use.
    """
    sizes = byte_conv_sizes(numbers)
    finish = Finish(
        np.intp(extra.ctypes.data), np.intp(factor.ctypes.data), np.intp(summand.ctypes.data),
        form, low, high, zero,
    )  # fmt: skip
    common = memory.ctypes.data + sizes.work * threads
    if sizes.common:
        every = sizes.batch * sizes.groups * sizes.channels
        several = max(1, every // (4 * threads))
        pack_common((x, sizes, planes, fill, flip, common, several), -(-every // several), threads)
    arguments = (
        x, w, np.intp(y.ctypes.data), finish, fill, flip, sizes, offsets, planes, memory, common,
    )  # fmt: skip
    convolve_bytes(arguments, sizes.tasks, threads)
