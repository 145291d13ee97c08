"""Convolution of 3 x 3 by tiles: image into tiles, a product for each of their places, and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.activation import CLIP, RELU
from tenonnx_cpu.conv.winograd import HEAD, PANEL
from tenonnx_cpu.jit.compiling import In, Out, f32, helper, i64, kernel, size
from tenonnx_cpu.jit.conv.channel_lanes import finish_lines
from tenonnx_cpu.jit.conv.finish import apply, bounds
from tenonnx_cpu.jit.conv.winograd_steps import UNIT, transform_image, transform_products
from tenonnx_cpu.jit.products.block import split
from tenonnx_cpu.jit.products.tile import ADD, COLUMNS, LANES, ROWS, WIDE, ZERO, multiply_tile
from tenonnx_cpu.jit.threads.pool import parallel
from tenonnx_cpu.jit.vectors.memory import load_float, store_float


@parallel
def convolve_tiles(arguments: Any, task: Any, worker: Any) -> None:
    """Makes a panel of channels of a block of tiles; see ``tenonnx_cpu.conv.winograd``."""
    x, u, y, extras, layout, memory = arguments
    block, panel = task // layout[18], task % layout[18]
    across = -(-layout[11] // layout[13])
    image, part = block // (layout[14] * across), block % (layout[14] * across)
    row, column = part // across * layout[12], part % across * layout[13]
    rows, columns = min(layout[12], layout[10] - row), min(layout[13], layout[11] - column)
    work = memory.ctypes.data + 4 * layout[23] * worker
    tiles, products, made = work + 4 * HEAD, work + 4 * layout[19], work + 4 * layout[21]
    if load_float(work + 4) != np.float32(block + 1):
        transform_block(x, layout, image, row, column, rows, columns, tiles)
        store_float(np.float32(block + 1), work + 4)
    places = (layout[9] + 2) ** 2
    right = u.ctypes.data + 4 * PANEL * layout[1] * places * panel
    multiply_places(rows * columns, places, layout, tiles, right, products)
    for line in range(rows):
        for channel in range(0, min(PANEL, layout[2] - panel * PANEL), LANES):
            transform_products(
                layout[9], products + 4 * (line * columns * PANEL + channel), 4 * layout[20],
                columns, 4 * PANEL, made, 4 * layout[22], memory.ctypes.data,
            )  # fmt: skip
            finish_tiles(
                y, extras, layout, image, panel * PANEL + channel, (row + line) * layout[9],
                column * layout[9], columns * layout[9], made,
            )  # fmt: skip


@helper
def transform_block(
    x: Any, layout: Any, image: Any, row: Any, column: Any, rows: Any, columns: Any, tiles: Any
) -> None:
    """Transforms what a block of tiles sees of all channels."""
    channels, height, width = layout[1], layout[3], layout[4]
    for channel in range(channels):
        source = x.ctypes.data + 4 * (image * channels + channel) * height * width
        target = tiles + 4 * channel * layout[16]
        # What is written beyond a row of tiles is overwritten by the next.
        for line in range(rows):
            for unit in range(0, columns, UNIT):
                transform_image(
                    layout[9], source, height, width,
                    (row + line) * layout[9] - layout[7], (column + unit) * layout[9] - layout[8],
                    target + 4 * (line * columns + unit), 4 * layout[17],
                )  # fmt: skip


@helper
def multiply_places(
    tiles: Any, places: Any, layout: Any, left: Any, right: Any, product: Any
) -> None:
    """Multiplies what a block of tiles has in each place by a panel of weights.

    Args:
        tiles: How many.
        places: Of a tile.
        layout: See ``tenonnx_cpu.conv.winograd``.
        left: Address of the tiles.
        right: Address of the panel.
        product: Address of the products.
    """
    channels, depth = layout[1], layout[24]
    step = split(tiles, ROWS, 1)
    for place in range(places):
        a, b = left + 4 * place * layout[17], right + 4 * PANEL * channels * place
        c = product + 4 * place * layout[20]
        ahead = b + 4 * PANEL * channels if place + 1 < places else b
        for tile in range(0, tiles, step):
            for channel in range(0, channels, depth):
                for column in range(0, PANEL, COLUMNS):
                    multiply_tile(
                        min(step, tiles - tile) + WIDE, a + 4 * (tile + channel * layout[16]), 4,
                        4 * layout[16], b + 4 * (column + channel * PANEL), 4 * PANEL,
                        min(depth, channels - channel), c + 4 * (tile * PANEL + column),
                        4 * PANEL, ADD if channel else ZERO,
                        ahead + 64 * (tile // step % 2) + 4 * PANEL * channel, 4 * PANEL, 0,
                    )  # fmt: skip


@helper
def finish_tiles(
    y: Any, extras: Any, layout: Any, image: Any, channel: Any, top: Any, left: Any, width: Any,
    made: Any,
) -> None:  # fmt: skip
    """Writes results of a row of tiles, of as many channels as a vector has lanes."""
    scale, shift, residual, activation, first, second = extras
    low, high = bounds(activation, first, second)
    lines, columns = min(layout[9], layout[5] - top), min(width, layout[6] - left)
    channels = min(LANES, layout[2] - channel)
    area = layout[5] * layout[6]
    start = (image * layout[2] + channel) * area + top * layout[6] + left
    finish_lines(
        made, 4 * layout[22], lines, columns, channels,
        y.ctypes.data + 4 * start, 4 * layout[6], 4 * area,
        residual.ctypes.data + 4 * start if residual.size else 0,
        scale.ctypes.data + 4 * channel, shift.ctypes.data + 4 * channel, low, high,
    )  # fmt: skip
    if activation > RELU and activation != CLIP:
        for i in range(channels):
            for line in range(lines):
                place = start + i * area + line * layout[6]
                apply(y[place : place + columns], activation, first, second)


@kernel((
    In(f32, 1), In(f32, 1), Out(f32, 1), In(f32, 1), In(f32, 1), In(f32, 1), size, f32, f32,
    In(f32, 1),
    In(i64, 1), In(i64, 1), In(i64, 1), In(i64, 2), Out(f32, 1), size,
))  # fmt: skip
def conv_winograd(  # type: ignore[no-untyped-def] # the signature has them
    x, u, y, scale, shift, residual, activation, low, high, units, layout, offsets, panel, planes,
    memory, threads,
):  # fmt: skip
    """Like ``conv_f32``, of weights that ``tenonnx_cpu.conv.winograd.transformed`` has made.

    ``memory[0]`` is NaN after it if some result is NaN or infinite, which then others of its tile
    may be, too; else it is 0.
    """
    extras = (scale, shift, residual, activation, low, high)
    for worker in range(threads):
        memory[worker * layout[23]] = memory[worker * layout[23] + 1] = np.float32(0)
    convolve_tiles((x, u, y, extras, layout, memory), layout[15] * layout[18], threads)
