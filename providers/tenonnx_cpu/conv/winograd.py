"""Convolutions of 3 x 3 with fewer products: how they are cut into tiles, and what weights become.

A tile of m x m results needs (m + 2)^2 products per pair of channels instead of 9 m^2 (Winograd,
Arithmetic Complexity of Computations, 1980). With ``d`` what a tile sees and ``g`` a kernel,

    y = A^T [(G g G^T) * (B^T d B)] A

so that a sum over channels is a matrix product for each of the (m + 2)^2 places of a tile. The
matrices follow from points at which polynomials are evaluated. With those of m = 4, and sums of few
channels at a time, errors are about a plain sum's; 0, 1, -1, 2, -2, which are common, double them.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

import numpy as np

from tenonnx.process.cores import available_cores
from tenonnx.provider import HOST
from tenonnx_array.windows import Windows
from tenonnx_cpu.conv.kernels import TILE_ROWS, WINOGRAD_FIELDS
from tenonnx_cpu.conv.kernels.winograd_matrices import HEAD_FLOATS, WINOGRAD_CHANNELS, matrices
from tenonnx_cpu.conv.layout import ConvLayout, numbers_of
from tenonnx_cpu.jit.code.cpu import cpu
from tenonnx_cpu.kernel_selection import NDArray

if TYPE_CHECKING:
    from tenonnx.weights.weight import Weight

# Channels that are summed one after the other: sums of sums are more exact.
DEPTHS = {2: 64, 4: 16}

# Below, transforming tiles takes longer than the products that it saves, or is less exact.
LEAST_CHANNELS = {2: 32, 4: 64}

# Products that a weight must be worth: it takes room, and time to be brought from memory.
#
# With AVX2, weights of a size that processors of that kind rarely keep in a cache take longer; up
# to `MAX_NEAR_NUMBERS` numbers of a tap, a run finds them `NEAR`.
FETCH, NEAR = (72, 16) if cpu().lanes == 8 else (32, 32)

MAX_NEAR_NUMBERS = 1 << 14

# Floats of transformed image that stay in the second-level cache, beside weights.
MAX_BLOCK_FLOATS = 128 << 10

# Channels whose products take as long as transforming one.
TRANSFORM = 12

# Rows of a product that take as long as fetching weights for all of them.
STREAM = 2

# How many products of bfloat16 take as long as one of float32.
NARROW_SPEED = math.inf if cpu().amx else 2

# Tiles side by side that are transformed and multiplied together.
MAX_TILES_PER_BLOCK = 14


def tiled(weight: Weight, size: int) -> NDArray:
    """Return a weight's ``transformed``, flat, kept by its registry."""
    made = weight.derive(f"winograd:1:{size}", lambda: transformed(weight.on(HOST), size))
    return made.on(HOST).reshape(-1)  # type: ignore[no-any-return]  # the host's are numpy's


