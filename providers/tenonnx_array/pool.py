"""Pooling over windows and over whole images.

Maxima and sums are separable: an axis at a time, one pass per offset into the kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tenonnx.operators import Array, Namespace, OperatorTable
from tenonnx_array.allocation import check_allocation
from tenonnx_array.dtypes import FLOATS, accumulator
from tenonnx_array.precision import widened
from tenonnx_array.reduce import mean
from tenonnx_array.windows import Windows, place, place_transposed

table = OperatorTable()
op = table.op


# The shapes of what is pooled: no window lies in the padding alone.
POOLED = "X: N C D ...; all(pad < size for pad, size in zip(pads or (), [*kernel_shape] * 2))"


def pool(
    xp: Namespace, x: Array, windows: Windows, combine: Callable[..., Array], start: float
) -> Array:
    """Combine what each window reads of x (N, C, *size), beginning at ``start``."""
    for axis, taps in enumerate(windows.axes):
        lead = (slice(None),) * (2 + axis)
        output = windows.output[axis]
        if windows.kernel[axis] == 1 and len(taps) == 1 and taps[0].windows == slice(0, output):
            x = x[(*lead, taps[0].positions)]
            continue
        y = xp.full((*x.shape[: 2 + axis], output, *x.shape[3 + axis :]), start, x.dtype)
        for _, where, positions in taps:
            part = y[(*lead, where)]
            combine(part, x[(*lead, positions)], out=part)
        x = y
    return x


def lowest(dtype: np.dtype[Any]) -> float | int:
    """Return what no element is less than."""
    return float("-inf") if dtype in FLOATS else int(np.iinfo(dtype).min)


@op("MaxPool", multiple=True, like=[place], without=("ceil_mode", "dilations", "storage_order"))
@op("MaxPool", since=8, multiple=True, like=[place], without=("ceil_mode", "dilations"))
@op("MaxPool", since=10, multiple=True, like=[place], shapes=POOLED)
def max_pool(
    xp: Namespace,
    X: Array,
    *,
    kernel_shape: tuple[int, ...],
    storage_order: int = 0,
    _outputs: int = 1,
    **attributes: Any,
) -> tuple[Array, ...]:
    """Return the maximum of each window of X (N, C, D1, ...) and where in X it was first found.

    The places count through X in row-major order, or within an image in column-major order when
    ``storage_order`` is set. NaN is greater than anything.
    """
    windows = place(X.shape[2:], kernel_shape, **attributes)
    if _outputs == 1:
        return (pool(xp, X, windows, xp.maximum, lowest(X.dtype)),)
    return _max_and_place(xp, X, windows, storage_order)


def _max_and_place(
    xp: Namespace, x: Array, windows: Windows, storage_order: int
) -> tuple[Array, Array]:
    best = pool(xp, x, windows, xp.maximum, lowest(x.dtype))
    places = xp.full(best.shape, -1, np.int64)
    strides = np.cumprod([1, *(windows.size if storage_order else windows.size[::-1])])
    steps = strides[:-1] if storage_order else strides[-2::-1]
    numbers = xp.zeros(windows.size, np.int64)
    for axis, (n, step) in enumerate(zip(windows.size, steps, strict=True)):
        numbers += (xp.arange(n) * int(step)).reshape(-1, *(1,) * (len(steps) - 1 - axis))
    # Backwards, so that the first of equals has the last word; a NaN is the maximum.
    for _, where, positions in reversed(windows.taps):
        value = x[(..., *positions)]
        wins = (value == best[(..., *where)]) | (value != value)
        xp.copyto(places[(..., *where)], numbers[positions], where=wins)
    image = xp.arange(x.shape[0] * x.shape[1]) * int(strides[-1])
    places += image.reshape(*x.shape[:2], *(1,) * len(steps))
    return best, places


@op("AveragePool", like=[place], without=("ceil_mode", "count_include_pad", "dilations"))
@op("AveragePool", since=7, like=[place], without=("ceil_mode", "dilations"))
@op("AveragePool", since=10, like=[place], without=("dilations",))
@op("AveragePool", since=19, like=[place], shapes=POOLED)
@widened
def average_pool(
    xp: Namespace,
    X: Array,
    *,
    kernel_shape: tuple[int, ...],
    count_include_pad: int = 0,
    **attributes: Any,
) -> Array:
    """Return the mean of each window of X (N, C, D1, ...).

    Padding counts as zeros with ``count_include_pad``, else not at all; elements beyond
    the padding, which windows of ``ceil_mode`` reach, never count.
    """
    windows = place(X.shape[2:], kernel_shape, **attributes)
    divisor = windows.divisors(padding=bool(count_include_pad)).astype(X.dtype)
    even = divisor.size > 0 and divisor.min() == divisor.max()
    return pool(xp, X, windows, xp.add, 0) / (divisor.flat[0] if even else xp.asarray(divisor))


@op("LpPool", since=2, like=[place], without=("ceil_mode", "dilations"))
@op("LpPool", since=18, like=[place], shapes=POOLED)
@widened
def lp_pool(
    xp: Namespace,
    X: Array,
    *,
    kernel_shape: tuple[int, ...],
    p: float = 2,
    **attributes: Any,
) -> Array:
    """Return ``sum(|x| ** p) ** (1 / p)`` of each window of X (N, C, D1, ...)."""
    windows = place(X.shape[2:], kernel_shape, **attributes)
    return _root(xp, pool(xp, _power(xp, X, p), windows, xp.add, 0), p)


@op("LpPool", like=[lp_pool], without=("ceil_mode", "dilations"), shapes="X: N C D ...")
def lp_pool_1(
    xp: Namespace,
    X: Array,
    *,
    kernel_shape: tuple[int, ...] | None = None,
    p: float = 2.0,
    **attributes: Any,
) -> Array:
    """Return LpPool of a real p; without ``kernel_shape`` there is one window, the image."""
    return lp_pool(xp, X, kernel_shape=kernel_shape or X.shape[2:], p=p, **attributes)


def _power(xp: Namespace, x: Array, p: float) -> Array:
    if p == 2:
        return xp.square(x)
    magnitude = xp.abs(x)
    return magnitude if p == 1 else magnitude**p


def _root(xp: Namespace, x: Array, p: float) -> Array:
    if p == 2:
        return xp.sqrt(x)
    return x if p == 1 else x ** (1 / p)


def spatial(x: Array) -> tuple[int, ...]:
    """Return the axes after batch and channels."""
    return tuple(range(2, x.ndim))


@op("GlobalAveragePool", shapes="X: N C ...")
def global_average_pool(xp: Namespace, X: Array) -> Array:
    """Return the mean of each channel, (N, C, 1, ...)."""
    wide = X.astype(accumulator(X.dtype), copy=False)
    return mean(xp, wide, spatial(X), True).astype(X.dtype, copy=False)


@op("GlobalMaxPool", shapes="X: N C ...")
def global_max_pool(xp: Namespace, X: Array) -> Array:
    """Return the maximum of each channel, (N, C, 1, ...)."""
    return xp.max(X, axis=spatial(X), keepdims=True)


@op("GlobalLpPool")
@op("GlobalLpPool", since=2, shapes="X: N C ...")
@widened
def global_lp_pool(xp: Namespace, X: Array, *, p: float = 2) -> Array:
    """Return ``sum(|x| ** p) ** (1 / p)`` of each channel, (N, C, 1, ...)."""
    return _root(xp, xp.sum(_power(xp, X, p), axis=spatial(X), keepdims=True), p)


@op("MaxUnpool", since=9, host=(2,), shapes="X: N C D ...; I: *X; output_shape: len(X)")
def max_unpool(
    xp: Namespace,
    X: Array,
    I: Array,  # noqa: E741 - the specification's name
    output_shape: Array | None = None,
    *,
    kernel_shape: tuple[int, ...],
    pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
) -> Array:
    """Return zeros with each X where I says: MaxPool's indices into what it pooled.

    The indices refer to ``output_shape``, or else to the shape that kernel, strides and pads imply.

    Raises:
        ValueError: X and I differ in shape, or an index on the host is beyond that shape.
    """
    if X.shape != I.shape:
        raise ValueError(f"expected indices of X's shape {X.shape}, found {I.shape}")
    if output_shape is None:
        windows = place_transposed(X.shape[2:], kernel_shape, strides, pads=pads)
        shape = (*X.shape[:2], *windows.size)
    else:
        shape = tuple(map(int, output_shape))
        check_allocation(xp, shape, X.dtype)
    y = xp.zeros(shape, X.dtype)
    try:
        y.reshape(-1)[I.reshape(-1)] = X.reshape(-1)
    except IndexError:
        from tenonnx_array.index import refuse_outside

        refuse_outside(I, y.size, 0)
        raise
    return y
