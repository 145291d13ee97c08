"""Normalization by layer, instance, group, root mean square, and across channels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tenonnx.operators import Array, Namespace, OperatorTable
from tenonnx_array.accurate import inverse_root, summed
from tenonnx_array.dtypes import accumulator, dtype_of
from tenonnx_array.legacy import consuming
from tenonnx_array.precision import widened

table = OperatorTable()
op = table.op


def per_channel(values: Array, rank: int) -> Array:
    """Return one value per channel so that it broadcasts over [N, C, ...]."""
    return values.reshape(1, -1, *(1,) * (rank - 2))


def wide_scalar(value: float, dtype: Any) -> Any:
    """Return a scalar that does not widen an array of the dtype it is given."""
    return dtype(value) if isinstance(dtype, type) else dtype.type(value)


def mean_square(xp: Namespace, x: Array) -> Array:
    """Return the mean square along the last axis, which is kept."""
    return summed(xp, xp.square(x), (-1,), True) / max(x.shape[-1], 1)


def standardize(xp: Namespace, x: Array, axis: int, epsilon: float) -> tuple[Array, Array, Array]:
    """Return (x - mean) / sqrt(variance + epsilon) over the axes from ``axis`` on.

    Also the mean and the factor, with those axes as 1. The variance is that of the deviations,
    which loses nothing when the mean is large.
    """
    flat = x.reshape(*x.shape[:axis], math.prod(x.shape[axis:]))
    mean = summed(xp, flat, (-1,), True) / max(flat.shape[-1], 1)
    y = flat - mean
    factor = inverse_root(xp, mean_square(xp, y) + wide_scalar(epsilon, x.dtype))
    y *= factor
    kept = x.shape[:axis] + (1,) * (x.ndim - axis)
    return y.reshape(x.shape), mean.reshape(kept), factor.reshape(kept)


def scale_and_shift(y: Array, scale: Array, bias: Array | None) -> Array:
    """Return ``y * scale + bias`` in y's dtype; y is overwritten."""
    y *= scale.astype(y.dtype, copy=False)
    if bias is not None:
        y += bias.astype(y.dtype, copy=False)
    return y


def _stashed(x: Array, stash_type: int) -> Array:
    """Return x in the dtype of the first stage: float64 stays, as in onnxruntime."""
    wide = np.promote_types(accumulator(dtype_of(stash_type)), accumulator(x.dtype))
    return x.astype(wide, copy=False)


# Since 17 in ONNX; onnxruntime's optimizer writes it into models that import less.
@op(
    "LayerNormalization",
    since=1,
    multiple=True,
    shapes=("-len(x) <= axis < len(x); broadcasts(scale, x); bias is None or broadcasts(bias, x)"),
)
def layer_normalization(
    xp: Namespace,
    x: Array,
    scale: Array,
    bias: Array | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> tuple[Array, ...]:
    """Normalize over the axes from ``axis`` on; return Y, the means and 1 / deviations.

    ``stash_type`` is the dtype of the last two results and, unless x has more digits, of the first
    stage. Small dtypes compute in float32 and are rounded at the end, Y after scale and bias.
    """
    stash = dtype_of(stash_type)
    wide = _stashed(x, stash_type)
    y, mean, inverse = standardize(xp, wide, axis % x.ndim, epsilon)
    y = scale_and_shift(y.astype(accumulator(x.dtype), copy=False), scale, bias)
    return (
        y.astype(x.dtype, copy=False),
        mean.astype(stash, copy=False),
        inverse.astype(stash, copy=False),
    )


@op("RMSNormalization", since=23, shapes="-len(x) <= axis < len(x); broadcasts(scale, x)")
def rms_normalization(
    xp: Namespace,
    x: Array,
    scale: Array,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Array:
    """Divide by the root mean square over the axes from ``axis`` on, then scale.

    The result has the scale's dtype, to which it is rounded once.
    """
    axis %= x.ndim
    flat = x.reshape(*x.shape[:axis], math.prod(x.shape[axis:]))
    flat = _stashed(flat, stash_type)
    root = xp.sqrt(mean_square(xp, flat) + wide_scalar(epsilon, flat.dtype))
    y = (flat / root).reshape(x.shape).astype(accumulator(scale.dtype), copy=False)
    return scale_and_shift(y, scale, None).astype(scale.dtype, copy=False)


@op("InstanceNormalization", since=6, shapes="x: N C D ...; scale bias: C")
@widened
def instance_normalization(
    xp: Namespace, x: Array, scale: Array, bias: Array, *, epsilon: float = 1e-5
) -> Array:
    y, _, _ = standardize(xp, x, 2, epsilon)
    return scale_and_shift(y, per_channel(scale, x.ndim), per_channel(bias, x.ndim))


op("InstanceNormalization")(consuming(instance_normalization))


def in_groups(xp: Namespace, x: Array, groups: int, epsilon: float) -> Array:
    """Standardize every group of channels of every batch entry.

    Raises:
        ValueError: The channels do not divide into so many groups.
    """
    if groups < 1 or x.shape[1] % groups:
        raise ValueError(f"{x.shape[1]} channels do not divide into {groups} groups")
    grouped = x.reshape(x.shape[0], groups, math.prod(x.shape[1:]) // groups)
    return standardize(xp, grouped, 2, epsilon)[0].reshape(x.shape)


@op(
    "GroupNormalization",
    since=21,
    shapes="x: N C ...; scale bias: C; num_groups > 0 and C % num_groups == 0",
)
def group_normalization(
    xp: Namespace,
    x: Array,
    scale: Array,
    bias: Array,
    *,
    num_groups: int,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Array:
    wide = _stashed(x, stash_type)
    y = in_groups(xp, wide, num_groups, epsilon).astype(accumulator(x.dtype), copy=False)
    y = scale_and_shift(y, per_channel(scale, x.ndim), per_channel(bias, x.ndim))
    return y.astype(x.dtype, copy=False)


@op(
    "GroupNormalization",
    since=18,
    shapes="x: N C ...; scale bias: num_groups; num_groups > 0 and C % num_groups == 0",
)
@widened
def group_normalization_18(
    xp: Namespace,
    x: Array,
    scale: Array,
    bias: Array,
    *,
    num_groups: int,
    epsilon: float = 1e-5,
) -> Array:
    """Take one scale and bias per group."""
    y = in_groups(xp, x, num_groups, epsilon)
    repeats = x.shape[1] // num_groups
    scale, bias = xp.repeat(scale, repeats), xp.repeat(bias, repeats)
    return scale_and_shift(y, per_channel(scale, x.ndim), per_channel(bias, x.ndim))


@op("LRN", since=1, shapes="x: N C ...")
@widened
def lrn(
    xp: Namespace,
    x: Array,
    *,
    size: int,
    alpha: float = 1e-4,
    beta: float = 0.75,
    bias: float = 1.0,
) -> Array:
    """Divide by a power of the squares summed over ``size`` neighboring channels."""
    before, after = (size - 1) // 2, size // 2
    padding = [(0, 0), (before, after), *[(0, 0)] * (x.ndim - 2)]
    squares = xp.pad(x * x, padding)
    channels = x.shape[1]
    total = squares[:, :channels].copy()
    for offset in range(1, size):
        total += squares[:, offset : offset + channels]
    return x / (bias + alpha / size * total) ** beta
