"""Softmax along an axis that others follow: of adjacent columns at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.jit.compiling import helper
from tenonnx_cpu.jit.vectors.views import elements, on_stack
from tenonnx_cpu.jit.vectors.vmath import exact
from tenonnx_cpu.norm.kernels import SPAN


@exact
def less(x: Any, first: Any, second: Any) -> Any:
    """Subtract one after the other: beside a great number a small one would be lost."""
    return (x - first) - second


@helper
def softmax_columns(
    x: Any, y: Any, width: Any, count: Any, step: Any, logarithm: Any, exp: Any, dtype: Any
) -> None:
    """Write the softmax of ``SPAN`` columns at most, or its logarithm.

    Args:
        x: Address of the first element.
        y: Address of the first result.
        width: How many columns.
        count: Elements of a column.
        step: Bytes from one to the next.
        logarithm: Whether it is wanted.
        exp: The exponential function of elements.
        dtype: Their type.
    """
    tops, sums = on_stack(SPAN, dtype), on_stack(SPAN, np.float64)
    for i in range(width):
        tops[i], sums[i] = dtype(-np.inf), 0.0
    for n in range(count):
        line = elements(x + n * step, width, dtype)
        for i in range(width):
            tops[i] = line[i] if (line[i] > tops[i]) | (line[i] != line[i]) else tops[i]
    for n in range(count):
        line, out = elements(x + n * step, width, dtype), elements(y + n * step, width, dtype)
        for i in range(width):
            out[i] = exp(line[i] - tops[i])
        for i in range(width):
            sums[i] += np.float64(out[i])
    for i in range(width):
        sums[i] = np.log(sums[i]) if logarithm else 1.0 / sums[i]
    for n in range(count):
        line, out = elements(x + n * step, width, dtype), elements(y + n * step, width, dtype)
        if logarithm:
            for i in range(width):
                out[i] = less(line[i], tops[i], dtype(sums[i]))
        else:
            for i in range(width):
                out[i] *= dtype(sums[i])
