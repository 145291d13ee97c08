"""Bytes of images copied: what windows see of some lines, with its channels last and padding."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.data_movement.kernels.transpose import transpose_lines
from tenonnx_cpu.jit.compiling import helper
from tenonnx_cpu.jit.vectors.memory import load_byte, store_byte
from tenonnx_cpu.jit.vectors.views import elements

# Channels of which squares are transposed in registers; with fewer, places are copied one by one.
MIN_SQUARE_CHANNELS = 4


@helper
def fill_bytes(target: Any, count: Any, value: Any) -> None:
    """Write the same byte again and again."""
    y = elements(target, count, np.uint8)
    for i in range(count):
        y[i] = value


@helper
def copy_bytes(source: Any, target: Any, count: Any, flip: Any) -> None:
    """Copy bytes, some of whose bits are inverted."""
    x, y = elements(source, count, np.uint8), elements(target, count, np.uint8)
    for i in range(count):
        y[i] = x[i] ^ flip


@helper
def pack_band(
    source: Any, top: Any, lines: Any, left: Any, columns: Any, sizes: Any, fill: Any, flip: Any,
    target: Any,
) -> None:  # fmt: skip
    """Write what some lines of windows see of some channels.

    Args:
        source: Address of the first channel in the image's first place.
        top: The first line of windows.
        lines: How many.
        left: The first column of windows.
        columns: How many.
        sizes: As ``tenonnx_cpu.int8.kernels.BYTE_CONV_FIELDS`` says.
        fill: What padding is.
        flip: Bits of the image that are inverted.
        target: Address of the lines, ``sizes.line`` bytes each.
    """
    own, first = sizes.channels, left * sizes.stride_x - sizes.left
    seen = (columns - 1) * sizes.stride_x + sizes.taps_x
    before = min(seen, max(0, -first))
    inside = max(0, min(seen, sizes.width - first) - before)
    begin = source + (first + before) * sizes.from_place
    row = top * sizes.stride_y - sizes.top
    for line in range((lines - 1) * sizes.stride_y + sizes.taps_y):
        start = target + line * sizes.line
        if not 0 <= row + line < sizes.height:
            fill_bytes(start, seen * own, fill)
            continue
        fill_bytes(start, before * own, fill)
        place = start + before * own
        here = begin + (row + line) * sizes.from_line
        copy_places(here, place, inside, sizes, flip)
        place += inside * own
        fill_bytes(place, (seen - before - inside) * own, fill)


@helper
def copy_places(source: Any, target: Any, places: Any, sizes: Any, flip: Any) -> None:
    """Copy some places of a line."""
    own = sizes.channels
    if sizes.from_place == own and sizes.from_channel == 1:
        copy_bytes(source, target, places * own, flip)
        return
    if own == 3 and sizes.from_place == 1:
        copy_colours(source, target, places, sizes.from_channel, flip)
        return
    if own >= MIN_SQUARE_CHANNELS and sizes.from_place == 1:
        transpose_lines(
            0, 1, source, sizes.from_channel, own, 0, own, target, own, 0, places, 0, places
        )
        if flip:
            copy_bytes(target, target, places * own, flip)
        return
    for channel in range(own):
        here, there = source + channel * sizes.from_channel, target + channel
        for place in range(places):
            value = load_byte(here + place * sizes.from_place) ^ flip
            store_byte(value, there + place * own)


@helper
def copy_colours(source: Any, target: Any, places: Any, apart: Any, flip: Any) -> None:
    """Copy some places of a line of three channels that are so far apart."""
    red = elements(source, places, np.uint8)
    green = elements(source + apart, places, np.uint8)
    blue = elements(source + 2 * apart, places, np.uint8)
    y = elements(target, 3 * places, np.uint8)
    for i in range(places):
        y[3 * i] = red[i] ^ flip
        y[3 * i + 1] = green[i] ^ flip
        y[3 * i + 2] = blue[i] ^ flip
