"""Products with a matrix whose rows are packed integers with a scale for every block.

The elements at one place of all bytes, such as the low bits, are a matrix of their own: a plane. It
is multiplied with the columns of x that it stands for, so that nothing has to be interleaved.
"""

from __future__ import annotations

from collections.abc import Iterable

from tenonnx import Array, Namespace
from tenonnx_array.packed import centred_planes
from tenonnx_contrib.tiles import strips

# Rows of x up to which each block is a product of its own, and only the products are scaled.
FEW_ROWS = 32

# Bytes of a plane's elements as floats that exist at a time, so that every pass over them is in
# cache.
PLANE_TILE_BYTES = 512 << 10


def by_planes(
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
    parts = x.reshape(count, blocks, width, each).transpose(3, 1, 2, 0)
    parts = [xp.ascontiguousarray(parts[place]) for place in range(each)]
    out = xp.empty((rows, count), x.dtype)
    product = _scaled_after if count <= FEW_ROWS else _scaled_before
    for strip in strips(rows, blocks * width, PLANE_TILE_BYTES):
        tile = (plane.astype(x.dtype) for plane in centred_planes(xp, packed[strip], bits))
        out[strip] = product(tile, parts, scales[strip])
    if offsets is not None:
        sums = x.reshape(count, blocks, width * each).sum(axis=-1)
        out -= (offsets * scales) @ sums.T
    return out.T


def _scaled_after(planes: Iterable[Array], parts: list[Array], scales: Array) -> Array:
    """Return a strip's product (rows, M), of the blocks' products, which are scaled."""
    products = [plane.transpose(1, 0, 2) @ part for plane, part in zip(planes, parts, strict=True)]
    return (scales[:, None] @ sum(products).transpose(1, 0, 2))[:, 0]


def _scaled_before(planes: Iterable[Array], parts: list[Array], scales: Array) -> Array:
    """Return a strip's product (rows, M), of dequantized planes."""
    products = [
        (plane * scales[:, :, None]).reshape(len(scales), -1) @ part.reshape(-1, part.shape[-1])
        for plane, part in zip(planes, parts, strict=True)
    ]
    return sum(products)
