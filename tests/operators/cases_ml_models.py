"""Linear models, support vectors and post transforms: the formulas of their descriptions."""

from __future__ import annotations

import math
from functools import partial
from statistics import NormalDist
from typing import Any

import numpy as np
from ml_case import INTS, MlCase, X, f32, floats, logistic, softmax, text

WEIGHTS = np.array([[1, 0.5, -1], [0.5, -0.25, 2]], np.float32)
BIAS = np.array([0.25, -0.5], np.float32)
SCORES = X @ WEIGHTS.T + BIAS


def normal_quantile(p: float) -> float:
    if not 0 < p < 1:
        return {0: -math.inf, 1: math.inf}.get(p, math.nan)
    return NormalDist().inv_cdf(p)


AFFINE = {"coefficients": floats(WEIGHTS), "intercepts": floats(BIAS)}
SECOND = {"coefficients": floats(WEIGHTS[1]), "intercepts": floats(BIAS[1])}
LINEAR = [
    MlCase("LinearRegressor", 1, [X], SCORES, {"targets": 2, **AFFINE}),
    MlCase(
        "LinearRegressor",
        1,
        [INTS],
        lambda x: (x @ WEIGHTS[:1].T).astype(np.float32),
        {"coefficients": floats(WEIGHTS[0])},
        name="ints",
    ),
    MlCase(
        "LinearRegressor",
        1,
        [X],
        logistic(SCORES[:, 1:]),
        {**SECOND, "post_transform": "LOGISTIC"},
        name="logistic",
    ),
    MlCase(
        "LinearClassifier",
        1,
        [X],
        (text("b", "a", "a", "a"), softmax(SCORES)),
        {**AFFINE, "classlabels_strings": ("a", "b"), "post_transform": "SOFTMAX"},
    ),
    MlCase(
        "LinearClassifier",
        1,
        [X],
        (np.where(SCORES[:, 1] > 0, 9, 5), np.stack([1 - SCORES[:, 1], SCORES[:, 1]], 1)),
        {**SECOND, "classlabels_ints": (5, 9)},
        name="pair",
    ),
    MlCase(
        "LinearClassifier",
        1,
        [X],
        (
            np.where(SCORES[:, 1] > 0, 9, 5),
            logistic(np.stack([-SCORES[:, 1], SCORES[:, 1]], 1)),
        ),
        {**SECOND, "classlabels_ints": (5, 9), "post_transform": "LOGISTIC"},
        name="logistic-pair",
    ),
]

P = f32([0.25, 0.5, 1e-6], [1, 0, 2], [0.999, 0.01, -1], [0.6, 0.4, 1e-30])
IDENTITY = floats(np.eye(3))
TRANSFORMS = [
    MlCase(
        "LinearRegressor",
        1,
        [P],
        lambda p: np.vectorize(normal_quantile)(p.astype(np.float64)).astype(np.float32),
        {"coefficients": IDENTITY, "targets": 3, "post_transform": "PROBIT"},
        name="probit",
    ),
    MlCase(
        "LinearRegressor",
        1,
        [f32([1, 0, 0], [0, 0, 0], [np.log(3), 0, -1000])],
        f32([1, 0, 0], [0, 0, 0], [1, 0, 0]),
        {"coefficients": IDENTITY, "targets": 3, "post_transform": "SOFTMAX_ZERO"},
        name="softmax-zero",
    ),
    MlCase(
        "LinearRegressor",
        1,
        [f32([1000, 0, -1000])],
        f32([1, 0.5, 0]),
        {"coefficients": IDENTITY, "targets": 3, "post_transform": "LOGISTIC"},
        name="logistic-extremes",
    ),
    MlCase(
        "LinearRegressor",
        1,
        [f32([1000, 1000, -1000])],
        f32([0.5, 0.5, 0]),
        {"coefficients": IDENTITY, "targets": 3, "post_transform": "SOFTMAX"},
        name="softmax-extremes",
    ),
]

