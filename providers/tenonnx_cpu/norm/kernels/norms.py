"""Softmax and normalization of rows: each stays in the cache while it is gone over."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.jit.compiling import Contract, In, Out, f32, helper, kernel, size
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors import vmath
from tenonnx_cpu.jit.vectors.reductions import exponentials, greatest

F = np.float32


@helper
def softmax_row(x: Any, y: Any) -> None:
    """Write the softmax of ``x`` into ``y``, which may be ``x``."""
    factor = F(1) / exponentials(x, y, greatest(x))
    for i in range(y.size):
        y[i] *= factor


@vmath.exact
def less(x: Any, first: Any, second: Any) -> Any:
    """Subtract one after the other: beside a great number a small one would be lost."""
    return (x - first) - second


@parallel
def softmax_rows(arguments: Any, task: Any, worker: Any) -> None:
    """Do some rows."""
    x, y, logarithm, grain = arguments
    for row in range(task * grain, min(x.shape[0], (task + 1) * grain)):
        if logarithm:
            top = greatest(x[row])
            rest = F(np.log(np.float64(exponentials(x[row], y[row], top))))
            line, out = x[row], y[row]
            for i in range(out.size):
                out[i] = less(line[i], top, rest)
        else:
            softmax_row(x[row], y[row])


@kernel(
    (In(f32, 2), Out(f32, 2), size, size, size),
    Contract(launch="the axis is the last one, with elements"),
)
def softmax(x, y, logarithm, grain, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Write the softmax of every row, or its logarithm; ``grain`` rows are a task."""
    softmax_rows((x, y, logarithm, grain), -(-x.shape[0] // grain), threads)


@helper
def normalize(x: Any, scale: Any, bias: Any, epsilon: Any, centered: Any, y: Any) -> None:
    """Write a row normalized by its deviation, or root mean square, into ``y`` (maybe ``x``)."""
    mean, rest = F(0), F(0)
    if centered:
        for i in range(x.size):
            mean += x[i]
        mean /= F(x.size)
    square = F(0)
    for i in range(x.size):
        d = x[i] - mean
        square += d * d
        rest += d
    # What the mean was rounded by: an element close to the mean has not much more than that left.
    rest = rest / F(x.size) if centered else F(0)
    # Once in a row, and each of its elements has what this is off by.
    variance = np.float64(square) / np.float64(x.size) - np.float64(rest) * np.float64(rest)
    variance = np.float64(0) if variance < 0.0 else variance
    factor = F(1.0 / np.sqrt(variance + np.float64(epsilon)))
    if bias.size:
        for i in range(x.size):
            y[i] = less(x[i], mean, rest) * factor * scale[i] + bias[i]
    else:
        for i in range(x.size):
            y[i] = less(x[i], mean, rest) * factor * scale[i]


@parallel
def normalize_rows(arguments: Any, task: Any, worker: Any) -> None:
    """Do some rows."""
    x, other, scale, bias, epsilon, centered, y, total, grain = arguments
    for row in range(task * grain, min(x.shape[0], (task + 1) * grain)):
        if not other.size:
            normalize(x[row], scale, bias, epsilon, centered, y[row])
            continue
        one, two, both = x[row], other[row], total[row]
        for i in range(both.size):
            both[i] = one[i] + two[i]
        normalize(both, scale, bias, epsilon, centered, y[row])


@kernel(
    (
        In(f32, 2), In(f32, 2), In(f32, 1), In(f32, 1), f32, size,
        Out(f32, 2), Out(f32, 2), size, size,
    ),
    Contract(launch="scale and bias have a number per normalized element, or channel"),
)  # fmt: skip
def normalize_all(x, other, scale, bias, epsilon, centered, y, total, grain, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Normalize the rows of ``x``, or of ``x + other``.

    Args:
        x: The rows.
        other: What is added first, or of no size.
        scale: What the columns are multiplied by.
        bias: What is added to them, or of no size.
        epsilon: What is added to the mean square.
        centered: Whether the mean is subtracted: layer normalization, not root mean square.
        y: The result.
        total: ``x + other``, if there is such.
        grain: Rows in a task.
        threads: How many threads to use.
    """
    arguments = (x, other, scale, bias, epsilon, centered, y, total, grain)
    normalize_rows(arguments, -(-x.shape[0] // grain), threads)
