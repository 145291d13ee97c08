"""Losses and optimizer steps: options that the backend suite leaves out."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from case import Case
from formula import RNG

TRAINING = "ai.onnx.preview.training"
SCORES = RNG.standard_normal((3, 5, 2)).astype(np.float32)
TARGET = np.array([[0, 4], [-1, 2], [3, -1]])
LEGAL = np.maximum(TARGET, 0).astype(np.int32)
WEIGHT = np.float32([1, 2, 3, 4, 5])


def losses(x: Any, target: Any, weight: Any, ignore: int | None = None) -> tuple[Any, Any]:
    """Each sample's weighted loss, and its weight."""
    loss, weights = np.zeros(target.shape), np.zeros(target.shape)
    for n, d in np.ndindex(*target.shape):
        if (label := target[n, d]) != ignore:
            weights[n, d] = weight[label]
            loss[n, d] = -x[n, label, d] * weight[label]
    return loss, weights


def mean(x: Any, target: Any, weight: Any, ignore: int | None = None) -> Any:
    loss, weights = losses(x, target, weight, ignore)
    return np.asarray(loss.sum() / weights.sum()).astype(x.dtype)


def log_softmax(x: Any) -> Any:
    wide = x.astype(float)
    return (wide - np.log(np.exp(wide).sum(1, keepdims=True))).astype(x.dtype)


RATE, COUNT, FIRST = np.float32(0.1), np.int64(3), np.int64(0)
ARRAYS = [
    RNG.standard_normal(shape).astype(np.float32) for _ in range(4) for shape in ((2,), (3, 2))
]
STATES = [np.abs(a) for a in ARRAYS]


def momentum(x: Any, g: Any, v: Any) -> tuple[Any, Any]:
    g = g + 0.01 * x
    v = 0.9 * v + 0.5 * g
    return x - 0.1 * (g + 0.9 * v), v


def adagrad(x: Any, g: Any, h: Any) -> tuple[Any, Any]:
    g = g + 0.01 * x
    h = h + g**2
    return x - 0.1 / (1 + 3 * 0.5) * g / (np.sqrt(h) + 1e-6), h


def adam(x: Any, g: Any, v: Any, h: Any) -> tuple[Any, Any, Any]:
    v, h = 0.9 * v + 0.1 * g, 0.999 * h + 0.001 * g**2
    rate = 0.1 * np.sqrt(1 - 0.999**3) / (1 - 0.9**3)
    return 0.8 * (x - rate * v / (np.sqrt(h) + 1e-6)), v, h


def two(step: Any, kinds: int) -> Any:
    """The step for two tensors, whose inputs and outputs alternate."""

    def run(_: Any, __: Any, *arrays: Any) -> Any:
        wide = [a.astype(float) for a in arrays]
        first, second = step(*wide[0 : 2 * kinds : 2]), step(*wide[1 : 2 * kinds : 2])
        flat = [y for pair in zip(first, second, strict=True) for y in pair]
        return tuple(y.astype(np.float32) for y in flat)

    return run


CASES = [
    Case("NegativeLogLikelihoodLoss", 12, [SCORES, LEGAL, WEIGHT], mean),
    Case(
        "NegativeLogLikelihoodLoss",
        12,
        [SCORES, TARGET, WEIGHT],
        lambda x, t, w: losses(x, t, w, -1)[0].astype(np.float32),
        {"ignore_index": -1, "reduction": "none"},
        name="none",
    ),
    Case(
        "NegativeLogLikelihoodLoss",
        22,
        [SCORES.astype(ml_dtypes.bfloat16), TARGET],
        lambda x, t: mean(x.astype(float), t, np.ones(5), -1).astype(ml_dtypes.bfloat16),
        {"ignore_index": -1},
        rtol=2**-8,
        name="bfloat16",
    ),
    Case(
        "SoftmaxCrossEntropyLoss",
        12,
        [200 * SCORES, LEGAL],
        lambda x, t: (
            mean(log_softmax(x.astype(np.longdouble)), t, np.ones(5)).astype(np.float32),
            log_softmax(x.astype(np.longdouble)).astype(np.float32),
        ),
    ),
    Case(
        "Momentum",
        1,
        [RATE, COUNT, *ARRAYS[:6]],
        two(momentum, 3),
        {"alpha": 0.9, "beta": 0.5, "mode": "nesterov", "norm_coefficient": 0.01},
        domain=TRAINING,
    ),
    Case(
        "Momentum",
        1,
        [RATE, FIRST, *np.float32([[1], [2], [4]])],
        (np.float32([0.4]), np.float32([6])),
        {"alpha": 1.0, "beta": 0.5, "mode": "standard", "norm_coefficient": 0.0},
        domain=TRAINING,
        name="first",
    ),
    Case(
        "Adagrad",
        1,
        [RATE, COUNT, *STATES[:6]],
        two(adagrad, 3),
        {"decay_factor": 0.5, "norm_coefficient": 0.01},
        domain=TRAINING,
    ),
    Case(
        "Adam",
        1,
        [RATE, COUNT, *STATES],
        two(adam, 4),
        {"norm_coefficient_post": 0.2},
        domain=TRAINING,
    ),
    Case(
        "Adam",
        1,
        [RATE, FIRST, *np.float64([[1], [2], [0], [0]])],
        (np.float64([1]), np.float64([0.2]), np.float64([0.004])),
        {"epsilon": 1e300},
        domain=TRAINING,
        name="first",
    ),
]
