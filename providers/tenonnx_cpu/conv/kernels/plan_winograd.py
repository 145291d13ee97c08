"""The blocks of tiles of a convolution of 3 x 3, as numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.conv.kernels import TILE_ROWS, WINOGRAD_FIELDS
from tenonnx_cpu.conv.kernels.windows import WINDOW_SIZES, Geometry, store
from tenonnx_cpu.conv.kernels.winograd_matrices import HEAD_FLOATS, WINOGRAD_CHANNELS
from tenonnx_cpu.jit.compiling import Contract, Out, helper, i64, kernel, size
from tenonnx_cpu.jit.vectors.named import tuple_of

WinogradNumbers = tuple_of("WinogradNumbers", WINOGRAD_FIELDS)

# Floats of transformed image that stay in the second-level cache, beside weights.
MAX_BLOCK_FLOATS = 128 << 10

# Rows of a product that take as long as fetching weights for all of them.
STREAM = 2

# Tiles side by side that are transformed and multiplied together.
MAX_TILES_PER_BLOCK = 14


@helper
def multiplying(tiles: Any) -> Any:
    """Return how long products of so many tiles take, a row of a largest tile being 1."""
    if tiles == 0:
        return 0
    count = -(-tiles // TILE_ROWS)
    return count * max(6, -(-tiles // count)) + STREAM


@helper
def block_rows(height: Any, width: Any, strips: Any, panels: Any, threads: Any, most: Any) -> Any:
    """Return how many rows of tiles a block has: so many that threads have the least to do."""
    best, found = np.inf, 1
    for rows in range(1, min(height, most) + 1):
        blocks = -(-height // rows)
        whole, rest = height // rows * multiplying(rows * width), multiplying(height % rows * width)
        share = -(-blocks * strips * panels // threads)
        # A block that threads share is transformed by each of them.
        blocks_seen = share // panels
        if share % panels > 0:
            blocks_seen += 1 + int(share >= panels)
        cost = share * ((whole + rest) / blocks) + blocks_seen * (4 * height / blocks)
        if cost < best:
            best, found = cost, rows
    return found


@kernel(
    (size, size, size, size, WINDOW_SIZES, size, size, Out(i64, 1)),
    Contract(
        launch="sizes are positive; numbers has one for each of WINOGRAD_FIELDS", captured=False
    ),
)
def plan_winograd(  # type: ignore[no-untyped-def] # the signature has them
    batch, channels, rows, tile, windows, depth, threads, numbers
):
    """Write what ``tenonnx_cpu.conv.winograd.winograd_layout`` returns."""
    w = Geometry(*windows)
    tiles_y, tiles_x = -(-w.out_height // tile), -(-w.out_width // tile)
    panels, places = -(-rows // WINOGRAD_CHANNELS), (tile + 2) ** 2
    block_x = -(-tiles_x // -(-tiles_x // MAX_TILES_PER_BLOCK))
    strips = batch * -(-tiles_x // block_x)
    most = max(1, (MAX_BLOCK_FLOATS // (places * channels) - 16) // block_x + 1)
    block_y = block_rows(tiles_y, block_x, strips, panels, threads, most)
    blocks_y = -(-tiles_y // block_y)
    # Tiles are written a vector at a time, the last ones of a channel beyond their number.
    pitch = -(-max(block_y * block_x, (block_y - 1) * block_x + 16) // 4) * 4
    # Places that are a power of two apart would share few sets of the cache.
    apart = channels * pitch + 16
    product = block_y * block_x * WINOGRAD_CHANNELS + 16
    line = (-(-block_x * tile // 16) + 1) * 16 * 16
    products = HEAD_FLOATS + places * apart
    lines = products + places * product
    blocks = blocks_y * strips
    values = WinogradNumbers(
        tasks=blocks * panels, work=lines + tile * line, batch=batch, channels=channels, rows=rows,
        height=w.height, width=w.width, out_height=w.out_height, out_width=w.out_width, top=w.top,
        left=w.left, size=tile, tiles_y=tiles_y, tiles_x=tiles_x, block_y=block_y, block_x=block_x,
        blocks_y=blocks_y, blocks=blocks, pitch=pitch, apart=apart, panels=panels,
        products=products, product=product, lines=lines, line=line, depth=depth,
    )  # fmt: skip
    store(numbers, values)