def transformed(w: NDArray, size: int) -> NDArray:
    """Return weights ``(K, C, 3, 3)`` as ``(panels, places, C, PANEL)``, for tiles of a size."""
    from tenonnx.planning.blas import leaving  # with the first weights that no file has

    rows, channels = w.shape[:2]
    side = matrices(size).weights
    # More of OpenBLAS's threads would wait for another product, in the way of the next run.
    with leaving(available_cores()):
        places = w.reshape(rows * channels, -1) @ np.kron(side, side).T
    panels = -(-rows // WINOGRAD_CHANNELS)
    made = np.zeros((panels * WINOGRAD_CHANNELS, channels, len(side) ** 2), np.float32)
    made[:rows] = places.reshape(rows, channels, -1)
    made = made.reshape(panels, WINOGRAD_CHANNELS, channels, -1)
    return np.ascontiguousarray(made.transpose(0, 3, 2, 1))


def tile_size(
    batch: int, rows: int, channels: int, windows: Windows, *, narrows: bool = False
) -> int:
    """Return the size of tile that costs least; 0 if it is not less than without tiles.

    With ``narrows`` products without tiles are of bfloat16.
    """
    plain = windows.kernel == (3, 3) and windows.strides == windows.dilations == (1, 1)
    if not plain:
        return 0
    (height, width), fetch = windows.output, NEAR if rows * channels <= MAX_NEAR_NUMBERS else FETCH
    costs = {0: 9.0 * (batch * height * width + fetch) / (NARROW_SPEED if narrows else 1)}
    for size, least in LEAST_CHANNELS.items():
        if min(rows, channels) < least:
            continue
        tiles = batch * -(-height // size) * -(-width // size)
        transforms = TRANSFORM / rows + TRANSFORM / channels
        costs[size] = (size + 2) ** 2 * (tiles * (1 + transforms) + fetch)
    return min(costs, key=costs.__getitem__)


def wins_over_bfloat16(rows: int, channels: int) -> bool:
    """Return whether tiles take less than products of bfloat16 for images of a usual size."""
    near = rows * channels <= MAX_NEAR_NUMBERS
    return NARROW_SPEED <= 2 and near and min(rows, channels) >= LEAST_CHANNELS[4]


@functools.lru_cache(maxsize=1024)
def winograd_layout(
    shape: tuple[int, ...], rows: int, size: int, windows: Windows, threads: int
) -> ConvLayout:
    """Return how to convolve an image ``(N, C, H, W)`` with ``rows`` kernels by tiles."""
    batch, channels = shape[:2]
    (height, width), (out_height, out_width) = windows.size, windows.output
    tiles_y, tiles_x = -(-out_height // size), -(-out_width // size)
    panels, places = -(-rows // WINOGRAD_CHANNELS), (size + 2) ** 2
    block_x = -(-tiles_x // -(-tiles_x // MAX_TILES_PER_BLOCK))
    strips = batch * -(-tiles_x // block_x)
    most = max(1, (MAX_BLOCK_FLOATS // (places * channels) - 16) // block_x + 1)
    block_y = _block_rows(tiles_y, block_x, strips, panels, threads, most)
    blocks_y = -(-tiles_y // block_y)
    # Tiles are written a vector at a time, the last ones of a channel beyond their number.
    pitch = -(-max(block_y * block_x, (block_y - 1) * block_x + 16) // 4) * 4
    # Places that are a power of two apart would share few sets of the cache.
    apart = channels * pitch + 16
    product = block_y * block_x * WINOGRAD_CHANNELS + 16
    line = (-(-block_x * size // 16) + 1) * 16 * 16
    products = HEAD_FLOATS + places * apart
    lines = products + places * product
    work = lines + size * line
    numbers = numbers_of(
        WINOGRAD_FIELDS, batch=batch, channels=channels, rows=rows, height=height, width=width,
        out_height=out_height, out_width=out_width, top=windows.begins[0], left=windows.begins[1],
        size=size, tiles_y=tiles_y, tiles_x=tiles_x, block_y=block_y, block_x=block_x,
        blocks_y=blocks_y, blocks=blocks_y * strips, pitch=pitch, apart=apart, panels=panels,
        products=products, product=product, lines=lines, line=line, work=work, depth=DEPTHS[size],
    )  # fmt: skip
    tasks = blocks_y * strips * panels
    return ConvLayout(numbers, min(threads, tasks), work, (batch, rows, out_height, out_width))


def _block_rows(height: int, width: int, strips: int, panels: int, threads: int, most: int) -> int:
    """Return how many rows of tiles a block has: so many that threads have the least to do."""

    def cost(rows: int) -> float:
        blocks = -(-height // rows)
        multiply = (
            height // rows * _multiply(rows * width) + _multiply(height % rows * width)
        ) / blocks
        transform = 4 * height / blocks
        share = -(-blocks * strips * panels // threads)
        whole, rest = divmod(share, panels)
        # A block that threads share is transformed by each of them.
        return share * multiply + (whole + (rest > 0) + (rest > 0 and whole > 0)) * transform

    return min(range(1, min(height, most) + 1), key=cost)


def _multiply(tiles: int) -> float:
    """Return how long products of so many tiles take, a row of a largest tile being 1."""
    count = -(-tiles // TILE_ROWS)
    return count * max(6, -(-tiles // count)) + STREAM if tiles else 0
