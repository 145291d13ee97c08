"""Distances between the rows of two matrices, by differences: what is near loses no digits."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.jit.compiling import (
    Contract,
    In,
    Kernel,
    Out,
    Type,
    f32,
    f64,
    helper,
    kernel,
    size,
)
from tenonnx_cpu.jit.threads.parallel_for import parallel

# Points that are compared at once: their sums stay in the cache from feature to feature.
SPAN_POINTS = 1024


@helper
def add_squares(x: Any, feature: Any, points: Any, y: Any) -> None:
    """Add the squared differences of four features from one on, or of the one."""
    if feature + 4 <= x.size:
        x0, x1, x2, x3 = x[feature], x[feature + 1], x[feature + 2], x[feature + 3]
        p0, p1, p2, p3 = points[0], points[1], points[2], points[3]
        for i in range(y.size):
            d0, d1, d2, d3 = x0 - p0[i], x1 - p1[i], x2 - p2[i], x3 - p3[i]
            y[i] += d0 * d0 + d1 * d1 + (d2 * d2 + d3 * d3)
    else:
        x0, p0 = x[feature], points[0]
        for i in range(y.size):
            d0 = x0 - p0[i]
            y[i] += d0 * d0


@helper
def measure(x: Any, points: Any, root: Any, y: Any) -> None:
    """Write the distances of one row to some points."""
    for i in range(y.size):
        y[i] = 0
    feature = 0
    while feature < x.size:
        add_squares(x, feature, points[feature:], y)
        feature += 4 if feature + 4 <= x.size else 1
    if root:
        for i in range(y.size):
            y[i] = np.sqrt(y[i])


@parallel
def measure_rows(arguments: Any, task: Any, worker: Any) -> None:
    """Write the distances of some rows."""
    x, points, root, y, grain = arguments
    for left in range(0, y.shape[1], SPAN_POINTS):
        some = points[:, left : left + SPAN_POINTS]
        for row in range(task * grain, min(x.shape[0], (task + 1) * grain)):
            measure(x[row], some, root, y[row, left : left + SPAN_POINTS])


def make_distances(real: Type) -> Kernel:
    """Return what measures rows of a dtype."""

    @kernel(
        (In(real, 2), In(real, 2), size, Out(real, 2), size, size),
        Contract(launch="rows have the points' features"),
    )
    def distances(x: Any, points: Any, root: Any, y: Any, grain: Any, threads: Any) -> None:
        """Measure how far rows are from points.

        Args:
            x: The rows, [N, F].
            points: A point in every column, [F, M].
            root: Whether the square root is taken.
            y: The distances, [N, M].
            grain: Rows of a task.
            threads: How many threads to use.
        """
        measure_rows((x, points, root, y, grain), -(-x.shape[0] // grain), threads)

    return distances


distances_f32, distances_f64 = make_distances(f32), make_distances(f64)
