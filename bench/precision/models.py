"""Cases of ai.onnx.ml: what is computed of features, in float32 whatever the input."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.precision.case import LARGEST, Array, Case, Sample, normal, spread, uniform
from bench.precision.pointwise import sigmoid, single
from bench.precision.rows import softmax

FEATURES: dict[str, Sample] = {
    "normal": [normal(64, 12)],
    "spread": [spread(1e-3, 1e3, 64, 12)],
    "long": [normal(4, 3000)],
    "two": [np.array([[1.7, 0.4]])],
}
FEW: dict[str, Sample] = {"normal": [normal(64, 6)]}
SINGLE = ("float32",)
LEARNED = "ai.onnx.ml"


def learned(
    op: str,
    samples: dict[str, Sample],
    exact: Any,
    name: str = "",
    terms: Any = None,
    **attributes: Any,
) -> Case:
    return Case(op, samples, exact, terms, attributes, name, LEARNED, 3, SINGLE)


COEFFICIENTS = uniform(-1, 1, 3, 6).astype(np.float32).astype(np.float64)
INTERCEPTS = uniform(-1, 1, 3).astype(np.float32).astype(np.float64)
FLAT: dict[str, Any] = {
    "coefficients": COEFFICIENTS.ravel().tolist(),
    "intercepts": INTERCEPTS.tolist(),
}


def scores(x: Array) -> Array:
    return np.asarray(x @ COEFFICIENTS.T + INTERCEPTS)


def linear(post: str, formula: Any, terms: Any = None) -> Case:
    return Case(
        "LinearRegressor",
        FEW,
        lambda x: formula(scores(x)),
        terms,
        FLAT | {"targets": 3, "post_transform": post},
        post,
        LEARNED,
        3,
        SINGLE,
    )


OFFSET = [single(value) for value in uniform(-1, 1, 12)]
SCALE = [single(value) for value in uniform(0.5, 2, 12)]

VECTORS = [single(value) for value in normal(10, 6).ravel()]
WEIGHTS = [single(value) for value in normal(10)]


GAMMA, CONSTANT = 0.25, 0.5


def machine(kind: str, kernel: Any) -> Case:
    """Return a machine whose kernel is a function of products and squared distances."""
    vectors, weights = np.reshape(VECTORS, (10, 6)), np.array(WEIGHTS)

    def exact(x: Array) -> Array:
        distances = ((x[:, None] - vectors) ** 2).sum(-1)
        return np.asarray(kernel(x @ vectors.T, distances) @ weights + 0.25)[:, None]

    attributes = {
        "kernel_type": kind,
        "kernel_params": [GAMMA, CONSTANT, 3.0],
        "n_supports": 10,
        "support_vectors": VECTORS,
        "coefficients": WEIGHTS,
        "rho": [0.25],
    }
    return Case("SVMRegressor", FEW, exact, LARGEST, attributes, kind, LEARNED, 3, SINGLE)


MACHINES = [
    machine("LINEAR", lambda product, _: product),
    machine("RBF", lambda _, distance: np.exp(-GAMMA * distance)),
    machine("POLY", lambda product, _: (GAMMA * product + CONSTANT) ** 3),
    machine("SIGMOID", lambda product, _: np.tanh(GAMMA * product + CONSTANT)),
]

CASES = [
    learned(
        "Normalizer",
        FEATURES,
        lambda x: x / np.sqrt((x * x).sum(-1, keepdims=True)),
        "L2",
        norm="L2",
    ),
    learned(
        "Normalizer", FEATURES, lambda x: x / np.abs(x).sum(-1, keepdims=True), "L1", norm="L1"
    ),
    learned(
        "Normalizer",
        {k: [np.abs(v[0])] for k, v in FEATURES.items() if v[0] is not None},
        lambda x: x / x.max(-1, keepdims=True),
        "MAX",
        norm="MAX",
    ),
    learned(
        "Scaler",
        {"normal": [normal(64, 12)]},
        lambda x: (x - OFFSET) * SCALE,
        terms=lambda x: (np.abs(x) + np.abs(OFFSET)) * SCALE,
        offset=OFFSET,
        scale=SCALE,
    ),
    linear("NONE", lambda s: s, lambda x: np.abs(x) @ np.abs(COEFFICIENTS).T + np.abs(INTERCEPTS)),
    linear("SOFTMAX", softmax),
    linear("LOGISTIC", sigmoid),
    *MACHINES,
]
