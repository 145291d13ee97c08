"""Normalisation by layer, instance, group, root mean square, and across channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenonnx.operators import Array, Namespace, OperatorTable
from tenonnx_array.dtypes import dtype_of
from tenonnx_array.precision import widened

table = OperatorTable()
op = table.op


def per_channel(values: Array, rank: int) -> Array:
    """Returns one value per channel so that it broadcasts over [N, C, ...]."""
    return values.reshape(1, -1, *(1,) * (rank - 2))


def wide_scalar(value: float, dtype: Any) -> Any:
    """Returns a scalar that does not widen an array of the dtype it is given."""
    return dtype(value) if isinstance(dtype, type) else dtype.type(value)


def standardise(
    xp: Namespace, x: Array, axes: tuple[int, ...], epsilon: float
) -> tuple[Array, Array, Array]:
    """Returns (x - mean) / sqrt(variance + epsilon), the mean, and the factor."""
    mean = xp.mean(x, axis=axes, keepdims=True)
    centred = x - mean
    variance = xp.mean(centred * centred, axis=axes, keepdims=True)
    inverse = 1 / xp.sqrt(variance + wide_scalar(epsilon, x.dtype))
    centred *= inverse
    return centred, mean, inverse


@op("LayerNormalization", since=17, multiple=True)
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
    axes = tuple(range(axis % x.ndim, x.ndim))
    stash = dtype_of(stash_type)
    normal, mean, inverse = standardise(xp, x.astype(stash, copy=False), axes, epsilon)
    normal = normal.astype(x.dtype, copy=False)
    y = normal * scale
    if bias is not None:
        y = y + bias
    return y.astype(x.dtype, copy=False), mean, inverse


@op("RMSNormalization", since=23)
def rms_normalization(
    xp: Namespace,
    x: Array,
    scale: Array,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Array:
    axes = tuple(range(axis % x.ndim, x.ndim))
    wide = x.astype(dtype_of(stash_type), copy=False)
    square = xp.mean(wide * wide, axis=axes, keepdims=True)
    normal = wide / xp.sqrt(square + wide_scalar(epsilon, wide.dtype))
    return (normal.astype(x.dtype, copy=False) * scale).astype(x.dtype, copy=False)


@op("InstanceNormalization", since=6)
@widened
def instance_normalization(
    xp: Namespace, x: Array, scale: Array, bias: Array, *, epsilon: float = 1e-5
) -> Array:
    y, _, _ = standardise(xp, x, tuple(range(2, x.ndim)), epsilon)
    return y * per_channel(scale, x.ndim) + per_channel(bias, x.ndim)


@op("InstanceNormalization", since=1)
def instance_normalization_1(
    xp: Namespace,
    x: Array,
    scale: Array,
    bias: Array,
    *,
    consumed_inputs: Sequence[int] = (),
    epsilon: float = 1e-5,
) -> Array:
    del consumed_inputs
    return instance_normalization(xp, x, scale, bias, epsilon=epsilon)


def in_groups(xp: Namespace, x: Array, groups: int, epsilon: float) -> Array:
    """Standardises every group of channels of every batch entry."""
    if x.shape[1] % groups:
        raise ValueError(f"{x.shape[1]} channels do not divide into {groups} groups")
    grouped = x.reshape(x.shape[0], groups, -1)
    return standardise(xp, grouped, (2,), epsilon)[0].reshape(x.shape)


@op("GroupNormalization", since=21)
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
    wide = x.astype(dtype_of(stash_type), copy=False)
    y = in_groups(xp, wide, num_groups, epsilon).astype(x.dtype, copy=False)
    y = y * per_channel(scale, x.ndim) + per_channel(bias, x.ndim)
    return y.astype(x.dtype, copy=False)


@op("GroupNormalization", since=18)
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
    """Takes one scale and bias per group."""
    repeats = x.shape[1] // num_groups
    y = in_groups(xp, x, num_groups, epsilon)
    scale, bias = xp.repeat(scale, repeats), xp.repeat(bias, repeats)
    return y * per_channel(scale, x.ndim) + per_channel(bias, x.ndim)


@op("LRN", since=1)
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
    """Divides by a power of the squares summed over ``size`` neighbouring channels."""
    before, after = (size - 1) // 2, size // 2
    padding = [(0, 0), (before, after), *[(0, 0)] * (x.ndim - 2)]
    squares = xp.pad(x * x, padding)
    channels = x.shape[1]
    total = squares[:, :channels].copy()
    for offset in range(1, size):
        total += squares[:, offset : offset + channels]
    return x / (bias + alpha / size * total) ** beta
