"""GatherElements along the last axis, by which relative positions find their scores."""

from __future__ import annotations

import numpy as np

from tenonnx_cpu.buffers import empty
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.kernel_selection import Call, NDArray, Site, specialize

PICK = JitKernel("data_movement.picking", "pick")

ENOUGH = 1 << 12
"""Elements that are worth a kernel."""

SHARED = 1 << 16
"""Elements that are worth a second thread."""


@specialize("GatherElements")
def gather_elements(site: Site, plain: Call) -> Call:
    """Takes float32 and as many places in each of its rows, which numpy takes one by one."""
    axis, threads = site.attribute("axis", 0), site.threads
    PICK.request()

    def call(data: NDArray, places: NDArray) -> NDArray:
        run = PICK.run
        last = axis in (-1, data.ndim - 1) and data.shape[:-1] == places.shape[:-1]
        if run is None or not last or places.size < ENOUGH or not _fit(data, places):
            result: NDArray = plain(data, places)
            return result
        out, wrong = empty(places.shape), np.zeros(1, np.int64)
        used = threads if places.size >= SHARED else 1
        run(_stacked(data), _stacked(places), _stacked(out), wrong, used)
        return plain(data, places) if wrong[0] else out

    return call


def _stacked(array: NDArray) -> NDArray:
    """Returns an array as stacks of rows."""
    if array.ndim == 3:
        return array
    return array.reshape(-1, array.shape[-2] if array.ndim > 1 else 1, array.shape[-1])


def _fit(data: NDArray, places: NDArray) -> bool:
    """Says whether arrays are of the kernel's types, and aligned."""
    aligned = data.flags.aligned and places.flags.aligned
    return aligned and data.dtype == np.float32 and places.dtype == np.int64 and data.size > 0
