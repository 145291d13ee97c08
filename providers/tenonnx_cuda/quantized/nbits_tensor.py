"""Products with stored matrices on tensor cores: of few rows, for which reading them is most."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tenonnx.operators import Array
from tenonnx_cuda.kernel_selection import Target
from tenonnx_cuda.quantized.matrix import Matrix
from tenonnx_cuda.sources import (
    ALONE_MACRO,
    LARGEST_GRID,
    SOURCE_TYPES,
    THREADS_PER_BLOCK,
    blocks,
    is_aligned,
    pointer,
)

BFLOAT16: Final = next(dtype for dtype, name in SOURCE_TYPES.items() if name == "bf16")

# Columns that a row of x makes: a float32 is the sum of three numbers of 8 bits each.
PARTS_OF_ROW: Final = {dtype: 3 if name == "f32" else 1 for dtype, name in SOURCE_TYPES.items()}

# Tiles of 8 columns that a warp may have.
TILES_PER_WARP: Final = (1, 2, 4, 8)

MOST_COLUMNS: Final = {True: 32, False: 64}
# Columns that a product may have, by whether the matrix lies by rows, and of parts of float32s:
# beyond it is faster to write the matrix down for cuBLAS (measured on an H200).
MOST_PARTS: Final = 96

WARP_LINES: Final = 16
STEP: Final = 32
# Rows of a matrix [N, K] in a block, its columns at a time, and what of a row is staged at once:
# as ``nbits_mma.cu`` says.
CHUNK_BITS: Final = 512

LARGEST_CHUNK: Final = CHUNK_BITS // 2

WARP_WORDS: Final = 8
WARPS_PER_BLOCK: Final = 8
# Of a matrix [K, N], a block's words of a row, and its rows at a time: as
# ``nbits_mma_columns.cu`` says.
STEPS: Final = (32, 16)

# Of 4 registers each, that a lane has room for.
MOST_SUMS: Final = 16

# Blocks that a product by columns is cut into if they are fewer, so that all of a device reads.
SLICED_BLOCKS: Final = 132


def suits_tensor_cores(target: Target, x: Array, matrix: Matrix) -> bool:
    """Return whether tensor cores take a product, and are faster than cuBLAS."""
    levels = matrix.zeros is None or matrix.zeros.dtype == np.uint8
    if not target.has_tensor_cores or not levels or not is_aligned(x, matrix.weight):
        return False
    most = MOST_COLUMNS[matrix.by_rows] if PARTS_OF_ROW[x.dtype] == 1 else MOST_PARTS
    if len(x) * PARTS_OF_ROW[x.dtype] > most or matrix.rows > LARGEST_GRID * WARP_LINES:
        return False
    if matrix.by_rows:
        even = matrix.columns % STEP == 0 and matrix.columns * matrix.bits % 128 == 0
        return even and block_of(matrix) is not None
    even = matrix.columns * matrix.bits % 128 == 0
    return even and step_of(matrix) is not None


def by_tensor_cores(target: Target, x: Array, matrix: Matrix) -> Array:
    """Return x [rows, K] times a matrix that ``suits_tensor_cores``."""
    most = TILES_PER_WARP[-1] if matrix.by_rows else most_tiles(matrix)
    tiles = next((n for n in TILES_PER_WARP if 8 * n >= len(x) * PARTS_OF_ROW[x.dtype]), most)
    multiply = by_rows if matrix.by_rows else by_columns
    return multiply(target, x, matrix, min(tiles, most))


def factors(target: Target, x: Array) -> Array:
    """Return x, or of float32 the parts of its rows."""
    if PARTS_OF_ROW[x.dtype] == 1:
        return x
    rows, columns = x.shape
    parts = target.xp.empty((rows * PARTS_OF_ROW[x.dtype], columns), BFLOAT16)
    launch = target.kernel("quantized/parts", "split")
    sizes = (np.int32(rows), np.int32(columns))
    launch((*blocks(columns), rows), (THREADS_PER_BLOCK,), (x, parts, *sizes))
    return parts


def whole(matrix: Matrix, step: int) -> bool:
    """Return whether so many neighbors of K have one scale."""
    k_block, k_step = matrix.places[:2]
    return k_step == 0 or k_block % step == 0


def block_of(matrix: Matrix) -> int | None:
    """Return of how many neighbors in a row of a matrix [N, K] a scale is, if it is a power of 2.

    Where all of a row have one, any number will do.
    """
    if is_one_block(matrix):
        return LARGEST_CHUNK
    k_block = matrix.places[0]
    return k_block if k_block >= STEP and k_block.bit_count() == 1 else None


def is_one_block(matrix: Matrix) -> bool:
    """Return whether all of a row of a matrix [N, K] has one scale."""
    k_block, k_step = matrix.places[:2]
    return not k_step or k_block >= matrix.columns


def step_of(matrix: Matrix) -> int | None:
    """Return how many rows of a matrix [K, N] a warp takes at a time."""
    return next((n for n in STEPS if matrix.rows % n == 0 and whole(matrix, n)), None)


def most_tiles(matrix: Matrix) -> int:
    """Return how many tiles of columns of x there may be for a matrix [K, N]."""
    return min(TILES_PER_WARP[-1], MOST_SUMS // (matrix.per_word // 2))


def groups(x: Array, tiles: int) -> int:
    """Return how many blocks share the rows of x, next to each other: one reads for all."""
    return -(-len(x) // (8 * tiles // PARTS_OF_ROW[x.dtype]))


def by_rows(target: Target, x: Array, matrix: Matrix, tiles: int) -> Array:
    """Multiply by a matrix [N, K] of which warps read their own rows ahead."""
    count, outer = len(x), matrix.rows
    _, k_step, n_block, n_step = matrix.places
    k_step = 0 if is_one_block(matrix) else k_step
    zero_row = matrix.zero_row
    if not zero_row and k_step == 1 and n_step * matrix.bits % 8 == 0:
        zero_row = n_step  # rows of zeros are whole bytes without being padded
    y = target.xp.empty((count, outer), x.dtype)
    whole_chunks = matrix.columns % (CHUNK_BITS // matrix.bits) == 0 and is_aligned(matrix.scales)
    macros = {"TILES": tiles, "K_BLOCK": block_of(matrix), "WHOLE": int(whole_chunks),
              "K_STEP": k_step if k_step < 2 else "k_step", "PADDED": int(zero_row > 0),
              "EARLY": int(matrix.constant), **matrix.macros(x)}  # fmt: skip
    macros |= ALONE_MACRO if tiles > 1 else {}
    launch = target.kernel("quantized/nbits_mma", "tensor_product", **macros)
    sizes = (count, outer, matrix.columns, k_step, n_block, n_step, zero_row)
    arrays = (factors(target, x), matrix.weight, matrix.scales, pointer(matrix.zeros), y)
    launch(
        (groups(x, tiles), -(-outer // WARP_LINES)),
        (THREADS_PER_BLOCK,),
        (*arrays, *map(np.int32, sizes)),
    )
    return y


def by_columns(target: Target, x: Array, matrix: Matrix, tiles: int) -> Array:
    """Multiply by a matrix [K, N], in slices of K if it is narrow, which are added in order."""
    count, inner, outer = len(x), matrix.rows, matrix.columns
    k_block, k_step, n_block, n_step = matrix.places
    step = step_of(matrix)
    assert step is not None, "the matrix suits tensor cores"
    across = -(-outer // (matrix.per_word * WARP_WORDS))
    slices = (
        1
        if across > SLICED_BLOCKS // 2
        else min(-(-SLICED_BLOCKS // across), -(-inner // (step * WARPS_PER_BLOCK)))
    )
    length = -(-inner // (slices * step)) * step
    slices = -(-inner // length)
    dtype = x.dtype if slices == 1 else np.dtype(np.float32)
    y = target.xp.empty((slices, count, outer), dtype)
    side_by_side = is_aligned(*(a for a in (matrix.scales, matrix.zeros) if a is not None))
    macros = {"TILES": tiles, "STEP": step, "K_BLOCK": k_block if k_step else step,
              "N_BLOCK": n_block, "N_STEP": 1 if n_step == 1 and side_by_side else "n_step",
              "Y": SOURCE_TYPES[dtype], "EARLY": int(matrix.constant),
              **matrix.macros(x)}  # fmt: skip
    macros |= ALONE_MACRO if tiles > 1 else {}
    launch = target.kernel("quantized/nbits_mma_columns", "tensor_columns", **macros)
    arrays = (factors(target, x), matrix.weight, matrix.scales, pointer(matrix.zeros), y)
    sizes = (count, outer, inner, length, k_step, n_step)
    launch(
        (groups(x, tiles), across, slices),
        (WARPS_PER_BLOCK * 32,),
        (*arrays, *map(np.int32, sizes)),
    )
    return y[0] if slices == 1 else added(target, y, x.dtype)


def added(target: Target, parts: Array, dtype: np.dtype[Any]) -> Array:
    """Return the sums of slices, in their order."""
    y = target.xp.empty(parts.shape[1:], dtype)
    add = target.kernel("quantized/slices", "add_slices", T=SOURCE_TYPES[dtype])
    add(blocks(y.size), (THREADS_PER_BLOCK,), (parts, y, np.int32(len(parts)), np.int64(y.size)))
    return y
