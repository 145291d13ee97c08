"""Normalization at versions, axes and types that the backend suite leaves out."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
from case import Case
from formula import CONSUMED, RNG, in64

BF16 = ml_dtypes.bfloat16
X = RNG.standard_normal((2, 6, 4, 3)).astype(np.float32)
SIX, SIX_MORE = (RNG.standard_normal(6).astype(np.float32) for _ in range(2))
THREE, THREE_MORE = SIX[:3], SIX_MORE[:3]
TABLE = RNG.standard_normal((4, 3)).astype(np.float32)


def standardized(x: Any, axes: tuple[int, ...], epsilon: float = 1e-5) -> Any:
    mean, var = x.mean(axis=axes, keepdims=True), x.var(axis=axes, keepdims=True)
    return (x - mean) / np.sqrt(var + epsilon)


def layer(axis: int, epsilon: float = 1e-5, stash: Any = np.float32) -> Any:
    def answer(x: Any, scale: Any, bias: Any = 0.0) -> Any:
        wide, axes = np.float64(x), tuple(range(axis % x.ndim, x.ndim))
        mean, var = wide.mean(axis=axes, keepdims=True), wide.var(axis=axes, keepdims=True)
        y = standardized(wide, axes, epsilon) * np.float64(scale) + np.float64(bias)
        return y.astype(x.dtype), mean.astype(stash), (1 / np.sqrt(var + epsilon)).astype(stash)

    return answer


def rms(axis: int, epsilon: float = 1e-5) -> Any:
    def answer(x: Any, scale: Any) -> Any:
        wide, axes = np.float64(x), tuple(range(axis % x.ndim, x.ndim))
        size = max(math.prod(x.shape[axis % x.ndim :]), 1)
        root = np.sqrt(np.sum(wide * wide, axis=axes, keepdims=True) / size + epsilon)
        return (wide / root * np.float64(scale)).astype(scale.dtype)

    return answer


def channels(values: Any) -> Any:
    return values[:, None, None]


@in64
def instance(x: Any, scale: Any, bias: Any) -> Any:
    return standardized(x, (2, 3)) * channels(scale) + channels(bias)


def group(groups: int, *, per_group: bool = False) -> Any:
    @in64
    def answer(x: Any, scale: Any, bias: Any) -> Any:
        y = standardized(x.reshape(len(x), groups, -1), (2,)).reshape(x.shape)
        repeats = x.shape[1] // groups if per_group else 1
        return y * channels(scale.repeat(repeats)) + channels(bias.repeat(repeats))

    return answer


def response(size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> Any:
    @in64
    def answer(x: Any) -> Any:
        y = np.empty_like(x)
        for c in range(x.shape[1]):
            low, high = max(0, c - (size - 1) // 2), min(x.shape[1] - 1, c + size // 2)
            squares = np.sum(x[:, low : high + 1] ** 2, axis=1)
            y[:, c] = x[:, c] / (bias + alpha / size * squares) ** beta
        return y

    return answer


ROUNDED = {"rtol": 2**-7, "atol": 2**-7}
STEEP = {"alpha": 2.0, "beta": 1.5, "bias": 0.5}
SHIFTED = X + np.float32(100)
WIDE = X.astype(np.float64)
EXACT = {"rtol": 1e-10, "atol": 1e-10}  # models have epsilons of float32

CASES = [
    Case("LayerNormalization", 17, [X, THREE], layer(-1), name="no-bias"),
    Case("LayerNormalization", 17, [X, TABLE, THREE], layer(2), {"axis": 2}, name="table"),
    Case("LayerNormalization", 17, [X, X[0], SIX[:1]], layer(1), {"axis": -3}, name="item"),
    Case(
        "LayerNormalization", 17, [SHIFTED, THREE], layer(-1), name="shifted", rtol=1e-4, atol=1e-4
    ),
    Case("LayerNormalization", 17, [X[:0], THREE], layer(-1), name="empty"),
    Case("LayerNormalization", 17, [WIDE, WIDE[0, 0, 0]], layer(-1), name="double", **EXACT),
    Case("RMSNormalization", 23, [WIDE, WIDE[0, 0, 0]], rms(-1), name="double", **EXACT),
    Case(
        "GroupNormalization",
        21,
        [WIDE, SIX.astype(np.float64), SIX_MORE.astype(np.float64)],
        group(2),
        {"num_groups": 2},
        name="double",
        **EXACT,
    ),
    Case(
        "LayerNormalization",
        17,
        [WIDE, WIDE[0, 0, 0]],
        layer(-1, 1e-3, np.float64),
        {"stash_type": 11, "epsilon": 1e-3},
        name="stash-double",
        rtol=1e-12,
    ),
    Case(
        "LayerNormalization",
        17,
        [X.astype(BF16), THREE.astype(BF16)],
        layer(-1),
        name="bfloat16",
        **ROUNDED,
    ),
    Case("RMSNormalization", 23, [X, TABLE], rms(2), {"axis": 2}, name="table"),
    Case("RMSNormalization", 23, [X, TABLE[:, :1]], rms(1, 0.1), {"axis": 1, "epsilon": 0.1}),
    Case("RMSNormalization", 23, [X.astype(np.float16), THREE], rms(-1), name="mixed", **ROUNDED),
    Case("RMSNormalization", 23, [X[..., :0], THREE[:0]], rms(-1), name="empty"),
    Case("InstanceNormalization", 1, [X, SIX, SIX_MORE], instance, CONSUMED),
    Case("InstanceNormalization", 6, [X, SIX, SIX_MORE], instance),
    Case(
        "GroupNormalization",
        18,
        [X, THREE, THREE_MORE],
        group(3, per_group=True),
        {"num_groups": 3},
    ),
    Case("GroupNormalization", 21, [X, SIX, SIX_MORE], group(2), {"num_groups": 2}),
    Case(
        "GroupNormalization", 21, [X, SIX, SIX_MORE], group(6), {"num_groups": 6}, name="channels"
    ),
    Case("LRN", 1, [X], response(3), {"size": 3}),
    Case("LRN", 1, [X], response(4, **STEEP), {"size": 4, **STEEP}, name="even"),
    Case("LRN", 13, [X], response(11, **STEEP), {"size": 11, **STEEP}, name="all"),
    Case("LRN", 13, [X], response(1, **STEEP), {"size": 1, **STEEP}, name="own"),
]
