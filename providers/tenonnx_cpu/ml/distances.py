"""Distances of rows to points that are constants, as nearest neighbors ask for, in one call."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_cpu.buffers import F32, contiguous, empty
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.capture.launch import Launch
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.jit.threads.sharing import shared_out
from tenonnx_cpu.kernel_selection import Call, NDArray, Site, specialize

DISTANCE_KERNELS = {
    F32: JitKernel("ml.distances", "distances_f32"),
    np.dtype(np.float64): JitKernel("ml.distances", "distances_f64"),
}

# Differences that are worth a second thread.
MIN_DIFFERENCES_PER_THREAD = 1 << 17


@specialize("CDist", domain="com.microsoft")
def specialize_distances(site: Site, plain: Call) -> Call | None:
    """Take float32 and float64."""
    metric, points = site.attribute("metric", "sqeuclidean"), site.constant(1)
    if metric not in ("sqeuclidean", "euclidean"):
        return None
    columns = None
    if points is not None:
        if points.dtype not in DISTANCE_KERNELS or points.ndim != 2 or not points.size:
            return None
        columns = site.derived("columns-1", (1,), lambda: np.ascontiguousarray(points.T))
    for dtype in DISTANCE_KERNELS if points is None else [points.dtype]:
        DISTANCE_KERNELS[dtype].request()
    given = columns, int(metric == "euclidean"), site.threads, plain
    return Capturable(functools.partial(_distances, *given))


@cacheable
def _distances(
    constant: NDArray | None, root: int, threads: int, plain: Call, x: NDArray, points: NDArray
) -> Any:
    """Return a launch, or the result.

    Args:
        constant: The points' columns side by side, if they are constants.
        root: Whether distances are roots.
        threads: How many to use at most.
        plain: Does the same.
        x: The rows.
        points: The points.
    """
    kernel = DISTANCE_KERNELS.get(x.dtype)
    fits = (
        x.dtype == points.dtype and x.ndim == points.ndim == 2 and x.shape[1:] == points.shape[1:]
    )
    if kernel is None or kernel.run is None or not fits or not x.size or not points.size:
        return plain(x, points)
    shape, columns = (len(x), len(points)), constant
    if len(points) == 1:  # as far from the rows as they are from it
        x, columns = points, contiguous(x.T)
    elif columns is None:
        columns = contiguous(points.T)
    y, rows = empty(shape, x.dtype), len(x)
    grain, team = shared_out(rows, x.size * columns.shape[1], MIN_DIFFERENCES_PER_THREAD, threads)
    arguments = contiguous(x), columns, root, y.reshape(rows, -1), grain, team
    return Launch(kernel.run, arguments, y)
