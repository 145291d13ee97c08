"""Reductions over axes: an attribute in the older versions, an input on the host in the newer."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tenonnx.operators import Array, Namespace, OperatorTable
from tenonnx_array.accurate import averaged, exp, summed
from tenonnx_array.dtypes import FLOATS, INTEGERS, accumulator
from tenonnx_array.elementwise import divide

table = OperatorTable()

Axes = tuple[int, ...] | None
Reduction = Callable[[Namespace, Array, Axes, bool], Array]


def total(xp: Namespace, x: Array, axis: Axes, keepdims: bool) -> Array:
    """Sum in the dtype of the accumulator; integers wrap around."""
    if x.dtype == np.float32:
        return summed(xp, x, axis, keepdims)
    return xp.sum(x, axis=axis, dtype=accumulator(x.dtype), keepdims=keepdims)


def product(xp: Namespace, x: Array, axis: Axes, keepdims: bool) -> Array:
    """Multiply; 1 for an empty set."""
    return xp.prod(x, axis=axis, dtype=accumulator(x.dtype), keepdims=keepdims)


def mean(xp: Namespace, x: Array, axis: Axes, keepdims: bool) -> Array:
    """Return the sum divided by the count; integers truncate, and are 0 for an empty set."""
    if x.dtype == np.float32:
        return averaged(xp, x, axis, keepdims)
    sums = total(xp, x, axis, keepdims)
    count = x.size // max(sums.size, 1)
    if x.dtype in INTEGERS:
        return divide(xp, sums, sums.dtype.type(max(count, 1)))
    return sums / count


def maximum(xp: Namespace, x: Array, axis: Axes, keepdims: bool) -> Array:
    """Return the greatest; of an empty set -inf, the least integer or False."""
    if x.size:
        return xp.max(x, axis=axis, keepdims=keepdims)
    empty = total(xp, x, axis, keepdims)
    return xp.full(empty.shape, _extreme(x.dtype, least=True), x.dtype)


def minimum(xp: Namespace, x: Array, axis: Axes, keepdims: bool) -> Array:
    """Return the least; of an empty set inf, the greatest integer or True."""
    if x.size:
        return xp.min(x, axis=axis, keepdims=keepdims)
    empty = total(xp, x, axis, keepdims)
    return xp.full(empty.shape, _extreme(x.dtype, least=False), x.dtype)


def _extreme(dtype: np.dtype[Any], *, least: bool) -> float | bool:
    if dtype == np.bool_:
        return not least
    if dtype in FLOATS:
        return -np.inf if least else np.inf
    return int(np.iinfo(dtype).min if least else np.iinfo(dtype).max)


def l1(xp: Namespace, x: Array, axis: Axes, keepdims: bool) -> Array:
    """Sum magnitudes."""
    return total(xp, xp.abs(x), axis, keepdims)


def sum_square(xp: Namespace, x: Array, axis: Axes, keepdims: bool) -> Array:
    """Sum squares."""
    return total(xp, xp.square(x.astype(accumulator(x.dtype), copy=False)), axis, keepdims)


def l2(xp: Namespace, x: Array, axis: Axes, keepdims: bool) -> Array:
    """Return the square root of the sum of squares; what no integer holds is the greatest one."""
    root = xp.sqrt(sum_square(xp, _real(x), axis, keepdims))
    return xp.minimum(root, greatest_float(x.dtype)) if x.dtype in INTEGERS else root


@functools.cache
def greatest_float(dtype: np.dtype[Any]) -> float:
    """Return the greatest float64 that a type of integers holds."""
    most = int(np.iinfo(dtype).max)
    return float(most) if float(most) <= most else float(np.nextafter(float(most), 0))


def log_sum(xp: Namespace, x: Array, axis: Axes, keepdims: bool) -> Array:
    """Return the logarithm of the sum."""
    return xp.log(total(xp, _real(x), axis, keepdims))


def log_sum_exp(xp: Namespace, x: Array, axis: Axes, keepdims: bool) -> Array:
    """Return the logarithm of the sum of exponentials, none of which overflows."""
    x = _real(x)
    top = maximum(xp, x, axis, True)
    # Infinity minus infinity would be NaN.
    top = xp.where(xp.isfinite(top), top, 0)
    result = xp.log(total(xp, exp(xp, x - top), axis, True)) + top
    return result if keepdims else result.reshape(_pruned(result.shape, axis))


def _pruned(shape: tuple[int, ...], axis: Axes) -> tuple[int, ...]:
    reduced = range(len(shape)) if axis is None else {a % len(shape) for a in axis}
    return tuple(n for i, n in enumerate(shape) if i not in reduced)


def _real(x: Array) -> Array:
    """Return integers as float64, small floats as float32."""
    return x.astype(np.float64 if x.dtype in INTEGERS else accumulator(x.dtype), copy=False)


REDUCTION_FUNCTIONS: dict[str, Reduction] = {
    "ReduceL1": l1,
    "ReduceL2": l2,
    "ReduceLogSum": log_sum,
    "ReduceLogSumExp": log_sum_exp,
    "ReduceMax": maximum,
    "ReduceMean": mean,
    "ReduceMin": minimum,
    "ReduceProd": product,
    "ReduceSum": total,
    "ReduceSumSquare": sum_square,
}


def _axes_of(x: Array, axes: tuple[int, ...]) -> tuple[int, ...]:
    """Return axes, each once.

    A scalar has none, whatever exporters write: torch's write 0 and -1, and onnxruntime takes all.
    """
    if not x.ndim:
        return ()
    if len(axes) > 1:
        return tuple(dict.fromkeys(a + x.ndim if a < 0 else a for a in axes))
    return axes


def by_attribute(reduction: Reduction) -> Callable[..., Array]:
    """Return the kernel that takes ``axes`` as an attribute; all axes when it is absent."""
    return functools.partial(_by_attribute, reduction)


def _by_attribute(
    reduction: Reduction,
    xp: Namespace,
    data: Array,
    *,
    axes: tuple[int, ...] = (),
    keepdims: int = 1,
) -> Array:
    result = reduction(xp, data, _axes_of(data, axes) or None, bool(keepdims))
    return result.astype(data.dtype, copy=False)


def by_input(reduction: Reduction) -> Callable[..., Array]:
    """Return the kernel that takes ``axes`` as an input.

    When it is absent or empty: all axes, or with ``noop_with_empty_axes`` none, so that only
    what a reduction does to each element (square, logarithm) happens.
    """
    return functools.partial(_by_input, reduction)


def _by_input(
    reduction: Reduction,
    xp: Namespace,
    data: Array,
    axes: Sequence[int] | None = None,
    *,
    keepdims: int = 1,
    noop_with_empty_axes: int = 0,
) -> Array:
    axis = () if axes is None else tuple(int(a) for a in axes)
    over = _axes_of(data, axis) if axis or noop_with_empty_axes else None
    result = reduction(xp, data, over, bool(keepdims))
    return result.astype(data.dtype, copy=False)


for name, reduction in REDUCTION_FUNCTIONS.items():
    table.op(name, since=1)(by_attribute(reduction))
    table.op(name, since=13 if name == "ReduceSum" else 18, host=(1,), shapes="axes: | n")(
        by_input(reduction)
    )
