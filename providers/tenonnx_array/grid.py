"""Sampling at places that a grid names: GridSample, and AffineGrid that makes such grids."""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any

import numpy as np

from tenonnx.operators import Array, Namespace, OperatorTable
from tenonnx_array.allocation import check_allocation
from tenonnx_array.dtypes import accumulator
from tenonnx_array.interpolate import as_dtype, cubic_kernel, linear_kernel, working_dtype
from tenonnx_array.precision import widened

table = OperatorTable()
op = table.op

# Along one axis: indices, and the weight with which each is read.
Sides = list[tuple[Array, Array]]

CUBIC = functools.partial(cubic_kernel, a=-0.75)


@op("GridSample", since=20, shapes="X: N C ...; grid: N ... len(X)-2; len(grid) == len(X)")
def grid_sample(
    xp: Namespace,
    X: Array,
    grid: Array,
    *,
    align_corners: int = 0,
    mode: str = "linear",
    padding_mode: str = "zeros",
) -> Array:
    """Return X (N, C, D1, ..., Dr) at the places of ``grid`` (N, O1, ..., Or, r).

    Places are numbered from -1 to 1 along each axis, the innermost axis first. Coordinates that
    are not numbers lie outside.

    Raises:
        ValueError: The ranks do not fit, or a mode is unknown.
    """
    if X.ndim != grid.ndim or grid.shape[-1] != X.ndim - 2 or grid.shape[0] != X.shape[0]:
        raise ValueError(
            f"expected a grid of shape (N, ..., {X.ndim - 2}) of the rank of X {X.shape}, "
            f"found {grid.shape}"
        )
    if mode not in ("nearest", "linear", "cubic"):
        raise ValueError(f"expected mode to be nearest, linear or cubic, found {mode!r}")
    if padding_mode not in ("zeros", "border", "reflection"):
        raise ValueError(
            f"expected padding_mode to be zeros, border or reflection, found {padding_mode!r}"
        )
    dtype = X.dtype if mode == "nearest" else working_dtype(X.dtype)
    n, c, size = X.shape[0], X.shape[1], X.shape[2:]
    places = grid.reshape(n, math.prod(grid.shape[1:-1]), len(size))
    # Weights are what is left of a place without its whole part: float32 would lose digits of them.
    exact = xp is np and mode != "nearest"
    places = places.astype(np.float64 if exact else accumulator(grid.dtype), copy=False)
    axes = [
        sides(xp, places[:, :, -1 - axis], length, mode, padding_mode, bool(align_corners))
        for axis, length in enumerate(size)
    ]
    x = X.reshape(n, c, math.prod(size)).astype(dtype, copy=False)
    y = gather(xp, x, size, axes, exact=mode == "nearest")
    return as_dtype(xp, y, X.dtype, rounded=False).reshape(n, c, *grid.shape[1:-1])


@op("GridSample", since=16, like=[grid_sample])
def grid_sample_16(
    xp: Namespace, X: Array, grid: Array, *, mode: str = "bilinear", **attributes: Any
) -> Array:
    """Return GridSample with the two-dimensional names of the modes."""
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    return grid_sample(xp, X, grid, mode=mode, **attributes)


def sides(xp: Namespace, place: Array, length: int, mode: str, padding: str, align: bool) -> Sides:
    """Return what the places along one axis read there.

    Weights are zero for what lies outside if the padding is zeros.
    """
    low, high = (0.0, length - 1.0) if align else (-0.5, length - 0.5)
    at = (place + 1) * ((high - low) / 2) + low
    if padding == "reflection":
        at = xp.where(xp.isfinite(at), at, low)
        at = at if mode == "cubic" else xp.clip(reflect(xp, at, low, high), 0, length - 1)
    else:
        # Beyond this every tap is outside; it also keeps infinities out of the indices.
        at = xp.clip(at, -3, length + 2)
        at = xp.where(at == at, at, -3)
        at = xp.clip(at, 0, length - 1) if padding == "border" and mode != "cubic" else at
    if mode == "nearest":
        found = [(xp.rint(at), xp.ones_like(at))]
    else:
        offsets = (0, 1) if mode == "linear" else (-1, 0, 1, 2)
        kernel = linear_kernel if mode == "linear" else CUBIC
        taps = [xp.floor(at) + offset for offset in offsets]
        found = [(tap, kernel(xp, at - tap)) for tap in taps]
    return [bounded(xp, where, weight, length, padding, low, high) for where, weight in found]


