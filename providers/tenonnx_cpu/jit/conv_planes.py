"""What windows see of an image, laid out so that every tap sees the same, some elements on."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.jit.compiling import helper
from tenonnx_cpu.jit.conv_rows import load_int, place_every_second, place_row
from tenonnx_cpu.jit.memory import load_float, store_float
from tenonnx_cpu.jit.tile import COLUMNS


@helper
def pack_planes(
    source: Any, channels: Any, top: Any, bottom: Any, image: Any, planes: Any, pitch: Any,
    size: Any, lines: Any, fill: Any, target: Any,
) -> None:  # fmt: skip
    """Writes planes of some channels, as far as windows from row to row see them.

    Args:
        source: Address of the first channel's image.
        channels: How many.
        top: The first row of windows.
        bottom: After the last row of windows.
        image: Its height and width, those of the result, both strides, the padding above.
        planes: The row, and the column of the image, that the first window sees in each plane.
        pitch: Floats of a row of a plane.
        size: Floats from plane to plane.
        lines: How many rows of a plane to write.
        fill: What padding is.
        target: Address of the planes. Up to a vector beyond them is written, too.
    """
    height, width, stride_y, stride_x = image[0], image[1], image[4], image[5]
    for channel in range(channels):
        own = source + 4 * channel * height * width
        for plane in range(planes.shape[0]):
            place = target + 4 * (channel * planes.shape[0] + plane) * size
            column = planes[plane, 1]
            first = max(0, -(column // stride_x))
            stop = max(first, min(pitch, (width - 1 - column) // stride_x + 1))
            for line in range(lines):
                row = (top + line) * stride_y + planes[plane, 0] - image[6]
                here = own + 4 * (row * width + column + first * stride_x)
                end = stop if 0 <= row < height else first
                place_line(here, place + 4 * line * pitch, pitch, first, end, stride_x, fill)


@helper
def place_line(
    source: Any, target: Any, count: Any, first: Any, stop: Any, stride: Any, fill: Any
) -> None:
    """Writes a row of a plane: padding, and from ``first`` to ``stop`` what the source has."""
    if stride == 1:
        place_row(source, target, count, first, stop, fill)
    elif stride == 2:
        place_every_second(source, target, count, first, stop, fill)
    else:
        for i in range(count):
            inside = first <= i < stop
            value = load_float(source + 4 * stride * (i - first)) if inside else fill
            store_float(value, target + 4 * i)


@helper
def pack_panel(source: Any, stride: Any, depth: Any, columns: Any, target: Any) -> None:
    """Copies a few columns into a panel of their own, with zeros beyond them."""
    for row in range(depth):
        place_row(source + row * stride, target + 4 * row * COLUMNS, COLUMNS, 0, columns, np.float32(0))


@helper
def pack_columns(
    source: Any, offsets: Any, depth: Any, columns: Any, target: Any, pitch: Any
) -> None:
    """Copies a few columns so that each is adjacent elements, ``pitch`` bytes after another."""
    for row in range(depth):
        place = source + load_int(offsets + 8 * row)
        for column in range(columns):
            store_float(load_float(place + 4 * column), target + column * pitch + 4 * row)
