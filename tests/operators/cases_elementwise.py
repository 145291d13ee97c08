"""Arithmetic at versions that the backend suite leaves out."""

from __future__ import annotations

import numpy as np
from case import Case

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 3, 4)).astype(np.float32)

CASES = [
    Case("Add", 7, [X, X[0]], np.add),
]
