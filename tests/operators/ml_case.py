"""Functions for the cases of ai.onnx.ml."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from case import Case

MlCase = partial(Case, domain="ai.onnx.ml")
X = np.array([[1, -2, 0.5], [-1, -3, -2], [0, 0, 0], [0.25, 4, 1]], np.float32)
INTS = np.array([[1, -2, 5], [7, 0, -3]], np.int64)


def f32(*values: Any) -> Any:
    return np.array(values, np.float32)


def text(*values: Any) -> Any:
    return np.array(values, object)


def floats(array: Any) -> tuple[float, ...]:
    return tuple(np.ravel(array).tolist())


def softmax(scores: Any) -> Any:
    exp = np.exp(scores.astype(np.float64))
    return (exp / exp.sum(axis=1, keepdims=True)).astype(np.float32)


def logistic(scores: Any) -> Any:
    return (1 / (1 + np.exp(-scores.astype(np.float64)))).astype(np.float32)
