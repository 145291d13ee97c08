"""Linear quantization per tensor, per axis and in blocks, to narrow integers and floats."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx.operators import Array, Namespace, OperatorTable
from tenonnx_array.cast import E8M0, convert
from tenonnx_array.dtypes import FLOAT32_DTYPE, FLOATS, INTEGERS, accumulator, bits_of, dtype_of

table = OperatorTable()
op = table.op

UINT8 = np.dtype(np.uint8)


@op("QuantizeLinear", since=23)
@op("QuantizeLinear", since=21, without=["precision"])
@op("QuantizeLinear", since=19, without=["block_size", "output_dtype", "precision"])
@op("QuantizeLinear", since=13, without=["block_size", "output_dtype", "precision", "saturate"])
@op(
    "QuantizeLinear",
    since=10,
    without=["axis", "block_size", "output_dtype", "precision", "saturate"],
    shapes=(
        "y_scale: | 1 | x[axis] if not block_size; "
        "y_scale: *x[:axis] ceil(x[axis]/block_size) *x[axis:][1:] if block_size; "
        "y_zero_point: | 1 | *y_scale if prod(y_scale) == 1; "
        "y_zero_point: *y_scale if prod(y_scale) != 1; "
        "prod(y_scale) == 1 or -len(x) <= axis < len(x)"
    ),
)
def quantize_linear(
    xp: Namespace,
    x: Array,
    y_scale: Array,
    y_zero_point: Array | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
) -> Array:
    """Return ``round(x / y_scale) + y_zero_point``, halves to even, clipped to the result's range.

    The result has the zero point's type, else ``output_dtype``, else uint8.

    Raises:
        ValueError: A scale that fits neither tensor, axis nor blocks, or ``output_dtype``
            contradicts the zero point.
    """
    dtype = dtype_of(output_dtype) if output_dtype else None
    if y_zero_point is not None:
        if dtype not in (None, y_zero_point.dtype):
            raise ValueError(
                f"expected output_dtype to be the zero point's {y_zero_point.dtype}, found {dtype}"
            )
        dtype = y_zero_point.dtype
    divide_in = dtype_of(precision) if precision else division_dtype(x.dtype, y_scale.dtype)
    x_, scale, zero_point = align(xp, x, y_scale, y_zero_point, axis, block_size)
    y = x_.astype(divide_in, copy=False) / scale.astype(divide_in, copy=False)
    return round_to(xp, y, zero_point, dtype or UINT8, saturate).reshape(x.shape)


@op("DequantizeLinear", since=23)
@op("DequantizeLinear", since=21, without=["output_dtype"])
@op("DequantizeLinear", since=13, without=["block_size", "output_dtype"])
@op(
    "DequantizeLinear",
    since=10,
    without=["axis", "block_size", "output_dtype"],
    shapes=(
        "x_scale: | 1 | x[axis] if not block_size; "
        "x_scale: *x[:axis] ceil(x[axis]/block_size) *x[axis:][1:] if block_size; "
        "x_zero_point: | 1 | *x_scale if prod(x_scale) == 1; "
        "x_zero_point: *x_scale if prod(x_scale) != 1; "
        "prod(x_scale) == 1 or -len(x) <= axis < len(x)"
    ),
)
def dequantize_linear(
    xp: Namespace,
    x: Array,
    x_scale: Array,
    x_zero_point: Array | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Array:
    """Return ``(x - x_zero_point) * x_scale`` in ``output_dtype``, else the scale's type.

    Raises:
        ValueError: A scale that fits neither tensor, axis nor blocks.
    """
    dtype = dtype_of(output_dtype) if output_dtype else x_scale.dtype
    x_, scale, zero_point = align(xp, x, x_scale, x_zero_point, axis, block_size)
    y = to_float32(x_)
    if zero_point is not None:
        y -= to_float32(zero_point)
    y *= scale.astype(FLOAT32_DTYPE, copy=False)
    is_exponent = dtype.kind == "V" and dtype.name == E8M0
    return y.astype(FLOAT32_DTYPE if is_exponent else dtype, copy=False).reshape(x.shape)


@op("DynamicQuantizeLinear", since=11, multiple=True)
def dynamic_quantize_linear(xp: Namespace, x: Array) -> tuple[Array, Array, Array]:
    """Return x as uint8 over the range of its values and 0, the scale, and the zero point.

    NaN has no part in the range and is 0. A tensor of zeros, or of nothing, has the scale 1. If
    the range is infinite, or too narrow for a scale that is not 0, the zero point is 0 or 255.
    """
    low = high = xp.zeros((), x.dtype)
    if x.size:
        known = xp.where(xp.isnan(x), low, x)
        low, high = xp.minimum(xp.min(known), low), xp.maximum(xp.max(known), high)
    scale = xp.where(high == low, xp.float32(1), (high - low) / xp.float32(255))
    origin = xp.rint(-low / scale)
    zero_point = xp.where(origin <= 255, origin, xp.float32(255)).astype(xp.uint8)
    return round_to(xp, x / scale, zero_point, UINT8), scale, zero_point


def division_dtype(x: np.dtype[Any], scale: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type in which x is divided by its scale: the scale's, if it can hold a quotient.

    A float8e8m0 scale is an exponent and divides in x's type; integers divide as real numbers.
    """
    if scale.kind == "V" and scale.name == E8M0:
        return x if x in FLOATS else FLOAT32_DTYPE
    return scale if scale in FLOATS else np.dtype(np.float64)


