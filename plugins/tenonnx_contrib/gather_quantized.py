"""GatherBlockQuantized: rows of a quantized table, dequantized after they are taken."""

from __future__ import annotations

from tenonnx import Array, Namespace, OperatorTable
from tenonnx_array.dtypes import INTEGERS, accumulator
from tenonnx_array.packed import unpack

table = OperatorTable("com.microsoft")
op = table.op


@op(
    "GatherBlockQuantized",
    shapes=(
        "scales: *data[:quantize_axis] whole|packed *data[quantize_axis:][1:]; "
        "zero_points: *scales | *scales[:-1] ceil(scales[-1]*bits/8); "
        "whole = ceil(data[quantize_axis] / block_size); "
        "packed = ceil(data[quantize_axis] * (8 // bits) / block_size)"
    ),
)
def gather_block_quantized(
    xp: Namespace,
    data: Array,
    indices: Array,
    scales: Array,
    zero_points: Array | None = None,
    *,
    bits: int = 4,
    block_size: int = 128,
    gather_axis: int = 0,
    quantize_axis: int = 1,
) -> Array:
    """Return ``(data - zero_points) * scales`` at the indices of an axis, in the scales' type.

    Scales and zero points change every ``block_size`` elements of ``quantize_axis``. uint8 data
    and zero points are packed along the last axis, and their zero is the middle of the range;
    that of int4 and uint4 is 0. An index out of range gives zeros.

    Raises:
        ValueError: Scales or zero points do not fit the elements as they are unpacked.
    """
    rank = data.ndim
    gather_axis, quantize_axis = gather_axis % rank, quantize_axis % rank
    packed = data.dtype == xp.uint8
    length = data.shape[gather_axis]
    inside = (indices >= -length) & (indices < length)
    # Row 0 stands in for indices out of range, and is zeroed at the end: no branch on the device.
    rows = xp.where(inside, indices % max(length, 1), 0)
    groups = rows // max(block_size, 1) if gather_axis == quantize_axis else rows
    data = xp.take(data, rows, axis=gather_axis)
    scales = taken(xp, scales, groups, gather_axis)
    if zero_points is not None:
        zero_points = taken(xp, zero_points, groups, gather_axis)
    if packed:
        data = unpack(xp, data, bits)
        if zero_points is not None:
            zero_points = unpack(xp, zero_points, bits)
            # An odd number of zero points leaves room in the last byte, but never a whole byte.
            if zero_points.shape[-1] >= scales.shape[-1] + 8 // bits:
                raise ValueError("expected packed zero_points of the scales' shape, found longer")
            zero_points = zero_points[..., : scales.shape[-1]]
    wide = accumulator(scales.dtype)
    y = widen(xp, data, wide)
    factor = scales.astype(wide, copy=False)
    offset = None if zero_points is None else widen(xp, zero_points, wide)
    if gather_axis != quantize_axis:
        axis = quantize_axis + (indices.ndim - 1) * (gather_axis < quantize_axis)
        blocks = -(-y.shape[axis] // block_size)
        if factor.shape[axis] != blocks:
            raise ValueError(
                f"expected scales of {blocks} blocks along axis {quantize_axis}, "
                f"found {factor.shape[axis]}"
            )
        factor = spread(xp, factor, axis, block_size, y.shape[axis])
        offset = None if offset is None else spread(xp, offset, axis, block_size, y.shape[axis])
    if offset is not None:
        y = y - offset
    elif packed:
        y = y - wide.type(1 << (bits - 1))
    y = y * factor
    shown = inside.reshape(*inside.shape, *(1,) * (rank - 1 - gather_axis))
    return xp.where(shown, y, wide.type(0)).astype(scales.dtype, copy=False)


def taken(xp: Namespace, values: Array, rows: Array, axis: int) -> Array:
    """Return the rows of an axis; one of length 1 serves them all."""
    if values.shape[axis] == 1:
        rows = xp.zeros_like(rows)
    return xp.take(values, rows, axis=axis)


def widen(xp: Namespace, values: Array, wide: Array) -> Array:
    """Return quantized values in a float type, through a byte where that is much faster."""
    if values.dtype in INTEGERS and values.dtype.kind == "V":
        values = values.astype(xp.int8)
    return values.astype(wide)


def spread(xp: Namespace, values: Array, axis: int, block_size: int, length: int) -> Array:
    """Return one value per element of an axis that has one per block."""
    if values.shape[axis] in (1, length):
        return values
    where = (slice(None),) * axis + (slice(length),)
    return xp.repeat(values, block_size, axis=axis)[where]
