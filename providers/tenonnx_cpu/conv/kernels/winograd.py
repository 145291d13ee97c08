"""Convolution of 3 x 3 by tiles: image into tiles, a product for each of their places, and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.conv.kernels import WINOGRAD_FIELDS
from tenonnx_cpu.conv.kernels.channel_lanes import finish_lines
from tenonnx_cpu.conv.kernels.finish import activate_lines, finish_of
from tenonnx_cpu.conv.kernels.signature import CONVOLUTION, WINDOWS
from tenonnx_cpu.conv.kernels.winograd_matrices import HEAD_FLOATS, WINOGRAD_CHANNELS
from tenonnx_cpu.conv.kernels.winograd_steps import UNIT, transform_image, transform_products
from tenonnx_cpu.jit.compiling import helper, kernel
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors.lanes import LANES
from tenonnx_cpu.jit.vectors.memory import load_float, store_float
from tenonnx_cpu.jit.vectors.named import named
from tenonnx_cpu.matmul.kernels.block import split
from tenonnx_cpu.matmul.kernels.tile import ADD, COLUMNS, ROWS, WIDE, ZERO, multiply_tile

winograd_sizes = named("WinogradSizes", WINOGRAD_FIELDS)


@parallel
def convolve_tiles(arguments: Any, task: Any, worker: Any) -> None:
    """Make a panel of channels of a block of tiles; see ``tenonnx_cpu.conv.winograd``."""
    x, u, y, finish, sizes, memory = arguments
    block, panel = task // sizes.panels, task % sizes.panels
    across = -(-sizes.tiles_x // sizes.block_x)
    image, part = block // (sizes.blocks_y * across), block % (sizes.blocks_y * across)
    row, column = part // across * sizes.block_y, part % across * sizes.block_x
    rows, columns = (
        min(sizes.block_y, sizes.tiles_y - row),
        min(sizes.block_x, sizes.tiles_x - column),
    )
    work = memory.ctypes.data + 4 * sizes.work * worker
    tiles, products, made = (
        work + 4 * HEAD_FLOATS,
        work + 4 * sizes.products,
        work + 4 * sizes.lines,
    )
    if load_float(work + 4) != np.float32(block + 1):
        transform_block(x, sizes, image, row, column, rows, columns, tiles)
        store_float(np.float32(block + 1), work + 4)
    places = (sizes.size + 2) ** 2
    right = u.ctypes.data + 4 * WINOGRAD_CHANNELS * sizes.channels * places * panel
    multiply_places(rows * columns, places, sizes, tiles, right, products)
    for line in range(rows):
        for channel in range(
            0, min(WINOGRAD_CHANNELS, sizes.rows - panel * WINOGRAD_CHANNELS), LANES
        ):
            transform_products(
                sizes.size, products + 4 * (line * columns * WINOGRAD_CHANNELS + channel),
                4 * sizes.product, columns, 4 * WINOGRAD_CHANNELS, made, 4 * sizes.line,
                memory.ctypes.data,
            )  # fmt: skip
            finish_tiles(
                y, finish, sizes, image, panel * WINOGRAD_CHANNELS + channel,
                (row + line) * sizes.size, column * sizes.size, columns * sizes.size, made,
            )  # fmt: skip


@helper
def transform_block(
    x: Any, sizes: Any, image: Any, row: Any, column: Any, rows: Any, columns: Any, tiles: Any
) -> None:
    """Transform what a block of tiles sees of all channels."""
    area, left = sizes.height * sizes.width, column * sizes.size - sizes.left
    for channel in range(sizes.channels):
        source = x.ctypes.data + 4 * (image * sizes.channels + channel) * area
        target = tiles + 4 * channel * sizes.pitch
        # What is written beyond a row of tiles is overwritten by the next.
        for line in range(rows):
            for unit in range(0, columns, UNIT):
                transform_image(
                    sizes.size, source, sizes.height, sizes.width,
                    (row + line) * sizes.size - sizes.top, left + unit * sizes.size,
                    target + 4 * (line * columns + unit), 4 * sizes.apart,
                )  # fmt: skip


@helper
def multiply_places(
    tiles: Any, places: Any, sizes: Any, left: Any, right: Any, product: Any
) -> None:
    """Multiply what a block of tiles has in each place by a panel of weights.

    Args:
        tiles: How many.
        places: Of a tile.
        sizes: See ``tenonnx_cpu.conv.winograd``.
        left: Address of the tiles.
        right: Address of the panel.
        product: Address of the products.
    """
    channels, depth = sizes.channels, sizes.depth
    step = split(tiles, ROWS, 1)
    for place in range(places):
        a, b = left + 4 * place * sizes.apart, right + 4 * WINOGRAD_CHANNELS * channels * place
        c = product + 4 * place * sizes.product
        ahead = b + 4 * WINOGRAD_CHANNELS * channels if place + 1 < places else b
        for tile in range(0, tiles, step):
            for channel in range(0, channels, depth):
                for column in range(0, WINOGRAD_CHANNELS, COLUMNS):
                    multiply_tile(
                        min(step, tiles - tile) + WIDE, a + 4 * (tile + channel * sizes.pitch), 4,
                        4 * sizes.pitch, b + 4 * (column + channel * WINOGRAD_CHANNELS),
                        4 * WINOGRAD_CHANNELS, min(depth, channels - channel),
                        c + 4 * (tile * WINOGRAD_CHANNELS + column), 4 * WINOGRAD_CHANNELS,
                        ADD if channel else ZERO,
                        ahead + 64 * (tile // step % 2) + 4 * WINOGRAD_CHANNELS * channel,
                        4 * WINOGRAD_CHANNELS, 0,
                    )  # fmt: skip


@helper
def finish_tiles(
    y: Any, finish: Any, sizes: Any, image: Any, channel: Any, top: Any, left: Any, width: Any,
    made: Any,
) -> None:  # fmt: skip
    """Write results of a row of tiles, of as many channels as a vector has lanes."""
    lines, columns = min(sizes.size, sizes.out_height - top), min(width, sizes.out_width - left)
    channels = min(LANES, sizes.rows - channel)
    area = sizes.out_height * sizes.out_width
    start = (image * sizes.rows + channel) * area + top * sizes.out_width + left
    finish_lines(
        made, 4 * sizes.line, lines, columns, channels,
        y + 4 * start, 4 * sizes.out_width, 4 * area,
        finish.residual + 4 * start if finish.residual else 0,
        finish.scale + 4 * channel, finish.shift + 4 * channel, finish.low, finish.high,
    )  # fmt: skip
    for i in range(channels):
        place = y + 4 * (start + i * area)
        activate_lines(place, 4 * sizes.out_width, lines, columns, finish)


@kernel(CONVOLUTION, WINDOWS)
def conv_winograd(x, u, y, after, layout, memory, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Convolve with weights that ``tenonnx_cpu.conv.winograd.transformed`` has made.

    ``memory[0]`` is NaN after it if some result is NaN or infinite, which then others of its tile
    may be, too; else it is 0.
    """
    sizes = winograd_sizes(layout[0])
    finish = finish_of(after)
    for worker in range(threads):
        memory[worker * sizes.work] = memory[worker * sizes.work + 1] = np.float32(0)
    arguments = (x, u, np.intp(y.ctypes.data), finish, sizes, memory)
    convolve_tiles(arguments, sizes.tasks, threads)
