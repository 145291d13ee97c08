"""Interpolation along one axis: which elements each result reads, and with what weights.

All of this is host arithmetic on a few numbers per axis; ``resample`` alone touches the data.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tenonnx.operators import Array, Namespace
from tenonnx_array.dtypes import FLOATS, accumulator


class Axis(NamedTuple):
    """The change of one axis: its lengths, and the scale and region that the node gives."""

    length: int
    resized: int
    scale: float
    start: float = 0.0
    end: float = 1.0


def coordinates(axis: Axis, mode: str, dtype: Any) -> Array:
    """Return where in the original every element of the result lies, by the specification.

    Raises:
        ValueError: The mode is unknown.
    """
    n, count, scale = axis.length, axis.resized, dtype(axis.scale)
    x = np.arange(count, dtype=dtype)
    half_pixel = (x + dtype(0.5)) / scale - dtype(0.5)
    match mode:
        case "half_pixel":
            return half_pixel
        case "half_pixel_symmetric":
            offset = dtype(n) / 2 * (1 - dtype(count) / (scale * dtype(n)))
            return offset + (x + dtype(0.5)) / scale - dtype(0.5)
        case "pytorch_half_pixel":
            return half_pixel if count > 1 else np.zeros_like(x)
        case "align_corners":
            return x * dtype(n - 1) / dtype(count - 1) if count > 1 else np.zeros_like(x)
        case "asymmetric":
            return x / scale
        case "tf_half_pixel_for_nn":
            return (x + dtype(0.5)) / scale
        case "tf_crop_and_resize":
            if count == 1:
                return np.full_like(x, 0.5 * (axis.start + axis.end) * (n - 1))
            step = (axis.end - axis.start) * (n - 1)
            return dtype(axis.start * (n - 1)) + x * dtype(step) / dtype(count - 1)
    raise ValueError(f"expected a coordinate transformation of the specification, found {mode!r}")


# ``nearest_mode`` to the rounding of a coordinate.
ROUNDING: dict[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda x: np.ceil(x - x.dtype.type(0.5)),
    "round_prefer_ceil": lambda x: np.floor(x + x.dtype.type(0.5)),
    "floor": np.floor,
    "ceil": np.ceil,
}


def nearest(at: Array, length: int, mode: str) -> Array:
    """Return the nearest element to each coordinate.

    Raises:
        ValueError: The mode is unknown.
    """
    if mode not in ROUNDING:
        raise ValueError(f"expected nearest_mode to be {', '.join(ROUNDING)}, found {mode!r}")
    return np.minimum(np.maximum(ROUNDING[mode](at), 0), length - 1).astype(np.int64)


def linear_kernel(xp: Namespace, distance: Array) -> Array:
    """Return the weight of an element at a distance: a triangle."""
    return xp.maximum(1 - xp.abs(distance), 0)


def cubic_kernel(xp: Namespace, distance: Array, a: float) -> Array:
    """Return the weight of an element at a distance.

    Source: equation 4 of https://ieeexplore.ieee.org/document/1163711.
    """
    d = xp.abs(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = a * (((d - 5) * d + 8) * d - 4)
    return xp.where(d <= 1, near, xp.where(d < 2, far, 0))


def taps(
    at: Array,
    length: int,
    *,
    cubic_coeff_a: float | None,
    stretch: float,
    exclude_outside: bool,
) -> tuple[Array, Array]:
    """Return which elements each coordinate reads and their weights, both (taps, coordinates).

    Elements beyond the borders are those of the border, or do not count.

    Args:
        at: The coordinates, in float64.
        length: Of the axis.
        cubic_coeff_a: Of the cubic kernel; None means the linear one.
        stretch: How much wider than an element the kernel is, against aliasing.
        exclude_outside: Share the weights of what is outside among the others.
    """
    reach = math.ceil((1 if cubic_coeff_a is None else 2) * stretch)
    where = np.floor(at) + np.arange(1 - reach, reach + 1, dtype=np.float64)[:, None]
    distance = (where - at) / stretch
    if cubic_coeff_a is None:
        weights = linear_kernel(np, distance)
    else:
        weights = cubic_kernel(np, distance, cubic_coeff_a)
    if exclude_outside:
        weights = np.where((where >= 0) & (where < length), weights, 0)
    if exclude_outside or stretch > 1:
        weights = weights / np.sum(weights, axis=0)
    used = np.any(weights != 0, axis=1) | (at.size == 0)
    return np.clip(where[used], 0, length - 1).astype(np.int64), weights[used]


def resample(xp: Namespace, x: Array, axis: int, indices: Array, weights: Array) -> Array:
    """Return weighted sums of elements along an axis of a floating or complex x."""
    weights = weights.astype(x.real.dtype).reshape(*weights.shape, *(1,) * (x.ndim - 1 - axis))
    y = None
    for index, weight in zip(xp.asarray(indices), xp.asarray(weights), strict=True):
        part = xp.take(x, index, axis=axis)
        part *= weight
        if y is None:
            y = part
        else:
            y += part
    return y


def working_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype to interpolate in: float64 for integers and booleans."""
    is_inexact = dtype in FLOATS or dtype.kind == "c"
    return accumulator(dtype) if is_inexact else np.dtype(np.float64)


def as_dtype(xp: Namespace, y: Array, dtype: np.dtype[Any], *, rounded: bool) -> Array:
    """Return interpolated values in the dtype they came from.

    Integers are clipped to their range and truncated, or rounded; a result that rounding errors
    put just below a whole number counts as that number.
    """
    if dtype in FLOATS or dtype.kind not in "iu":
        return y.astype(dtype, copy=False)
    y = xp.rint(y) if rounded else xp.trunc(y + xp.copysign(1e-9, y))
    limits = np.iinfo(dtype)
    return xp.clip(y, limits.min, limits.max).astype(dtype)
