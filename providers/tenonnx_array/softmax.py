"""Softmax and other normalizations along an axis.

Before opset 13 the axis of Softmax, LogSoftmax and Hardmax began the inner half of a matrix to
which the input was flattened.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

from tenonnx.operators import Array, Namespace, OperatorTable
from tenonnx_array.accurate import exp, summed
from tenonnx_array.precision import widened
from tenonnx_array.reduce import mean

table = OperatorTable()
op = table.op


@op("Softmax", since=13)
@widened
def softmax(xp: Namespace, x: Array, *, axis: int = -1) -> Array:
    """Return exp(x) divided by its sum along the axis; no exponential overflows."""
    if not x.size:
        return x
    y = exp(xp, x - xp.max(x, axis=axis, keepdims=True))
    y /= summed(xp, y, (axis,), True)
    return y


@op("LogSoftmax", since=13)
@widened
def log_softmax(xp: Namespace, x: Array, *, axis: int = -1) -> Array:
    """Return the logarithm of the softmax."""
    if not x.size:
        return x
    y = x - xp.max(x, axis=axis, keepdims=True)
    y -= xp.log(summed(xp, exp(xp, y), (axis,), True))
    return y


@op("Hardmax", since=13)
def hardmax(xp: Namespace, x: Array, *, axis: int = -1) -> Array:
    """Return 1 for the first greatest element along the axis, 0 for the others."""
    if not x.size:
        return x
    inner = x.ndim - 1 - axis % x.ndim
    positions = xp.arange(x.shape[axis]).reshape((-1,) + (1,) * inner)
    return (positions == xp.argmax(x, axis=axis, keepdims=True)).astype(x.dtype)


def flattening(kernel: Callable[..., Array]) -> Callable[..., Array]:
    """Return the form of a kernel before opset 13: over all axes from ``axis`` on at once."""
    return functools.partial(_flattening, kernel)


def _flattening(kernel: Callable[..., Array], xp: Namespace, x: Array, *, axis: int = 1) -> Array:
    split = axis + x.ndim * (axis < 0)
    matrix = x.reshape(math.prod(x.shape[:split]), math.prod(x.shape[split:]))
    return kernel(xp, matrix).reshape(x.shape)


OLD = {"Softmax": softmax, "LogSoftmax": log_softmax, "Hardmax": hardmax}
table.rows({name: flattening(kernel) for name, kernel in OLD.items()}, since=1)


@op("LpNormalization")
@widened
def lp_normalization(xp: Namespace, x: Array, *, axis: int = -1, p: int = 2) -> Array:
    """Divide by the L1 or L2 norm along the axis; vectors of norm zero stay zero."""
    if p not in (1, 2):
        raise ValueError(f"expected p to be 1 or 2, found {p}")
    powers = xp.abs(x) if p == 1 else xp.square(x)
    norm = xp.sum(powers, axis=axis, keepdims=True)
    norm = norm if p == 1 else xp.sqrt(norm)
    return x / xp.where(norm == 0, 1, norm)


@op("MeanVarianceNormalization", since=9)
@widened
def mean_variance_normalization(
    xp: Namespace, x: Array, *, axes: tuple[int, ...] = (0, 2, 3)
) -> Array:
    """Return (x - mean) / (deviation + 1e-9), the constant of the specification's function body."""
    centered = x - mean(xp, x, axes, True)
    return centered / (xp.sqrt(mean(xp, xp.square(centered), axes, True)) + 1e-9)
