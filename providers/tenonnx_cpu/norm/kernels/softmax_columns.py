"""Softmax along an axis that others follow: of adjacent columns at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.jit.compiling import helper
from tenonnx_cpu.jit.vectors import vmath
from tenonnx_cpu.jit.vectors.views import floats, on_stack
from tenonnx_cpu.norm.kernels import SPAN

F = np.float32


@vmath.exact
def less(x: Any, first: Any, second: Any) -> Any:
    """Subtract one after the other: beside a great number a small one would be lost."""
    return (x - first) - second


@helper
def softmax_columns(x: Any, y: Any, width: Any, count: Any, inner: Any, logarithm: Any) -> None:
    """Write the softmax of ``SPAN`` columns at most, or its logarithm.

    Args:
        x: Address of the first element.
        y: Address of the first result.
        width: How many columns.
        count: Elements of a column.
        inner: Elements between them.
        logarithm: Whether it is wanted.
    """
    tops, sums = on_stack(SPAN, np.float32), on_stack(SPAN, np.float64)
    for i in range(width):
        tops[i], sums[i] = F(-np.inf), 0.0
    for n in range(count):
        line = floats(x + 4 * n * inner, width)
        for i in range(width):
            tops[i] = line[i] if (line[i] > tops[i]) | (line[i] != line[i]) else tops[i]
    for n in range(count):
        line, out = floats(x + 4 * n * inner, width), floats(y + 4 * n * inner, width)
        for i in range(width):
            out[i] = vmath.exp(line[i] - tops[i])
        for i in range(width):
            sums[i] += np.float64(out[i])
    for i in range(width):
        sums[i] = np.log(sums[i]) if logarithm else 1.0 / sums[i]
    for n in range(count):
        line, out = floats(x + 4 * n * inner, width), floats(y + 4 * n * inner, width)
        if logarithm:
            for i in range(width):
                out[i] = less(line[i], tops[i], F(sums[i]))
        else:
            for i in range(width):
                out[i] *= F(sums[i])
