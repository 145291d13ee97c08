"""BatchNormalization of every version.

Inference folds the four parameters into one scale and one shift per channel.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx.operators import Array, Namespace, OperatorTable
from tenonnx_array.dtypes import accumulator
from tenonnx_array.legacy import consuming

table = OperatorTable()
op = table.op


def normalize(
    xp: Namespace, x: Array, scale: Array, bias: Array, mean: Array, var: Array, epsilon: float
) -> Array:
    """Return ``(x - mean) / sqrt(var + epsilon) * scale + bias`` in x's dtype.

    The parameters have one value per channel, or the shape of an item of x. All is computed in
    the widest of the dtypes, at least float32.
    """
    wide = _wide(x, scale, mean)
    scale, bias, mean, var = (p.astype(wide, copy=False) for p in (scale, bias, mean, var))
    factor = scale / xp.sqrt(var + wide.type(epsilon))
    shift = bias - mean * factor
    y = x * _placed(factor, x)
    y += _placed(shift, x)
    return y.astype(x.dtype, copy=False)


def _wide(*arrays: Array) -> np.dtype[Any]:
    return np.result_type(*(accumulator(a.dtype) for a in arrays))


def _placed(parameter: Array, x: Array) -> Array:
    """Return the parameter in a shape that broadcasts against x; a 1-D x has one channel."""
    if x.ndim < 2 or parameter.ndim > 1:
        return parameter
    return parameter.reshape(-1, *(1,) * (x.ndim - 2))


def train(
    xp: Namespace,
    x: Array,
    scale: Array,
    bias: Array,
    mean: Array,
    var: Array,
    *,
    epsilon: float,
    momentum: float,
    spatial: int = 1,
) -> tuple[Array, Array, Array, Array, Array]:
    """Normalize by x's own statistics: y, the running mean and variance, and x's own.

    The variance is the population's. Without ``spatial`` every position has its own statistics.
    """
    wide = _wide(x, scale, mean)
    axes = tuple(axis for axis in range(x.ndim) if axis != 1) if spatial else 0
    wide_x = x.astype(wide, copy=False)
    own_mean = xp.mean(wide_x, axis=axes, keepdims=True)
    own_var = xp.mean(xp.square(wide_x - own_mean), axis=axes, keepdims=True)
    own_mean, own_var = own_mean.reshape(mean.shape), own_var.reshape(mean.shape)
    y = normalize(xp, x, scale, bias, own_mean, own_var, epsilon)
    running = (
        (old.astype(wide, copy=False) * momentum + own * (1 - momentum)).astype(mean.dtype)
        for old, own in ((mean, own_mean), (var, own_var))
    )
    return y, *running, own_mean.astype(mean.dtype), own_var.astype(mean.dtype)


@op(
    "BatchNormalization",
    since=14,
    multiple=True,
    shapes="X: N C ...; scale B input_mean input_var: C",
)
def batch_normalization(
    xp: Namespace,
    X: Array,
    scale: Array,
    B: Array,
    input_mean: Array,
    input_var: Array,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
) -> tuple[Array, ...]:
    """Return X normalized per channel; when training, also the running mean and variance."""
    parameters = (scale, B, input_mean, input_var)
    if training_mode:
        return train(xp, X, *parameters, epsilon=epsilon, momentum=momentum)[:3]
    return (normalize(xp, X, *parameters, epsilon),)


@op("BatchNormalization", since=9, multiple=True, without=("spatial",))
@op(
    "BatchNormalization",
    since=7,
    multiple=True,
    shapes=(
        "X: N ...; C = X[1] if len(X) > 1 else 1; scale B mean var: C if spatial; "
        "scale B mean var: *X[1:] if not spatial"
    ),
)
def batch_normalization_7(
    xp: Namespace,
    X: Array,
    scale: Array,
    B: Array,
    mean: Array,
    var: Array,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    spatial: int = 1,
    _outputs: int = 1,
) -> tuple[Array, ...]:
    """Return X normalized; training is told by the number of outputs.

    Without ``spatial`` the parameters have the shape of an item.
    """
    if _outputs > 1:
        return train(
            xp, X, scale, B, mean, var, epsilon=epsilon, momentum=momentum, spatial=spatial
        )
    return (normalize(xp, X, scale, B, mean, var, epsilon),)


@op(
    "BatchNormalization",
    since=6,
    multiple=True,
    shapes=(
        "X: N ...; C = X[1] if len(X) > 1 else 1; scale B mean var: C if spatial; "
        "scale B mean var: *X[1:] | prod(X[1:]) if not spatial"
    ),
)
def batch_normalization_6(
    xp: Namespace,
    X: Array,
    scale: Array,
    B: Array,
    mean: Array,
    var: Array,
    *,
    epsilon: float = 1e-5,
    is_test: int = 0,
    momentum: float = 0.9,
    spatial: int = 1,
) -> tuple[Array, ...]:
    """Return X normalized, by its own statistics unless ``is_test``.

    Without ``spatial`` the parameters are those of each position, in the shape of an item or flat.
    """
    if not spatial:
        scale, B, mean, var = (p.reshape(X.shape[1:]) for p in (scale, B, mean, var))
    if is_test:
        return (normalize(xp, X, scale, B, mean, var, epsilon),)
    return train(xp, X, scale, B, mean, var, epsilon=epsilon, momentum=momentum, spatial=spatial)


op("BatchNormalization", multiple=True)(consuming(batch_normalization_6))
