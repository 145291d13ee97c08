"""Products with stored matrices on tensor cores: a few rows of x, for which reading them is all."""

from __future__ import annotations

from typing import Final

import numpy as np

from tenonnx.operators import Array
from tenonnx_cuda.chosen import Site
from tenonnx_cuda.matrix import Matrix
from tenonnx_cuda.sources import ELEMENTS, THREADS, blocks, is_aligned, pointer

PARTS: Final = {dtype: 3 if name == "f32" else 1 for dtype, name in ELEMENTS.items()}
"""Columns that a row of x makes: a float32 is the sum of three numbers of 8 bits each."""

TILES: Final = (1, 2, 4, 8)
"""Tiles of 8 columns that a warp may have: with more of them, cuBLAS is faster."""

LINES: Final = 16
STEP: Final = 32
"""Rows of a matrix [N, K] in a block, and its columns at a time: as ``nbits_mma.cu`` says."""

WORDS: Final = 8
WARPS: Final = 8
STEPS: Final = (32, 16)
"""Of a matrix [K, N], a block's words of a row, and its rows at a time: as
``nbits_mma_columns.cu`` says."""

MOST_SUMS: Final = 16
"""Of 4 registers each, that a lane has room for."""

SLICES: Final = 264
"""Blocks that a product by columns is cut into at least, so that all of a device reads."""


def suits_tensor_cores(site: Site, x: Array, matrix: Matrix) -> bool:
    """Says whether tensor cores take a product, and are faster than cuBLAS."""
    levels = matrix.zeros is None or matrix.zeros.dtype == np.uint8
    if not site.has_tensor_cores or not levels or not is_aligned(x, matrix.weight):
        return False
    tiles = -(-len(x) * PARTS[x.dtype] // 8)
    if matrix.by_rows:
        even = matrix.columns % STEP == 0 and matrix.columns * matrix.bits % 128 == 0
        return even and whole(matrix, STEP) and tiles <= TILES[-1]
    return step_of(matrix) is not None and tiles <= most_tiles(matrix)


def by_tensor_cores(site: Site, x: Array, matrix: Matrix) -> Array:
    """Returns x [rows, K] times a matrix that ``suits_tensor_cores``."""
    tiles = next(n for n in TILES if 8 * n >= len(x) * PARTS[x.dtype])
    multiply = by_rows if matrix.by_rows else by_columns
    return multiply(site, x, matrix, tiles)


def whole(matrix: Matrix, step: int) -> bool:
    """Says whether so many neighbours of K have one scale."""
    k_block, k_step = matrix.places[:2]
    return k_step == 0 or k_block % step == 0


def step_of(matrix: Matrix) -> int | None:
    """Returns how many rows of a matrix [K, N] a warp takes at a time."""
    return next((n for n in STEPS if matrix.rows % n == 0 and whole(matrix, n)), None)


def most_tiles(matrix: Matrix) -> int:
    """Returns how many tiles of columns of x there may be for a matrix [K, N]."""
    return min(TILES[-1], MOST_SUMS // (matrix.per_word // 2))


def by_rows(site: Site, x: Array, matrix: Matrix, tiles: int) -> Array:
    """Multiplies by a matrix [N, K] of which warps read their own rows ahead."""
    count, outer = len(x), matrix.rows
    k_block, k_step, *of_rows = matrix.places
    y = site.xp.empty((count, outer), x.dtype)
    macros = {"TILES": tiles, "K_BLOCK": k_block if k_step else STEP, **matrix.macros(x)}
    launch = site.kernel("nbits_mma", "tensor_product", **macros)
    sizes = (count, outer, matrix.columns, k_step, *of_rows, matrix.zero_row)
    arrays = (x, matrix.weight, matrix.scales, pointer(matrix.zeros), y)
    launch((-(-outer // LINES),), (THREADS,), (*arrays, *map(np.int32, sizes)))
    return y


def by_columns(site: Site, x: Array, matrix: Matrix, tiles: int) -> Array:
    """Multiplies by a matrix [K, N] in slices of K, whose sums are added in one order."""
    count, inner, outer = len(x), matrix.rows, matrix.columns
    k_block, k_step, n_block, n_step = matrix.places
    step = step_of(matrix)
    assert step is not None, "the matrix suits tensor cores"
    across = -(-outer // (matrix.per_word * WORDS))
    slices = max(1, min(-(-SLICES // across), inner // (step * WARPS)))
    length = -(-inner // (slices * step)) * step
    slices = -(-inner // length)
    partial = site.xp.empty((slices, count, outer), np.float32)
    macros = {"TILES": tiles, "STEP": step, "K_BLOCK": k_block if k_step else step,
              "N_BLOCK": n_block, **matrix.macros(x)}  # fmt: skip
    launch = site.kernel("nbits_mma_columns", "tensor_columns", **macros)
    arrays = (x, matrix.weight, matrix.scales, pointer(matrix.zeros), partial)
    sizes = (count, outer, inner, length, k_step, n_step)
    launch((across, slices), (WARPS * 32,), (*arrays, *map(np.int32, sizes)))
    y = site.xp.empty((count, outer), x.dtype)
    add = site.kernel("nbits_mma_columns", "add_slices", **macros)
    add(blocks(y.size), (THREADS,), (partial, y, np.int32(slices), np.int64(y.size)))
    return y
