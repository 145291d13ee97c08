"""DynamicTimeWarping on a JIT kernel."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_cpu.buffers import F32, contiguous, empty
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.kernel_selection import Call, NDArray, Site, specialize

WARP = JitKernel("ml.warping", "warp")


@specialize("DynamicTimeWarping", domain="com.microsoft")
def specialize_warping(site: Site, plain: Call) -> Call:  # noqa: ARG001 - it is a specialization's
    """Take matrices of float32."""
    WARP.request()
    return functools.partial(_warped, plain)


@cacheable
def _warped(plain: Call, costs: NDArray) -> Any:
    run, shape = WARP.run, costs.shape[-2:]
    is_matrix = costs.ndim >= 2 and costs.size == math.prod(shape) > 0
    if run is None or costs.dtype != F32 or not is_matrix:
        return plain(costs)
    rows, columns = shape
    path, steps = np.empty((2, rows + columns), np.int32), np.empty(1, np.int64)
    came = empty((rows + 1, columns + 1), np.dtype(np.uint8))
    run(contiguous(costs).reshape(shape), empty((columns + 1,)), came, path, steps)
    return path[:, rows + columns - int(steps[0]) :].copy()
