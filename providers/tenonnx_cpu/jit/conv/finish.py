"""Activations of what a convolution has written, and those that are done by clipping before."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.activation import CLIP, HARD_SIGMOID, HARD_SWISH, RELU
from tenonnx_cpu.jit.compiling import helper
from tenonnx_cpu.jit.products.epilogue import activate, clip


@helper
def apply(row: Any, activation: Any, first: Any, second: Any) -> None:
    """Applies an activation that is not done by clipping to a row, in place."""
    if activation == HARD_SIGMOID:
        for i in range(row.size):
            row[i] = clip(row[i] * first + second, np.float32(0), np.float32(1))
    elif activation == HARD_SWISH:
        for i in range(row.size):
            gate = row[i] * np.float32(1 / 6) + np.float32(0.5)
            row[i] *= clip(gate, np.float32(0), np.float32(1))
    else:
        activate(row, activation, first, second)


@helper
def bounds(activation: Any, first: Any, second: Any) -> Any:
    """Returns the bounds that an activation clips to; infinite if it does something else."""
    if activation == RELU:
        return np.float32(0), np.float32(np.inf)
    if activation == CLIP:
        return first, second
    return np.float32(-np.inf), np.float32(np.inf)
