"""``ai.tenonnx::DequantizeMatMul`` over any array namespace, a block of columns at a time."""

from __future__ import annotations

from typing import Final

from tenonnx import Array, Namespace, OperatorTable

table = OperatorTable("ai.tenonnx")

TILE_BYTES: Final = 8 << 20
"""Dequantised weights that exist at any one time."""


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
) -> Array:
    """Multiplies by a dequantised matrix W without ever holding all of it.

    W is ``(weight - zero_points) * scales``, of shape [rows, columns] as stored, and is used
    as it is or, if ``transposed``, as its transpose.

    Args:
        xp: The array namespace.
        x: [..., K], floating point; decides the result's dtype.
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

    Returns:
        [..., N].
    """
    if zero_points is not None:
        zero_points = unpack(xp, zero_points, bits, signed, scales.size).reshape(scales.shape)
    step = max(1, TILE_BYTES // max(1, 4 * columns))
    if axis == 0 and block_size:
        step = max(block_size, step - step % block_size)
    out = None if not transposed else xp.empty((*x.shape[:-1], rows), x.dtype)
    for start in range(0, rows, step):
        stop = min(start + step, rows)
        tile = unpack(xp, weight, bits, signed, (stop - start) * columns, start * columns)
        tile = tile.reshape(stop - start, columns).astype(x.dtype)
        if zero_points is not None:
            tile -= spread(xp, zero_points, axis, block_size, start, stop, columns)
        tile *= spread(xp, scales, axis, block_size, start, stop, columns).astype(x.dtype)
        if out is not None and transposed:
            out[..., start:stop] = x @ tile.T
        else:
            part = x[..., start:stop] @ tile
            out = part if out is None else out + part
    return out


def unpack(
    xp: Namespace, packed: Array, bits: int, signed: int, count: int, start: int = 0
) -> Array:
    """Returns ``count`` elements from element ``start`` on, one int8 or uint8 each."""
    kind = xp.int8 if signed else xp.uint8
    if bits == 8:
        return packed[start : start + count].view(kind)
    each = 8 // bits
    first = start // each
    taken = packed[first : (start + count + each - 1) // each]
    shifts = xp.arange(each, dtype=xp.uint8) * xp.uint8(bits)
    parts = ((taken[:, None] >> shifts) & xp.uint8((1 << bits) - 1)).reshape(-1)
    parts = parts[start - first * each :][:count]
    if not signed:
        return parts
    # Shifting up and back down repeats the sign bit.
    gap = xp.int8(8 - bits)
    return (parts.view(xp.int8) << gap) >> gap


def spread(
    xp: Namespace, values: Array, axis: int, block: int, start: int, stop: int, columns: int
) -> Array:
    """Returns scales or zero points so that they broadcast over rows ``start`` to ``stop``."""
    if axis < 0:
        return values.reshape(1, 1)
    if not block:
        return values[start:stop, None] if axis == 0 else values[None, :]
    if axis == 0:
        return xp.repeat(values[start // block : -(-stop // block)], block, axis=0)[: stop - start]
    return xp.repeat(values[start:stop], block, axis=1)[:, :columns]
