"""Functions of float32 with a smaller error than numpy's, which exceeds an ulp.

Other array libraries have functions of their own, and often no cheap float64.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx.graph.shape_checks import broadcast_shapes
from tenonnx.operators import PASSES_ON, Array, Namespace
from tenonnx_array.legacy import elementwise

SINGLE = np.dtype(np.float32)


def in_double(name: str) -> Callable[..., Array]:
    """Return a function of numpy's by name that goes through float64 where numpy has float32."""
    call = functools.partial(_in_double, name)
    vars(call)[PASSES_ON] = (name,)
    return call


@cacheable
def _in_double(name: str, xp: Namespace, *xs: Array) -> Array:
    if xp is not np or any(x.dtype != SINGLE for x in xs):
        return elementwise(xp, name)(*xs)
    y = np.empty(broadcast_shapes(*(x.shape for x in xs)), SINGLE)
    return elementwise(np, name)(*xs, y, dtype=np.float64, casting="same_kind")


exp = in_double("exp")


def logistic(xp: Namespace, x: Array, slope: float = 1.0, *, times: bool = False) -> Array:
    """Return ``1 / (1 + exp(-slope x))``, or ``x`` times that; in float32 within half an ulp.

    An exponential that overflows gives the right 0.
    """
    if xp is not np or x.dtype != SINGLE:
        y = xp.exp(-slope * x)
        y += 1
        return x / y if times else xp.reciprocal(y)
    y = np.empty_like(x, np.float64)
    np.multiply(x, -slope, y, dtype=np.float64)
    np.exp(y, y)
    y += 1
    return np.divide(x if times else 1.0, y, np.empty_like(x), casting="same_kind")


def summed(xp: Namespace, x: Array, axis: tuple[int, ...] | None, keepdims: bool) -> Array:
    """Return the sum over some axes, or all, in the array's dtype.

    Numpy adds in pairs along the last axis alone, along others one row after the other. In float64
    either takes twice as long.
    """
    if xp is not np or x.dtype != SINGLE:
        return xp.sum(x, axis=axis, keepdims=keepdims, dtype=x.dtype)
    return np.asarray(np.sum(x, axis=axis, keepdims=keepdims, dtype=np.float64), SINGLE)


def averaged(xp: Namespace, x: Array, axis: tuple[int, ...] | None, keepdims: bool) -> Array:
    """Return the mean over some axes, or all, in the array's dtype, whose range a sum may leave."""
    if xp is not np or x.dtype != SINGLE:
        sums = summed(xp, x, axis, keepdims)
        return sums / (x.size // max(sums.size, 1))
    wide = np.sum(x, axis=axis, keepdims=keepdims, dtype=np.float64)
    return np.asarray(wide / (x.size // max(wide.size, 1)), SINGLE)


def inverse_root(xp: Namespace, x: Array) -> Array:
    """Return ``1 / sqrt(x)`` in the array's dtype."""
    if xp is not np or x.dtype != SINGLE:
        return 1 / xp.sqrt(x)
    return np.asarray(1 / np.sqrt(x, dtype=np.float64), SINGLE)
