"""``ai.tenonnx::DequantizeMatMul`` over any array namespace, a few rows of the weight at a time."""

from __future__ import annotations

import math
from typing import Final

from tenonnx import Array, Namespace, OperatorTable
from tenonnx_array.packed import unpack as packed_elements
from tenonnx_array.packed_products import by_rows, tiled

# The domain of the fused operator; the transform makes it, and no file has it.
FUSED_DOMAIN = "ai.tenonnx"

table = OperatorTable(FUSED_DOMAIN)

# Rows of the weight that must share their scales for that to pay.
LEAST_GROUP: Final = 8


@table.op("DequantizeMatMul", since=1)
def dequantize_matmul(
    xp: Namespace,
    x: Array,
    weight: Array,
    scales: Array,
    zero_points: Array | None = None,
    *,
    bits: int,
    signed: int,
    rows: int,
    columns: int,
    axis: int,
    block_size: int,
    transposed: int = 0,
    accuracy_level: int = 0,  # noqa: ARG001 - a license to be less accurate
) -> Array:
    """Multiply by a dequantized matrix W without ever holding all of it.

    W is ``(weight - zero_points) * scales``, of shape [rows, columns] as stored, and is used
    as it is or, if ``transposed``, as its transpose.

    Args:
        xp: The array namespace.
        x: [..., K], floating point; decides the result's dtype. Sums of 16-bit ones are float32.
        weight: The stored bytes, flat uint8; below 8 bits the first element is the low bits.
        scales: [], [n], or with one entry per block along ``axis``.
        zero_points: Stored bytes as in ``weight``, shaped as ``scales``; 0 if absent.
        bits: Bits of an element: 2, 4 or 8.
        signed: Whether elements are two's complement.
        rows: First dimension of W as stored.
        columns: Second one.
        axis: Along which scales change, 0 or 1; -1 if one scale serves all.
        block_size: Elements along ``axis`` that share a scale; 0 if ``axis`` has one each.
        transposed: Multiply by the transpose.
        accuracy_level: 4 allows kernels to round x to 8 bits, block by block.

    Returns:
        [..., N].
    """
    depth = columns if transposed else rows
    if x.shape[-1:] != (depth,):
        raise ValueError(f"expected {depth} numbers on the last axis, found shape {x.shape}")
    dtype = x.dtype
    x = x.astype(dtype if dtype.itemsize >= 4 else xp.float32, copy=False)
    group = _group(rows, axis, block_size)
    whole_bytes = columns % (8 // bits) == 0
    if group >= LEAST_GROUP and whole_bytes and not transposed:
        out = by_rows(xp, x, weight, scales, zero_points, bits=bits, signed=signed, group=group)
        return out.astype(dtype, copy=False)
    if zero_points is not None:
        zero_points = unpack(xp, zero_points, bits, signed, scales.size).reshape(scales.shape)

    def tile(some: slice) -> Array:
        count = some.stop - some.start
        found = unpack(xp, weight, bits, signed, count * columns, some.start * columns)
        found = found.reshape(count, columns).astype(x.dtype)
        if zero_points is not None:
            found -= spread(xp, zero_points, axis, block_size, some, columns)
        found *= spread(xp, scales, axis, block_size, some, columns).astype(x.dtype)
        return found

    block, shape = max(block_size, 1) if axis == 0 else 1, (rows, columns)
    out = tiled(xp, x, tile, shape, transposed=bool(transposed), multiple=block)
    return out.astype(dtype, copy=False)


def _group(rows: int, axis: int, block_size: int) -> int:
    """Return how many rows, a divisor of all, share the scales of each column; 0 if none do."""
    if axis == 0:
        return block_size if block_size and rows % block_size == 0 else 0
    return 0 if (axis == 1 and block_size) or not rows else math.gcd(rows, 64)


def unpack(
    xp: Namespace, packed: Array, bits: int, signed: int, count: int, start: int = 0
) -> Array:
    """Return ``count`` elements from element ``start`` on, one int8 or uint8 each."""
    each = 8 // bits
    first = start // each
    parts = packed_elements(xp, packed[first : (start + count + each - 1) // each], bits)
    parts = parts[start - first * each :][:count]
    if not signed or bits == 8:
        return parts.view(xp.int8 if signed else xp.uint8)
    # Shifting up and back down repeats the sign bit.
    gap = xp.int8(8 - bits)
    return (parts.view(xp.int8) << gap) >> gap


def spread(xp: Namespace, values: Array, axis: int, block: int, rows: slice, columns: int) -> Array:
    """Return scales or zero points so that they broadcast over some rows."""
    if axis < 0:
        return values.reshape(1, 1)
    if not block:
        return values[rows, None] if axis == 0 else values[None, :]
    if axis == 1:
        return xp.repeat(values[rows], block, axis=1)[:, :columns]
    first, last = rows.start // block, -(-rows.stop // block)
    return xp.repeat(values[first:last], block, axis=0)[: rows.stop - rows.start]
