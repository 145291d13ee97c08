"""Axes merged and split by their lengths, which holds for arrays without elements too.

``reshape(..., -1)`` cannot say how long an axis is where another one is 0.
"""

from __future__ import annotations

import math

from tenonnx.operators import Array


def merged(x: Array, first: int) -> Array:
    """Return x with its axes from ``first`` on as one."""
    return x.reshape(*x.shape[:first], math.prod(x.shape[first:]))


def split_last(x: Array, *parts: int) -> Array:
    """Return x with its last axis as axes of so many parts, and one of what each has.

    Raises:
        ValueError: The parts do not divide it.
    """
    return x.reshape(*x.shape[:-1], *parts, x.shape[-1] // max(1, math.prod(parts)))