def bounded(
    xp: Namespace, where: Array, weight: Array, length: int, padding: str, low: float, high: float
) -> tuple[Array, Array]:
    """Return indices within the axis, and weights of zero for those that were not."""
    if padding == "zeros":
        weight = weight * ((where >= 0) & (where < length))
    elif padding == "reflection":
        where = reflect(xp, where, low, high)
    return xp.clip(where, 0, length - 1).astype(xp.int64), weight


def reflect(xp: Namespace, at: Array, low: float, high: float) -> Array:
    """Return places reflected at the borders until they are within."""
    span = high - low
    if span <= 0:
        return xp.zeros_like(at)
    distance = xp.abs(at - low) % (2 * span)
    return xp.minimum(distance, 2 * span - distance) + low


def gather(
    xp: Namespace, x: Array, size: tuple[int, ...], axes: list[Sides], *, exact: bool
) -> Array:
    """Return the weighted sum over every combination of the axes' sides, (N, C, places).

    With ``exact`` there is one combination, and its weights are 0 or 1.
    """
    n, c, _ = x.shape
    shape = (n, c, axes[0][0][0].shape[1])
    y = xp.full(shape, "" if x.dtype == object else 0, x.dtype)
    for corner in itertools.product(*axes):
        index, factor = corner[0]
        for (where, weight), length in zip(corner[1:], size[1:], strict=True):
            index, factor = index * length + where, factor * weight
        for item in range(n):
            part = xp.take(x[item], index[item], axis=1)
            if exact:
                xp.copyto(y[item], part, where=factor[item] != 0)
            else:
                part *= factor[item].astype(x.real.dtype, copy=False)
                y[item] += part
    return y


@op("AffineGrid", since=20, host=(1,), shapes="theta: N 2 3 | N 3 4; size: theta[1]+2")
@widened
def affine_grid(xp: Namespace, theta: Array, size: Array, *, align_corners: int = 0) -> Array:
    """Return where ``theta`` (N, r, r + 1) maps the places of an image of shape ``size``.

    The result has shape (N, D1, ..., Dr, r), the innermost axis first.

    Raises:
        ValueError: ``theta`` and ``size`` do not fit each other.
    """
    shape = tuple(map(int, size))[2:]
    rank = len(shape)
    if theta.shape != (int(size[0]), rank, rank + 1):
        raise ValueError(
            f"expected theta of shape {(int(size[0]), rank, rank + 1)}, found {theta.shape}"
        )
    check_allocation(xp, (len(theta), *shape, rank + 1), theta.dtype)
    steps, rows = [], []
    # numpy writes into one array; not every library can, as jax.
    mapped = np.empty((len(theta), *shape, rank), theta.dtype) if xp is np else None
    for axis, length in enumerate(shape):
        step = 2 / max(length - 1, 1) if align_corners else 2 / length
        start = -1.0 if align_corners else step / 2 - 1
        places = (start + np.arange(length) * step).astype(theta.dtype)
        steps.append(xp.asarray(places).reshape(-1, *(1,) * (rank - 1 - axis)))
    # Only the last axis' sum is of all places.
    for row in range(rank):
        total = theta[:, row, rank].reshape(-1, *(1,) * rank)
        for axis, places in enumerate(steps):
            total = total + theta[:, row, rank - 1 - axis].reshape(-1, *(1,) * rank) * places
        if mapped is None:
            rows.append(total)
        else:
            mapped[..., row] = total
    return xp.stack(rows, axis=-1) if mapped is None else mapped
