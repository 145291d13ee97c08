"""Planes of an image, laid out so that every tap reads the same elements at another offset."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.conv.kernels import VECTOR
from tenonnx_cpu.conv.kernels.rows import place_halved_lines, place_lines
from tenonnx_cpu.jit.compiling import helper
from tenonnx_cpu.jit.vectors.memory import load_float, load_int, store_float


@helper
def pack_planes(
    source: Any, channels: Any, top: Any, lines: Any, left: Any, sizes: Any, planes: Any,
    fill: Any, target: Any,
) -> None:  # fmt: skip
    """Write planes of some channels, as far as windows see them.

    Args:
        source: Address of the first channel's image.
        channels: How many.
        top: The first row of windows.
        lines: How many rows of a plane to write.
        left: The first column of windows.
        sizes: Of the image and of planes, as ``tenonnx_cpu.conv.layout`` says.
        planes: The row, and the column of the image, that the first window sees in each plane.
        fill: What padding is.
        target: Address of the planes. Up to a vector beyond them is written, too.
    """
    height, width, stride_y, stride_x = sizes.height, sizes.width, sizes.stride_y, sizes.stride_x
    for channel in range(channels):
        own = source + 4 * channel * height * width
        for plane in range(planes.shape[0]):
            place = target + 4 * (channel * planes.shape[0] + plane) * sizes.plane
            column = planes[plane, 1] + left * stride_x
            first = max(0, -(column // stride_x))
            stop = max(first, min(sizes.line, (width - 1 - column) // stride_x + 1))
            # Lines above and below the image are padding alone.
            row = top * stride_y + planes[plane, 0] - sizes.top
            above = min(lines, max(0, -(row // stride_y)))
            inside = min(lines, max(above, (height - 1 - row) // stride_y + 1))
            here = own + 4 * ((row + above * stride_y) * width + column + first * stride_x)
            apart = 4 * stride_y * width
            if above:
                place_lines(own, 0, place, sizes.line, 0, 0, above, fill)
            place += 4 * sizes.line * above
            place_strided(
                here, apart, place, sizes.line, first, stop, inside - above, stride_x, fill
            )
            place += 4 * sizes.line * (inside - above)
            if inside < lines:
                place_lines(own, 0, place, sizes.line, 0, 0, lines - inside, fill)


@helper
def place_strided(
    source: Any, source_line: Any, target: Any, count: Any, first: Any, stop: Any, lines: Any,
    stride: Any, fill: Any,
) -> None:  # fmt: skip
    """Like ``place_lines``, with this stride between the source's floats."""
    if stride == 1:
        place_lines(source, source_line, target, count, first, stop, lines, fill)
    elif stride == 2:
        place_halved_lines(source, source_line, target, count, first, stop, lines, fill)
    else:
        for line in range(lines):
            for i in range(count):
                place = source + line * source_line + 4 * stride * (i - first)
                value = load_float(place) if first <= i < stop else fill
                store_float(value, target + 4 * (line * count + i))


@helper
def pack_panel(source: Any, stride: Any, depth: Any, columns: Any, target: Any) -> None:
    """Copy a few columns into a panel of their own, with zeros beyond them."""
    place_lines(source, stride, target, VECTOR, 0, columns, depth, np.float32(0))


@helper
def pack_columns(
    source: Any, offsets: Any, depth: Any, columns: Any, target: Any, pitch: Any
) -> None:
    """Copy a few columns so that each is adjacent elements, ``pitch`` bytes after another."""
    for row in range(depth):
        place = source + load_int(offsets + 8 * row)
        for column in range(columns):
            store_float(load_float(place + 4 * column), target + column * pitch + 4 * row)
