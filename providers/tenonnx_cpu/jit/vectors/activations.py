"""Activations of a few instructions; those that need polynomials are in ``vmath``. NaN stays."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.jit.compiling import inlined

F = np.float32


@inlined
def relu(x: Any) -> Any:
    """max(x, 0)."""
    return F(0) if x < F(0) else x


@inlined
def leaky_relu(x: Any, slope: Any) -> Any:
    """``slope * x`` below zero, x above."""
    return x * slope if x < F(0) else x


@inlined
def thresholded_relu(x: Any, least: Any) -> Any:
    """The value above ``least``, else 0."""
    return x if x > least else F(0)


@inlined
def clip(x: Any, low: Any, high: Any) -> Any:
    """The value, or the bound that it is beyond."""
    x = low if x < low else x
    return high if x > high else x


@inlined
def hard_sigmoid(x: Any, alpha: Any, beta: Any) -> Any:
    """``alpha * x + beta``, limited to [0, 1]."""
    return clip(x * alpha + beta, F(0), F(1))


@inlined
def softsign(x: Any) -> Any:
    """X / (1 + |x|)."""
    return x / (F(1) + abs(x))
