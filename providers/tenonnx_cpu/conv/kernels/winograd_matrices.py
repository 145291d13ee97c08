"""The matrices of convolutions by tiles, and how their weights lie. Imported without numba."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

NDArray: TypeAlias = np.ndarray[Any, Any]

KERNEL = 3
# Output channels side by side in transformed weights, the last ones zeros if there are fewer.
WINOGRAD_CHANNELS = 32

# Floats of a thread's memory that say what is in it.
HEAD_FLOATS = 16

# Finite points per size of tile; infinity is one more.
POINTS = {2: (0.0, 1.0, -1.0), 4: (0.0, 0.6875, -0.6875, 1.5, -1.5)}


@dataclass(frozen=True)
class Matrices:
    """``A^T``, ``G`` and ``B^T`` for tiles of a size, in float64."""

    results: NDArray
    weights: NDArray
    image: NDArray


@functools.cache
def matrices(size: int) -> Matrices:
    """Return the matrices for tiles of a size.

    Polynomials are multiplied by their values at points; ``B^T`` holds the polynomials that vanish
    at all points but one. Rows of ``G`` are scaled by powers of two to magnitudes about 1, rows of
    ``B^T`` by the opposite.
    """
    points = POINTS[size]
    count = size + KERNEL - 1
    results, weights, image = (
        np.zeros(s) for s in ((size, count), (count, KERNEL), (count, count))
    )
    for i, point in enumerate(points):
        others = [other for other in points if other != point]
        results[:, i] = point ** np.arange(size)
        weights[i] = point ** np.arange(KERNEL) / math.prod(point - other for other in others)
        image[i, : count - 1] = np.poly(others)[::-1]
    results[-1, -1] = weights[-1, -1] = 1
    image[-1] = np.poly(points)[::-1]
    scale = 2.0 ** np.round(np.log2(np.abs(weights).max(axis=1, keepdims=True)))
    return Matrices(results, weights / scale, image * scale)