VECTORS = f32([1, 0, 1], [0, 1, 0], [2, -1, 0.5])
ALPHA = f32(0.5, -1, 0.25)
SIMILAR = {
    "LINEAR": lambda x: x @ VECTORS.T,
    "POLY": lambda x: (0.5 * (x @ VECTORS.T) + 0.25) ** 3,
    "RBF": lambda x: np.exp(-0.5 * ((x[:, None] - VECTORS) ** 2).sum(axis=2)),
    "SIGMOID": lambda x: np.tanh(0.5 * (x @ VECTORS.T) + 0.25),
}
SUPPORTS = {"support_vectors": floats(VECTORS), "kernel_params": (0.5, 0.25, 3.0)}


def machine(x: Any, kernel: str = "LINEAR") -> Any:
    return (SIMILAR[kernel](x.astype(np.float64)) @ ALPHA[:, None] - 0.125).astype(np.float32)


REGRESSION = {"coefficients": floats(ALPHA), "rho": (-0.125,), "n_supports": 3, **SUPPORTS}
# Classes of one vector each: rows of coefficients against the first and the second other class.
DUAL = f32([0.5, -1, 0.25], [1, 0.75, -0.5])
RHO = f32(0.25, -0.5, 0.125)


def one_versus_one(x: Any) -> Any:
    k = SIMILAR["RBF"](x.astype(np.float64))
    first = k[:, 0] * DUAL[0, 0] + k[:, 1] * DUAL[0, 1]
    second = k[:, 0] * DUAL[1, 0] + k[:, 2] * DUAL[0, 2]
    third = k[:, 1] * DUAL[1, 1] + k[:, 2] * DUAL[1, 2]
    return (np.stack([first, second, third], 1) + RHO).astype(np.float32)


def votes(decisions: Any) -> Any:
    won = np.where(decisions > 0, [0, 0, 1], [1, 2, 2])
    return np.array([np.bincount(row, minlength=3).argmax() for row in won])


MACHINES = [
    *(
        MlCase(
            "SVMRegressor",
            1,
            [X],
            partial(machine, kernel=kernel),
            {**REGRESSION, "kernel_type": kernel},
            name=kernel,
        )
        for kernel in SIMILAR
    ),
    MlCase(
        "SVMRegressor",
        1,
        [X],
        lambda x: np.sign(machine(x)),
        {**REGRESSION, "one_class": 1},
        name="one-class",
    ),
    MlCase(
        "SVMRegressor",
        1,
        [INTS],
        lambda x: (x @ WEIGHTS[0] + 0.5).astype(np.float32)[:, None],
        {"coefficients": floats(WEIGHTS[0]), "rho": (0.5,)},
        name="without-vectors",
    ),
    MlCase(
        "SVMClassifier",
        1,
        [X],
        lambda x: (10 + votes(one_versus_one(x)), one_versus_one(x)),
        {
            "classlabels_ints": (10, 11, 12),
            "coefficients": floats(DUAL),
            "kernel_type": "RBF",
            "rho": floats(RHO),
            "vectors_per_class": (1, 1, 1),
            **SUPPORTS,
        },
    ),
    MlCase(
        "SVMClassifier",
        1,
        [X],
        lambda x: (
            np.where(machine(x)[:, 0] > 0, "n", "p").astype(object),
            np.hstack([-machine(x), machine(x)]),
        ),
        {
            "classlabels_strings": ("n", "p"),
            "coefficients": floats(ALPHA),
            "rho": (-0.125,),
            "vectors_per_class": (2, 1),
            **SUPPORTS,
        },
        name="pair",
    ),
    MlCase(
        "SVMClassifier",
        1,
        [X],
        (SCORES.argmax(axis=1), softmax(X @ WEIGHTS.T)),
        {
            "classlabels_ints": (0, 1),
            "coefficients": floats(WEIGHTS),
            "post_transform": "SOFTMAX",
        },
        name="without-vectors",
    ),
]

CASES = [*LINEAR, *TRANSFORMS, *MACHINES]
