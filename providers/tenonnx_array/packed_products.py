"""Products with dequantized matrices of which only some rows exist at a time.

Of packed integers, the elements at one place of all bytes, such as the low bits, are a matrix of
their own: a plane. It is multiplied by what it stands for, so that nothing is interleaved but the
result. And where elements share their scales, ``x @ ((Q - z) * s)`` is
``(x @ Q - sum(x) * z) * s``: for a few rows of x, only the product is scaled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Final

from tenonnx.operators import Array, Namespace
from tenonnx.process import interruption
from tenonnx_array.packed import centred_planes, planes

# Bytes of a matrix as floats that exist at a time: they stay in a core's cache.
DEQUANTIZED_TILE_BYTES: Final = 1 << 20

# The same for many rows of x, which pay for a deeper product.
MANY_ROWS_TILE_BYTES: Final = 4 << 20

# Rows of x up to which integers are multiplied and their products scaled.
FEW_ROWS: Final = 16


def strips(rows: int, row_bytes: int, size: int, multiple: int = 1) -> Iterator[slice]:
    """Yield the rows to dequantize at a time, having looked whether to stop.

    Args:
        rows: All of them.
        row_bytes: Of a row, dequantized.
        size: Bytes that they may take.
        multiple: A number of rows that belong together.
    """
    step = max(size // max(row_bytes * multiple, 1), 1) * multiple
    for start in range(0, rows, step):
        interruption.check()
        yield slice(start, min(start + step, rows))


def tiled(
    xp: Namespace,
    x: Array,
    tile: Callable[[slice], Array],
    shape: tuple[int, int],
    bias: Array | None = None,
    *,
    transposed: bool = True,
    multiple: int = 1,
) -> Array:
    """Return ``x @ W.T + bias``, or ``x @ W + bias``, for a matrix W whose rows ``tile`` gives.

    Args:
        xp: The array namespace.
        x: Floating point.
        tile: Returns some rows of W, in x's dtype.
        shape: That of W.
        bias: One number for each column of the result.
        transposed: Whether W's rows are columns of the result.
        multiple: A number of rows that ``tile`` needs together.
    """
    rows, columns = shape
    flat = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    out = xp.zeros((len(flat), rows if transposed else columns), x.dtype)
    for strip in strips(rows, 4 * columns, DEQUANTIZED_TILE_BYTES, multiple):
        if transposed:
            out[:, strip] = flat @ tile(strip).T
        else:
            out += flat[:, strip] @ tile(strip)
    if bias is not None:
        out += bias.astype(out.dtype, copy=False)
    return out.reshape(*x.shape[:-1], out.shape[1])


def by_columns(
    xp: Namespace, x: Array, packed: Array, scales: Array, offsets: Array | None, bits: int
) -> Array:
    """Return ``x @ W.T`` of shape (M, N), in x's dtype.

    Args:
        xp: The array namespace.
        x: Shape (M, K), floating point.
        packed: The elements of W by block, shape (N, blocks, bytes), the first in the low bits.
        scales: The factors of elements less the middle of their range, shape (N, blocks), x's
            dtype.
        offsets: Subtracted from them before, of the same shape and dtype; nothing if absent.
        bits: Bits of an element: 2, 4 or 8.
    """
    rows, blocks, width = packed.shape
    count, each = x.shape[0], 8 // bits
    if (missing := blocks * width * each - x.shape[1]) > 0:  # of the last block, which is padded
        x = xp.concatenate([x, xp.zeros((count, missing), x.dtype)], axis=1)
    parts = xp.ascontiguousarray(x.reshape(count, blocks * width, each).transpose(2, 0, 1))
    out = xp.zeros((count, rows), x.dtype)
    for strip in strips(rows, 4 * blocks * width, DEQUANTIZED_TILE_BYTES):
        factors = scales[strip].T[:, None]
        for part, plane in zip(parts, centred_planes(xp, packed[strip], bits), strict=True):
            plane = plane.astype(x.dtype).transpose(1, 2, 0)
            out[:, strip] += _of_plane(part, plane, None, factors)
    if offsets is not None:
        sums = x.reshape(count, blocks, width * each).sum(axis=-1)
        out -= sums @ (offsets * scales).T
    return out


def by_rows(
    xp: Namespace,
    x: Array,
    weight: Array,
    scales: Array,
    zero_points: Array | None,
    *,
    bits: int,
    signed: int,
    group: int,
) -> Array:
    """Multiply by a matrix whose every ``group`` rows share scales; by columns, or one.

    Args:
        xp: The array namespace.
        x: [..., K], float32 or float64; the dtype of the result.
        weight: [K, N] as stored: flat uint8, N a multiple of the elements in a byte.
        scales: [K / group, N], [N], or [] or [1].
        zero_points: As stored, likewise; 0 if absent.
        bits: Bits of an element.
        signed: Whether elements are two's complement.
        group: A divisor of K.

    Returns:
        [..., N].
    """
    depth, each = x.shape[-1], 8 // bits
    width = weight.size // depth
    flat = x.reshape(-1, depth)
    scales = scales.astype(x.dtype, copy=False)
    if zero_points is not None:
        zero_points = zero_points.reshape(-1, min(width, zero_points.size))
    out = xp.zeros((each, len(flat), width), x.dtype)
    size = DEQUANTIZED_TILE_BYTES if len(flat) <= FEW_ROWS else MANY_ROWS_TILE_BYTES
    # Elements of a byte lie in neighboring columns. Each place in the byte is a matrix of its own
    # here, and the results are interleaved once, at the end, instead of the weights.
    for rows in strips(depth, 4 * width, size, group):
        packed = weight[rows.start * width : rows.stop * width].reshape(-1, group, width)
        span = slice(rows.start // group, rows.stop // group)
        zeros = _zeros(xp, zero_points, scales.size == 1, span, bits, signed)
        for place, plane in enumerate(_unsigned(xp, packed, bits, signed)):
            factors = _of_groups(scales, span, place, each)
            zero = zeros[place] if signed or zero_points is not None else None
            out[place] += _of_plane(flat[:, rows], plane.astype(x.dtype), zero, factors)
    return out.transpose(1, 2, 0).reshape(*x.shape[:-1], each * width)


def _of_plane(x: Array, plane: Array, zeros: Any, factors: Array) -> Array:
    """Return ``x @ ((plane - zeros) * factors)``, (M, N).

    Args:
        x: (M, groups * depth).
        plane: (groups, depth, N), of x's dtype; is overwritten.
        zeros: What elements have for zero, to broadcast to (groups, 1, N); ``None`` for 0.
        factors: What elements are multiplied by, to broadcast to the same shape.
    """
    if len(x) > FEW_ROWS:
        if zeros is not None:
            plane -= zeros
        plane *= factors
        return x @ plane.reshape(-1, plane.shape[-1])
    parts = x.reshape(len(x), *plane.shape[:2]).transpose(1, 0, 2)
    product = parts @ plane
    if zeros is not None:
        product -= parts.sum(axis=-1, keepdims=True) * zeros
    product *= factors
    return product.sum(axis=0)


def _unsigned(xp: Namespace, packed: Array, bits: int, signed: int) -> Iterator[Array]:
    """Return the elements at each place of a byte; signed ones are raised to be unsigned."""
    if signed:
        packed = packed ^ xp.uint8(sum(1 << (place + bits - 1) for place in range(0, 8, bits)))
    return planes(xp, packed, bits)


def _zeros(
    xp: Namespace, packed: Array | None, single: bool, span: slice, bits: int, signed: int
) -> list[Any]:
    """Return what each of ``_unsigned`` has for zero, to broadcast over its products."""
    if packed is None:
        return [1 << (bits - 1) if signed else 0] * (8 // bits)
    found = list(_unsigned(xp, packed if len(packed) == 1 else packed[span], bits, signed))
    return found[:1] * (8 // bits) if single else [plane[:, None] for plane in found]


def _of_groups(values: Array, span: slice, place: int, each: int) -> Array:
    """Return the values for some groups and for a plane's columns, to broadcast over products."""
    if values.size == 1:
        return values.reshape(1, 1, 1)
    if values.ndim == 1:
        return values[place::each]
    return values[span, None, place::each]
