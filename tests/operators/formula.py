"""Oracles: the specification's formulas, evaluated in float64 and rounded once to the answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

RNG = np.random.default_rng(7)
X = RNG.standard_normal((2, 3, 4, 5)).astype(np.float32)
POSITIVE = np.abs(X) + np.float32(0.1)
UNIT = np.tanh(X)
SPECIAL = np.array([0.0, -0.0, 1.5, -1.5, np.inf, -np.inf, np.nan], np.float32)
CONSUMED = {"consumed_inputs": (0,)}


def in64(formula: Callable[..., Any]) -> Callable[..., Any]:
    def rounded(*inputs: Any) -> Any:
        with np.errstate(all="ignore"):
            wide = formula(*(np.asarray(i).astype(np.float64) for i in inputs))
        return np.asarray(wide).astype(inputs[0].dtype)

    return rounded
