"""Operators on quantized tensors: dequantized, computed in float32, quantized again."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

from tenonnx import Array, Namespace, OperatorTable
from tenonnx_array.conv_quantized import qlinear_conv
from tenonnx_array.nonlinear import sigmoid
from tenonnx_array.pool import average_pool
from tenonnx_array.quant import dequantize_linear, quantize_linear, round_to
from tenonnx_array.softmax import flattening, softmax

table = OperatorTable("com.microsoft")
op = table.op
op("DequantizeLinear", without=["block_size", "output_dtype"])(dequantize_linear)
op("QuantizeLinear", without=["block_size", "output_dtype", "precision", "saturate"])(
    quantize_linear
)


def real(xp: Namespace, x: Array, scale: Array, zero_point: Array | None) -> Array:
    """Return ``(x - zero_point) * scale`` as float32, one of each per tensor."""
    y = x.astype(xp.float32)
    if zero_point is not None:
        y -= zero_point.reshape(()).astype(xp.float32)
    y *= scale.reshape(())
    return y


def quantized(
    xp: Namespace, y: Array, scale: Array, zero_point: Array | None, like: Array
) -> Array:
    """Return ``y / scale + zero_point`` rounded to the type of ``like``."""
    zero = None if zero_point is None else zero_point.reshape(())
    return round_to(xp, y / scale.reshape(()), zero, like.dtype)


def binary(combine: Callable[[Array, Array], Array]) -> Callable[..., Array]:
    """Return the operator on quantized tensors that combines their values."""
    return functools.partial(_binary, combine)


def _binary(
    combine: Callable[[Array, Array], Array],
    xp: Namespace,
    A: Array,
    A_scale: Array,
    A_zero_point: Array | None,
    B: Array,
    B_scale: Array,
    B_zero_point: Array | None,
    C_scale: Array,
    C_zero_point: Array | None = None,
) -> Array:
    a, b = real(xp, A, A_scale, A_zero_point), real(xp, B, B_scale, B_zero_point)
    return quantized(xp, combine(a, b), C_scale, C_zero_point, A)


table.rows({"QLinearAdd": binary(operator.add), "QLinearMul": binary(operator.mul)})


def unary(function: Callable[..., Array]) -> Callable[..., Array]:
    """Return the operator on quantized tensors that is a function of their values."""
    return functools.partial(_unary, function)


def _unary(
    function: Callable[..., Array],
    xp: Namespace,
    X: Array,
    X_scale: Array,
    X_zero_point: Array | None,
    Y_scale: Array,
    Y_zero_point: Array | None = None,
    **attributes: Any,
) -> Array:
    y = function(xp, real(xp, X, X_scale, X_zero_point), **attributes)
    return quantized(xp, y, Y_scale, Y_zero_point, X)


def leaky_relu(xp: Namespace, x: Array, *, alpha: float = 0.01) -> Array:
    """Return x, what is less than 0 times alpha."""
    return xp.where(x < 0, x * xp.float32(alpha), x)


op("QLinearSigmoid")(unary(sigmoid))
op("QLinearLeakyRelu", like=[leaky_relu])(unary(leaky_relu))


@op("QLinearSoftmax")
def qlinear_softmax(
    xp: Namespace,
    X: Array,
    X_scale: Array,
    x_zero_point: Array | None,
    y_scale: Array,
    y_zero_point: Array,
    *,
    axis: int = -1,
    opset: int,
) -> Array:
    """Return the quantized softmax along the axis, before opset 13 over all from it on."""
    kernel = softmax if opset >= 13 else flattening(softmax)
    y = kernel(xp, real(xp, X, X_scale, x_zero_point), axis=axis)
    return quantized(xp, y, y_scale, y_zero_point, X)


@op("QLinearConcat")
def qlinear_concat(
    xp: Namespace, Y_scale: Array, Y_zero_point: Array, *inputs: Array, axis: int
) -> Array:
    """Return tensors side by side; the inputs are a tensor, its scale and its zero point each."""
    parts = []
    for x, scale, zero_point in zip(inputs[::3], inputs[1::3], inputs[2::3], strict=True):
        parts.append(quantized(xp, real(xp, x, scale, zero_point), Y_scale, Y_zero_point, x))
    return xp.concatenate(parts, axis=axis)


@op("QLinearWhere")
def qlinear_where(
    xp: Namespace,
    condition: Array,
    X: Array,
    x_scale: Array,
    x_zero_point: Array,
    Y: Array,
    y_scale: Array,
    y_zero_point: Array,
    z_scale: Array,
    z_zero_point: Array,
) -> Array:
    x, y = (
        quantized(xp, real(xp, *value), z_scale, z_zero_point, X)
        for value in ((X, x_scale, x_zero_point), (Y, y_scale, y_zero_point))
    )
    return xp.where(condition, x, y)


@op("QLinearAveragePool", like=[average_pool], without=["dilations"])
def qlinear_average_pool(
    xp: Namespace,
    X: Array,
    x_scale: Array,
    x_zero_point: Array | None,
    y_scale: Array,
    y_zero_point: Array | None = None,
    *,
    channels_last: int = 0,
    **attributes: Any,
) -> Array:
    """Return the quantized mean of each window of (N, C, D1, ...), or of (N, D1, ..., C)."""
    x = real(xp, X, x_scale, x_zero_point)
    y = average_pool(xp, xp.moveaxis(x, -1, 1) if channels_last else x, **attributes)
    y = xp.moveaxis(y, 1, -1) if channels_last else y
    return quantized(xp, y, y_scale, y_zero_point, X)


@op("QLinearGlobalAveragePool")
def qlinear_global_average_pool(
    xp: Namespace,
    X: Array,
    x_scale: Array,
    x_zero_point: Array,
    y_scale: Array,
    y_zero_point: Array,
    *,
    channels_last: int = 0,
) -> Array:
    """Return the quantized mean of each channel of (N, C, D1, ...), or of (N, D1, ..., C)."""
    axes = tuple(range(1, X.ndim - 1) if channels_last else range(2, X.ndim))
    y = xp.mean(real(xp, X, x_scale, x_zero_point), axis=axes, keepdims=True)
    return quantized(xp, y, y_scale, y_zero_point, X)


@op("QLinearConv", like=[qlinear_conv])
def qlinear_conv_any_layout(
    xp: Namespace, x: Array, *others: Array | None, channels_last: int = 0, **attributes: Any
) -> Array:
    """Return QLinearConv of (N, C, D1, ...), or of (N, D1, ..., C) and likewise then."""
    image = xp.moveaxis(x, -1, 1) if channels_last else x
    y = qlinear_conv(xp, image, *others, **attributes)
    return xp.moveaxis(y, 1, -1) if channels_last else y
