"""Resize and Upsample: interpolation along one axis after another.

Coordinates of the nearest elements are computed in float32, as the operator's users have come to
see ties fall; those between elements in float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from tenonnx.operators import Array, Namespace, OperatorTable
from tenonnx_array.allocation import check_allocation
from tenonnx_array.interpolate import (
    Axis,
    as_dtype,
    coordinates,
    nearest,
    resample,
    taps,
    working_dtype,
)

table = OperatorTable()
op = table.op

LINEAR = ("linear", "bilinear")


@op(
    "Resize",
    since=11,
    host=(1, 2, 3),
    without=("antialias", "axes", "keep_aspect_ratio_policy"),
)
@op("Resize", since=18, host=(1, 2, 3))
def resize(
    xp: Namespace,
    X: Array,
    roi: Array | None = None,
    scales: Array | None = None,
    sizes: Array | None = None,
    *,
    antialias: int = 0,
    axes: tuple[int, ...] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Array:
    """Return X resized by ``scales`` or to ``sizes``, of all axes or those in ``axes``.

    Raises:
        ValueError: Not exactly one of scales and sizes is given, they do not fit the axes, or a
            mode is unknown.
    """
    along, outside = readings_of(
        xp,
        X,
        roi,
        scales,
        sizes,
        antialias=antialias,
        axes=axes,
        coordinate_transformation_mode=coordinate_transformation_mode,
        cubic_coeff_a=cubic_coeff_a,
        exclude_outside=exclude_outside,
        keep_aspect_ratio_policy=keep_aspect_ratio_policy,
        mode=mode,
        nearest_mode=nearest_mode,
    )
    y = _apply(xp, X, along, rounded=bool(antialias))
    for number, positions in outside.items():
        y[(slice(None),) * number + (xp.asarray(positions),)] = extrapolation_value
    return y


# The mode whose coordinates are those of a region of X, and may lie outside of X.
CROP = "tf_crop_and_resize"

# By axis: the elements that each result reads, and their weights, as `taps` has both; or the
# nearest ones, and `None`.
Readings: TypeAlias = dict[int, tuple[Array, "Array | None"]]


def readings_of(
    xp: Namespace,
    X: Array,
    roi: Array | None,
    scales: Array | None,
    sizes: Array | None,
    *,
    antialias: int = 0,
    axes: tuple[int, ...] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> tuple[Readings, dict[int, Array]]:
    """Return what ``resize`` reads along the axes that change, and what is beyond, by axis.

    Nothing depends on what is in X.

    Raises:
        ValueError: As ``resize`` does.
    """
    crop = coordinate_transformation_mode == CROP
    plan = changed_axes(
        X.shape, roi, scales, sizes, axes=axes, mode=mode,
        coordinate_transformation_mode=coordinate_transformation_mode,
        keep_aspect_ratio_policy=keep_aspect_ratio_policy,
    )  # fmt: skip
    _check_size(xp, X, plan)
    outside: dict[int, Any] = {}
    readings: dict[int, Any] = {}
    for number, axis in plan.items():
        dtype = np.float32 if mode == "nearest" else np.float64
        at = coordinates(axis, coordinate_transformation_mode, dtype)
        if crop and np.array_equal(at, np.arange(axis.length)):
            continue
        if crop and (beyond := np.nonzero((at < 0) | (at > axis.length - 1))[0]).size:
            outside[number] = beyond
        readings[number] = reading_of(
            at, axis, antialias=antialias, cubic_coeff_a=cubic_coeff_a,
            exclude_outside=exclude_outside, mode=mode, nearest_mode=nearest_mode,
        )  # fmt: skip
    return readings, outside


def changed_axes(
    shape: Sequence[int],
    roi: Array | None,
    scales: Array | None,
    sizes: Array | None,
    *,
    axes: tuple[int, ...] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    **_: Any,
) -> dict[int, Axis]:
    """Return the axes that ``resize`` reads otherwise than they are, and how each changes.

    Raises:
        ValueError: As ``resize`` does.
    """
    if mode not in ("nearest", "linear", "cubic"):
        raise ValueError(f"expected mode to be nearest, linear or cubic, found {mode!r}")
    crop, rank = coordinate_transformation_mode == CROP, len(shape)
    if axes is not None and not all(-rank <= axis < rank for axis in axes):
        raise ValueError(f"expected axes from {-rank} to {rank - 1}, those of X, found {axes}")
    axes = tuple(range(rank)) if axes is None else tuple(axis % rank for axis in axes)
    plan = _plan(shape, axes, roi if crop else None, scales, sizes, keep_aspect_ratio_policy)
    return {number: axis for number, axis in plan.items() if axis.scale != 1 or crop}


def reading_of(
    at: Array,
    axis: Axis,
    *,
    antialias: int = 0,
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
    **_: Any,
) -> tuple[Array, Array | None]:
    """Return the elements that results at some coordinates of an axis read, and their weights.

    Raises:
        ValueError: ``nearest_mode`` is unknown.
    """
    if mode == "nearest":
        return nearest(at, axis.length, nearest_mode), None
    return taps(
        at,
        axis.length,
        cubic_coeff_a=cubic_coeff_a if mode == "cubic" else None,
        stretch=max(1 / axis.scale, 1) if antialias else 1,
        exclude_outside=bool(exclude_outside),
    )


def _plan(
    shape: Sequence[int],
    axes: tuple[int, ...],
    roi: Array | None,
    scales: Array | None,
    sizes: Array | None,
    policy: str,
) -> dict[int, Axis]:
    """Return how each axis changes, also those that only a region of interest changes."""
    given = [values for values in (scales, sizes) if values is not None and values.size]
    if len(given) != 1:
        raise ValueError(
            f"expected either scales or sizes, found {('neither', 'both')[len(given) > 1]}"
        )
    if len(given[0]) != len(axes):
        raise ValueError(f"expected a number for each of {len(axes)} axes, found {given[0]}")
    if scales is not None and given[0] is scales and not min(scales, default=1) > 0:
        raise ValueError(f"expected scales greater than 0, found {scales.tolist()}")
    starts, ends = np.zeros(len(axes)), np.ones(len(axes))
    if roi is not None:
        starts, ends = roi[: len(axes)], roi[len(axes) :]
    lengths = [shape[axis] for axis in axes]
    if scales is not None and given[0] is scales:
        # The specification floors the product, whose float32 rounding decides: scales are float32.
        resized = np.floor(np.array(lengths, np.float32) * scales.astype(np.float32))
    else:
        resized = given[0]
        scales = np.array([r / n if n else 1 for r, n in zip(resized, lengths, strict=True)])
        if policy != "stretch":
            scales = np.full_like(scales, _kept(scales, policy))
            resized = np.floor(scales * lengths + 0.5)
    rows = zip(axes, lengths, resized, scales, starts, ends, strict=True)
    return {
        axis: Axis(length, int(size), float(scale), float(start), float(end))
        for axis, length, size, scale, start, end in rows
    }


def _check_size(xp: Namespace, x: Array, plan: dict[int, Axis]) -> None:
    resized = {number: axis.resized for number, axis in plan.items()}
    shape = [resized.get(number, length) for number, length in enumerate(x.shape)]
    check_allocation(xp, shape, working_dtype(x.dtype))


def _kept(scales: Array, policy: str) -> float:
    if policy not in ("not_larger", "not_smaller"):
        raise ValueError(
            "expected keep_aspect_ratio_policy to be stretch, not_larger or not_smaller, "
            f"found {policy!r}"
        )
    return float(np.min(scales) if policy == "not_larger" else np.max(scales))


def _apply(xp: Namespace, x: Array, readings: dict[int, Any], *, rounded: bool) -> Array:
    """Read along each axis: shrinking axes first, then growing ones from the last."""
    order = sorted(readings, key=lambda axis: (_growth(x, axis, readings[axis][0]), -axis))
    if not order:
        return x
    if readings[order[0]][1] is None:
        for axis in order:
            x = xp.take(x, xp.asarray(readings[axis][0]), axis=axis)
        return x
    y = x.astype(working_dtype(x.dtype), copy=False)
    for axis in order:
        y = resample(xp, y, axis, *readings[axis])
    return as_dtype(xp, y, x.dtype, rounded=rounded)


def _growth(x: Array, axis: int, indices: Array) -> float:
    return float(indices.shape[-1] / max(x.shape[axis], 1))


@op("Resize", since=10, host=(1,))
def resize_10(xp: Namespace, X: Array, scales: Array, *, mode: str = "nearest") -> Array:
    """Return X resized by ``scales``, as if every element sat at its lower corner.

    The nearest element is the one before, along an axis that shrinks the one after.
    """
    readings: dict[int, Any] = {}
    plan = _plan(X.shape, tuple(range(X.ndim)), None, scales, None, "")
    _check_size(xp, X, plan)
    for number, axis in plan.items():
        if axis.length == axis.resized and axis.scale == 1:
            continue
        if mode == "nearest":
            at = coordinates(axis, "asymmetric", np.float32)
            rounding = "ceil" if axis.scale < 1 else "floor"
            readings[number] = nearest(at, axis.length, rounding), None
        elif mode in LINEAR:
            at = coordinates(axis, "asymmetric", np.float64)
            readings[number] = taps(
                at, axis.length, cubic_coeff_a=None, stretch=1, exclude_outside=False
            )
        else:
            raise ValueError(f"expected mode to be nearest or linear, found {mode!r}")
    return _apply(xp, X, readings, rounded=False)


op("Upsample", since=9, host=(1,))(resize_10)


@op("Upsample", since=7)
def upsample_7(
    xp: Namespace, X: Array, *, scales: tuple[float, ...], mode: str = "nearest"
) -> Array:
    """Return X resized by ``scales``."""
    return resize_10(xp, X, np.array(scales, np.float32), mode=mode)


@op("Upsample")
def upsample_1(
    xp: Namespace, X: Array, *, height_scale: float, width_scale: float, mode: str = "nearest"
) -> Array:
    """Return X (N, C, H, W) resized by two scales."""
    return upsample_7(xp, X, scales=(1.0, 1.0, height_scale, width_scale), mode=mode)