def round_to(
    xp: Namespace,
    value: Array,
    zero_point: Array | None,
    dtype: np.dtype[Any],
    saturate: int = 1,
) -> Array:
    """Return ``value + zero_point`` in a quantized type, clipped to its range.

    Integers take the value rounded half to even before the zero point is added; NaN is the least
    of them, as in onnxruntime. Without ``saturate`` a float8 out of range is infinity, or NaN in
    types that have none.
    """
    value = value.astype(accumulator(value.dtype), copy=False)
    if dtype in INTEGERS:
        value = xp.rint(value)
    if zero_point is not None:
        value = value + zero_point.astype(value.dtype)
    if dtype not in INTEGERS:
        return convert(xp, value, dtype, saturate=saturate)
    bits = bits_of(dtype) or 8
    low = 0 if dtype.name.startswith("u") else -(2 ** (bits - 1))
    value = xp.minimum(xp.where(value >= low, value, value.dtype.type(low)), low + 2**bits - 1)
    # A byte between: ml_dtypes converts float32 to int4 a hundred times slower than int8.
    return value.astype(xp.int8).astype(dtype) if bits < 8 else value.astype(dtype)


def to_float32(x: Array) -> Array:
    """Return a quantized tensor as float32."""
    if x.dtype in INTEGERS and (bits_of(x.dtype) or 8) < 8:
        x = x.astype(np.int8)
    return x.astype(FLOAT32_DTYPE)


def align(
    xp: Namespace,
    x: Array,
    scale: Array,
    zero_point: Array | None,
    axis: int,
    block_size: int,
) -> tuple[Array, Array, Array | None]:
    """Return the three in shapes that broadcast: scalars, one value per axis item, or per block.

    A blocked axis of x becomes two, (blocks, block size), if the blocks come out even.
    """
    if scale.size == 1:
        return x, scale.reshape(()), None if zero_point is None else zero_point.reshape(())
    # The default axis is 1, which a vector does not have: the specification ignores it there.
    if not -x.ndim <= axis < x.ndim and x.ndim > 1:
        raise ValueError(f"expected an axis in [-{x.ndim}, {x.ndim - 1}], found {axis}")
    axis = axis % x.ndim if x.ndim > 1 else 0
    length, found = x.shape[axis], scale.shape
    blocks = -(-length // block_size) if block_size else length
    expected = (*x.shape[:axis], blocks, *x.shape[axis + 1 :]) if block_size else (length,)
    parameters = [scale] if zero_point is None else [scale, zero_point]
    if any(parameter.shape != expected for parameter in parameters):
        raise ValueError(
            f"expected a scale and zero point of one element or shape {expected} for input of "
            f"shape {x.shape}, axis {axis} and block_size {block_size}, found {found}"
        )
    if not block_size:
        shape = [length if i == axis else 1 for i in range(x.ndim)]
        parameters = [parameter.reshape(shape) for parameter in parameters]
    elif length % block_size == 0:
        x = x.reshape(*x.shape[:axis], blocks, block_size, *x.shape[axis + 1 :])
        parameters = [xp.expand_dims(parameter, axis + 1) for parameter in parameters]
    else:
        # The last block is shorter, so the axis cannot become two.
        whole = (slice(None),) * axis + (slice(length),)
        parameters = [xp.repeat(p, block_size, axis=axis)[whole] for p in parameters]
    return x, parameters[0], parameters[1] if zero_point is not None else None
