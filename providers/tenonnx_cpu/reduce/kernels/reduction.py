"""Sums, products and extremes over adjacent axes."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.jit.compiling import Contract, In, Out, f32, f64, helper, i64, kernel, size
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors import vmath
from tenonnx_cpu.jit.vectors.views import floats, on_stack
from tenonnx_cpu.reduce.kernels import GREATEST, LEAST, PRODUCT, SPAN, SQUARES, SUM

F = np.float32
TOGETHER = 8
"""Rows that are added to each other before they are to others' sum, so that less is lost."""


@helper
def combine(kind: Any, x: Any, y: Any) -> None:
    """Take a row into what other rows came to; NaN is the greatest and the least.

    Sums are in float64: of squares the square of a mean may be taken, which leaves few digits.
    """
    if kind == GREATEST:
        for i in range(y.size):
            y[i] = x[i] if (x[i] > y[i]) | (x[i] != x[i]) else y[i]
    elif kind == LEAST:
        for i in range(y.size):
            y[i] = x[i] if (x[i] < y[i]) | (x[i] != x[i]) else y[i]
    elif kind == SQUARES:
        for i in range(y.size):
            y[i] += np.float64(x[i]) * np.float64(x[i])
    elif kind == PRODUCT:
        for i in range(y.size):
            y[i] *= x[i]
    else:
        for i in range(y.size):
            y[i] += np.float64(x[i])


@vmath.exact
def tree(a: Any, b: Any, c: Any, d: Any) -> Any:
    """Add in this order."""
    return (a + b) + (c + d)


@vmath.exact
def squares(a: Any, b: Any, c: Any, d: Any) -> Any:
    """Add squares in this order."""
    return (a * a + b * b) + (c * c + d * d)


@helper
def combine_together(kind: Any, start: Any, stride: Any, y: Any) -> None:
    """Add ``TOGETHER`` rows, or their squares, to what other rows came to."""
    width = y.size
    a, b = floats(start, width), floats(start + stride, width)
    c, d = floats(start + 2 * stride, width), floats(start + 3 * stride, width)
    e, f = floats(start + 4 * stride, width), floats(start + 5 * stride, width)
    g, h = floats(start + 6 * stride, width), floats(start + 7 * stride, width)
    if kind == SQUARES:
        for i in range(width):
            left, right = squares(a[i], b[i], c[i], d[i]), squares(e[i], f[i], g[i], h[i])
            y[i] += np.float64(left + right)
    else:
        for i in range(width):
            left, right = tree(a[i], b[i], c[i], d[i]), tree(e[i], f[i], g[i], h[i])
            y[i] += np.float64(left + right)


@helper
def total(kind: Any, x: Any) -> Any:
    """Return what a row comes to, in float64."""
    if kind in (GREATEST, LEAST):
        best = x[0]
        for i in range(x.size):
            better = x[i] > best if kind == GREATEST else x[i] < best
            best = x[i] if better | (x[i] != x[i]) else best
        return np.float64(best)
    if kind == PRODUCT:
        product = 1.0
        for i in range(x.size):
            product *= np.float64(x[i])
        return product
    whole = 0.0
    if kind == SQUARES:
        for i in range(x.size):
            whole += np.float64(x[i]) * np.float64(x[i])
    else:
        for i in range(x.size):
            whole += np.float64(x[i])
    return whole


@helper
def add_rows(
    kind: Any, start: Any, count: Any, inner: Any, results: Any, scale: Any, root: Any
) -> None:
    """Add rows, or their squares, in float64."""
    width = results.size
    whole = on_stack(SPAN, np.float64)[:width]
    for i in range(width):
        whole[i] = 0.0
    done = 0
    while done + TOGETHER <= count:
        combine_together(kind, start + 4 * done * inner, 4 * inner, whole)
        done += TOGETHER
    for n in range(done, count):
        combine(kind, floats(start + 4 * n * inner, width), whole)
    for i in range(width):
        sums = whole[i] * scale
        results[i] = F(np.sqrt(sums) if root else sums)


@parallel
def reduce_rows(arguments: Any, task: Any, worker: Any) -> None:
    """Reduce some rows to a number each, or some columns."""
    x, y, shape, scale, root = arguments
    kind, outer, count, inner, grain = shape[0], shape[1], shape[2], shape[3], shape[4]
    if inner == 1:
        results = y[task * grain : min(outer, (task + 1) * grain)]
        for n in range(results.size):
            row = (task * grain + n) * count
            whole = total(kind, x[row : row + count]) * scale
            results[n] = F(np.sqrt(whole) if root else whole)
        return
    across = -(-inner // SPAN)
    stack, left = task // across, task % across * SPAN
    width = min(SPAN, inner - left)
    results = y[stack * inner + left : stack * inner + left + width]
    start = x.ctypes.data + 4 * (stack * count * inner + left)
    if kind in (SUM, SQUARES):
        add_rows(kind, start, count, inner, results, scale, root)
        return
    first = floats(start, width)
    for i in range(width):
        results[i] = first[i]
    for n in range(1, count):
        combine(kind, floats(start + 4 * n * inner, width), results)


@kernel(
    (In(f32, 1), Out(f32, 1), In(i64, 1), f64, size, size),
    Contract(launch="axes are the input's, and have elements"),
)
def reduce(x, y, shape, scale, root, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Reduce the middle one of three axes.

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
