"""Sums, products and extremes over adjacent axes."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.jit.compiling import In, Out, f32, helper, i64, kernel, size
from tenonnx_cpu.jit.threads.pool import parallel
from tenonnx_cpu.jit.vectors.views import floats
from tenonnx_cpu.rows.reduction import GREATEST, LEAST, PRODUCT, SQUARES

F = np.float32
BLOCK = 512
"""Elements that are added as float32, before what they come to is as float64."""

SPAN = 1024
"""Columns of a task: they stay in the cache from row to row."""


@helper
def combine(kind: Any, x: Any, y: Any) -> None:
    """Takes a row into what other rows came to; NaN is the greatest and the least."""
    if kind == GREATEST:
        for i in range(y.size):
            y[i] = x[i] if (x[i] > y[i]) | (x[i] != x[i]) else y[i]
    elif kind == LEAST:
        for i in range(y.size):
            y[i] = x[i] if (x[i] < y[i]) | (x[i] != x[i]) else y[i]
    elif kind == SQUARES:
        for i in range(y.size):
            y[i] += x[i] * x[i]
    elif kind == PRODUCT:
        for i in range(y.size):
            y[i] *= x[i]
    else:
        for i in range(y.size):
            y[i] += x[i]


@helper
def total(kind: Any, x: Any) -> Any:
    """Returns what a row comes to."""
    if kind in (GREATEST, LEAST):
        best = x[0]
        for i in range(x.size):
            better = x[i] > best if kind == GREATEST else x[i] < best
            best = x[i] if better | (x[i] != x[i]) else best
        return best
    if kind == PRODUCT:
        product = 1.0
        for i in range(x.size):
            product *= np.float64(x[i])
        return F(product)
    whole = 0.0
    for start in range(0, x.size, BLOCK):
        part, some = F(0), x[start : start + BLOCK]
        if kind == SQUARES:
            for i in range(some.size):
                part += some[i] * some[i]
        else:
            for i in range(some.size):
                part += some[i]
        whole += np.float64(part)
    return F(whole)


@parallel
def reduce_rows(arguments: Any, task: Any, worker: Any) -> None:
    """Reduces some rows to a number each, or some columns."""
    x, y, shape, scale, root = arguments
    kind, outer, count, inner, grain = shape[0], shape[1], shape[2], shape[3], shape[4]
    if inner == 1:
        results = y[task * grain : min(outer, (task + 1) * grain)]
        for n in range(results.size):
            row = (task * grain + n) * count
            results[n] = total(kind, x[row : row + count])
    else:
        across = -(-inner // SPAN)
        stack, left = task // across, task % across * SPAN
        width = min(SPAN, inner - left)
        results = y[stack * inner + left : stack * inner + left + width]
        start = x.ctypes.data + 4 * (stack * count * inner + left)
        first = floats(start, width)
        for i in range(width):
            results[i] = first[i] * first[i] if kind == SQUARES else first[i]
        for n in range(1, count):
            combine(kind, floats(start + 4 * n * inner, width), results)
    if scale != F(1):
        for i in range(results.size):
            results[i] *= scale
    if root:
        for i in range(results.size):
            results[i] = np.sqrt(results[i])


@kernel((In(f32, 1), Out(f32, 1), In(i64, 1), f32, size, size))
def reduce(x, y, shape, scale, root, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Reduces the middle one of three axes.

    Args:
        x: The elements.
        y: The results.
        shape: What is done, the axes' lengths, and rows in a task if the last axis has one element.
        scale: What sums are multiplied by.
        root: Whether the square root is taken then.
        threads: How many threads to use.
    """
    outer, inner = shape[1], shape[3]
    tasks = -(-outer // shape[4]) if inner == 1 else outer * -(-inner // SPAN)
    reduce_rows((x, y, shape, scale, root), tasks, threads)
