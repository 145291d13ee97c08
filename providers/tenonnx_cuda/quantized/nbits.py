"""Products with matrices of 8, 4 and 2 bits an element, read as they are stored."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from tenonnx.operators import Array
from tenonnx_cuda.capture.tracer import cannot_capture
from tenonnx_cuda.kernel_selection import Call, Site, Target, choose
from tenonnx_cuda.quantized.matrix import Matrix
from tenonnx_cuda.quantized.nbits_tensor import added, by_tensor_cores, suits_tensor_cores
from tenonnx_cuda.sources import LARGEST_GRID, THREADS_PER_BLOCK, blocks, pointer

# Rows of x up to which the matrix is not stored as floats: the product is bound by reading it.
MAX_ROWS_UNPACKED: Final = 16

# Dequantized weights that exist at any one time: most of them are in the device's cache yet when
# they are read.
FLOAT_TILE_BYTES: Final = 32 << 20

# Of which dequantized rows are a multiple: odd sizes take cuBLAS several times as long.
DEQUANTIZED_ROWS_MULTIPLE: Final = 128

# Blocks that a product by columns is cut into at least, so that all of a device reads.
MIN_SLICED_BLOCKS: Final = 256

# Rows of x that a kernel is compiled for.
TEMPLATE_ROWS: Final = (1, 2, 4)


def product(target: Target, x: Array, matrix: Matrix) -> Array:
    """Return x [..., K] times the matrix, [..., N]."""
    xp = target.xp
    inner, outer = matrix.columns, matrix.rows
    if not matrix.by_rows:
        inner, outer = outer, inner
    flat = xp.ascontiguousarray(x.reshape(-1, inner))
    k_block, k_step = matrix.places[:2]
    words_are_even = k_step == 0 or k_block % matrix.per_word == 0
    if suits_tensor_cores(target, flat, matrix):
        y = by_tensor_cores(target, flat, matrix)
    elif len(flat) <= MAX_ROWS_UNPACKED and not matrix.by_rows:
        y = by_columns(target, flat, matrix)
    elif len(flat) <= MAX_ROWS_UNPACKED and words_are_even:
        y = by_rows(target, flat, matrix)
    else:
        y = by_tiles(target, flat, matrix)
    return y.reshape(*x.shape[:-1], outer)


def by_rows(target: Target, x: Array, matrix: Matrix) -> Array:
    """Multiply a few rows by a matrix [N, K]: a warp for each of its rows."""
    count, outer = len(x), matrix.rows
    together = next((n for n in TEMPLATE_ROWS if n >= count), TEMPLATE_ROWS[-1])
    y = target.xp.empty((count, outer), x.dtype)
    launch = target.kernel("quantized/nbits", "rows_product", ROWS=together, **matrix.macros(x))
    sizes = (count, outer, matrix.columns, *matrix.places, matrix.zero_row)
    arrays = (x, matrix.weight, matrix.scales, pointer(matrix.zeros), y)
    grid = (-(-outer // (THREADS_PER_BLOCK // 32)), -(-count // together))
    launch(grid, (THREADS_PER_BLOCK,), (*arrays, *map(np.int32, sizes)))
    return y


def by_columns(target: Target, x: Array, matrix: Matrix) -> Array:
    """Multiply a few rows by a matrix [K, N]: a thread for each word of a row, in slices of K.

    The slices' sums are added in one order, so that the same x gives the same y.
    """
    count, inner, outer = len(x), matrix.rows, matrix.columns
    together = next((n for n in TEMPLATE_ROWS if n >= count), TEMPLATE_ROWS[-1])
    threads = 64
    across = -(-outer // (matrix.per_word * threads))
    slices = max(1, min(-(-MIN_SLICED_BLOCKS // across), -(-inner // 32)))
    length = -(-inner // slices)
    slices = -(-inner // length)
    partial = target.xp.empty((slices, count, outer), np.float32)
    launch = target.kernel("quantized/nbits", "columns_product", ROWS=together, **matrix.macros(x))
    sizes = (count, outer, inner, length, *matrix.places)
    arrays = (x, matrix.weight, matrix.scales, pointer(matrix.zeros), partial)
    grid = (across, slices, -(-count // together))
    launch(grid, (threads,), (*arrays, *map(np.int32, sizes)))
    return added(target, partial, x.dtype)


def by_tiles(target: Target, x: Array, matrix: Matrix) -> Array:
    """Multiply many rows: by cuBLAS, with some rows of the matrix at a time as floats.

    Where those are parts of sums, these are float32 until they are whole.
    """
    outer = matrix.rows if matrix.by_rows else matrix.columns
    step = FLOAT_TILE_BYTES // (matrix.columns * x.dtype.itemsize)
    step = min(matrix.rows, max(step - step % DEQUANTIZED_ROWS_MULTIPLE, DEQUANTIZED_ROWS_MULTIPLE))
    whole = matrix.by_rows or step == matrix.rows
    y = target.xp.empty((len(x), outer), x.dtype if whole else np.float32)
    for start in range(0, matrix.rows, step):
        tile = dequantized(target, x, matrix, start, min(step, matrix.rows - start))
        some = slice(start, start + len(tile))
        if matrix.by_rows:
            multiply_into(target, x, tile.T, y[:, some], adds=False)
        else:
            multiply_into(target, x[:, some], tile, y, adds=start > 0)
    return y if y.dtype == x.dtype else added(target, y[None], x.dtype)


def multiply_into(target: Target, a: Array, b: Array, y: Array, *, adds: bool) -> None:
    """Write a product, or add it."""
    if (products := target.xp.products) is not None:
        products.into(a, b, y, 1.0, float(adds))
        return
    cannot_capture()
    if adds:
        y += target.xp.matmul(a, b)
    else:
        y[...] = target.xp.matmul(a, b)


def dequantized(target: Target, x: Array, matrix: Matrix, start: int, rows: int) -> Array:
    """Return some rows of the matrix in x's element type."""
    tile = target.xp.empty((rows, matrix.columns), x.dtype)
    k_block, k_step, n_block, n_step = matrix.places
    macros = {"BY_ROWS": int(matrix.by_rows), "K_BLOCK": k_block, "N_BLOCK": n_block}
    launch = target.kernel("quantized/dequantize", "dequantize", **macros, **matrix.macros(x))
    arrays = (matrix.weight, matrix.scales, pointer(matrix.zeros), tile)
    sizes = (start, rows, matrix.columns, k_step, n_step, matrix.zero_row)
    grid = (*blocks(matrix.columns // matrix.per_word), min(rows, LARGEST_GRID))
    launch(grid, (THREADS_PER_BLOCK,), (*arrays, *map(np.int32, sizes)))
    return tile


@choose("MatMulNBits", domain="com.microsoft")
def matmul_nbits(site: Site, plain: Call) -> Call | None:
    """MatMulNBits: the matrix is [N, K] in blocks along K."""
    K, N = site.attribute("K", 0), site.attribute("N", 0)
    bits, size = site.attribute("bits", 4), site.attribute("block_size", 32)
    if site.attribute("weight_prepacked", 0) or bits not in (2, 4, 8) or not size or K % size:
        return None
    sizes = (K, N, bits, size)
    return functools.partial(_by_blocks, site.target, plain, sizes, is_constant(site))


def _by_blocks(
    target: Target,
    plain: Call,
    sizes: tuple[int, int, int, int],
    constant: bool,
    A: Array,
    B: Array,
    scales: Array,
    zero_points: Array | None = None,
    groups: Array | None = None,
    bias: Array | None = None,
) -> Array:
    K, N, bits, size = sizes
    each = 8 // bits
    padded = -(-(K // size) // each) * each
    matrix = Matrix(
        B, scales, zero_points, bits, 0, 1 << (bits - 1), N, K, True, (size, 1, 1, K // size),
        padded, constant,
    )  # fmt: skip
    whole = B.size * each == scales.size * size == N * K
    if groups is not None or not matrix.fits(A) or not whole:
        return plain(A, B, scales, zero_points, groups, bias)
    y = product(target, A, matrix)
    return y if bias is None else y + bias.astype(y.dtype, copy=False)


@choose("DequantizeMatMul", domain="ai.tenonnx")
def dequantize_matmul(site: Site, plain: Call) -> Call:
    """DequantizeMatMul: the matrix is [K, N], or [N, K] if it is transposed."""
    columns = site.attribute("columns", 0)
    axis, size = site.attribute("axis", -1), site.attribute("block_size", 0)
    transposed = bool(site.attribute("transposed", 0))
    of_rows, of_columns = steps(columns, axis, size)
    places = (*of_columns, *of_rows) if transposed else (*of_rows, *of_columns)
    form = {
        "bits": site.attribute("bits", 8), "signed": site.attribute("signed", 0), "middle": 0,
        "rows": site.attribute("rows", 0), "columns": columns, "by_rows": transposed,
        "places": places, "constant": is_constant(site),
    }  # fmt: skip
    return functools.partial(_by_dequantized, site.target, plain, form)


def _by_dequantized(
    target: Target,
    plain: Call,
    form: Mapping[str, Any],
    x: Array,
    weight: Array,
    scales: Array,
    zero_points: Array | None = None,
) -> Array:
    matrix = Matrix(weight, scales, zero_points, **form)
    if not matrix.fits(x):
        return plain(x, weight, scales, zero_points)
    return product(target, x, matrix)


def is_constant(site: Site) -> bool:
    """Return whether the matrix, its scales and its zeros are all weights."""
    given = site.node.inputs[1:4]
    return all(site.weight(i) is not None for i, x in enumerate(given, 1) if x is not None)


def steps(columns: int, axis: int, size: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return for rows and for columns how many share a scale, and how far the next one is."""
    if axis < 0:
        return (1, 0), (1, 0)
    if not size:
        return ((1, 1), (1, 0)) if axis == 0 else ((1, 0), (1, 1))
    if axis == 0:
        return (size, columns), (1, 1)
    return (1, -(-columns // size)), (size, 1)
