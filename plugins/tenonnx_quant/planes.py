"""Products with a quantized matrix, by way of planes.

The low bits of all bytes are a matrix of their own, of every other column (every fourth, with 2
bits), so nothing has to be interleaved but the result. And where rows of W share their scales,
``x @ ((Q - z) * s)`` is ``(x @ Q - sum(x) * z) * s``: for a few rows of x, only as many numbers are
scaled as there are in the product.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tenonnx import Array, Namespace
from tenonnx_array.packed import planes

# Bytes of integers as floats that exist at a time: they stay in a core's cache.
PLANE_TILE_BYTES: Final = 1 << 20

# The same for many rows of x, which pay for a deeper product.
MANY_ROWS_TILE_BYTES: Final = 4 << 20

# Rows of x up to which integers are multiplied and their products scaled.
FEW_ROWS: Final = 16


def by_planes(
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
    work = x.dtype
    flat = x.reshape(-1, depth)
    scales = scales.astype(work, copy=False)
    if zero_points is not None:
        zero_points = zero_points.reshape(-1, min(width, zero_points.size))
    out = xp.zeros((each, flat.shape[0], width), work)
    groups, few = depth // group, flat.shape[0] <= FEW_ROWS
    step = max(1, (PLANE_TILE_BYTES if few else MANY_ROWS_TILE_BYTES) // max(1, 4 * group * width))
    for first in range(0, groups, step):
        span = slice(first, min(first + step, groups))
        rows = slice(first * group, span.stop * group)
        packed = weight[rows.start * width : rows.stop * width].reshape(-1, group, width)
        zeros = _zeros(xp, zero_points, scales.size == 1, span, bits, signed)
        factors = [_of_groups(scales, span, place, each) for place in range(each)]
        planes = (plane.astype(work) for plane in _planes(xp, packed, bits, signed))
        shifted = zero_points is not None or bool(signed)
        products = (_scaled_after if few else _scaled_before)(
            flat[:, rows], planes, zeros if shifted else None, factors
        )
        for place, product in enumerate(products):
            out[place] += product
    return out.transpose(1, 2, 0).reshape(*x.shape[:-1], each * width)


def _scaled_after(
    x: Array, planes: Iterator[Array], zeros: list[Any] | None, factors: list[Array]
) -> Iterator[Array]:
    """Yield the product of some columns of x with each plane (groups, rows of one, N)."""
    for place, plane in enumerate(planes):
        parts = x.reshape(x.shape[0], *plane.shape[:2]).transpose(1, 0, 2)
        product = parts @ plane
        if zeros is not None:
            product -= parts.sum(axis=-1, keepdims=True) * zeros[place]
        product *= factors[place]
        yield product.sum(axis=0)


def _scaled_before(
    x: Array, planes: Iterator[Array], zeros: list[Any] | None, factors: list[Array]
) -> Iterator[Array]:
    """Yield the same by way of dequantized planes."""
    for place, plane in enumerate(planes):
        if zeros is not None:
            plane -= zeros[place]
        plane *= factors[place]
        yield x @ plane.reshape(-1, plane.shape[-1])


def _planes(xp: Namespace, packed: Array, bits: int, signed: int) -> Iterator[Array]:
    """Return the elements at each place of a byte, as unsigned; signed ones raised to be so."""
    if signed:
        packed = packed ^ xp.uint8(sum(1 << (place + bits - 1) for place in range(0, 8, bits)))
    return planes(xp, packed, bits)


def _zeros(
    xp: Namespace, packed: Array | None, single: bool, span: slice, bits: int, signed: int
) -> list[Any]:
    """Return what each of ``_planes`` has for zero, to broadcast over its products."""
    if packed is None:
        return [1 << (bits - 1) if signed else 0] * (8 // bits)
    planes = list(_planes(xp, packed if len(packed) == 1 else packed[span], bits, signed))
    return planes[:1] * (8 // bits) if single else [plane[:, None] for plane in planes]


def _of_groups(values: Array, span: slice, place: int, each: int) -> Array:
    """Return the values for some groups and for a plane's columns, to broadcast over products."""
    if values.size == 1:
        return values.reshape(1, 1, 1)
    if values.ndim == 1:
        return values[place::each]
    return values[span, None, place::each]
