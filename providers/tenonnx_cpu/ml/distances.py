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
from tenonnx_cpu.kernel_selection import Call, NDArray, Site, specialize
from tenonnx_cpu.threading_config import shared_out

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
    if (
        points is None
        or points.dtype not in DISTANCE_KERNELS
        or points.ndim != 2
        or not points.size
    ):
        return None
    if metric not in ("sqeuclidean", "euclidean"):
        return None
    columns = site.derived("columns-1", (1,), lambda: np.ascontiguousarray(points.T))
    DISTANCE_KERNELS[points.dtype].request()
    given = columns, int(metric == "euclidean"), site.threads, plain
    return Capturable(functools.partial(_distances, *given))


@cacheable
def _distances(
    columns: NDArray, root: int, threads: int, plain: Call, x: NDArray, same: NDArray
) -> Any:
    run = DISTANCE_KERNELS[columns.dtype].run
    fits = x.dtype == columns.dtype and x.ndim == 2 and x.shape[1] == len(columns)
    if run is None or not fits or not x.size:
        return plain(x, same)
    rows, count = len(x), columns.shape[1]
    y = empty((rows, count), x.dtype)
    grain, team = shared_out(rows, x.size * count, MIN_DIFFERENCES_PER_THREAD, threads)
    return Launch(run, (contiguous(x), columns, root, y, grain, team), y)
