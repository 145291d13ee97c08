"""GatherElements along the last axis, by which relative positions find their scores."""

from __future__ import annotations

import numpy as np

from tenonnx_cpu.buffers import empty
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.specialise import Call, NDArray, Site, specialise

PICK = JitKernel("picking", "pick")

ENOUGH = 1 << 12
"""Elements that are worth a kernel."""

SHARED = 1 << 16
"""Elements that are worth a second thread."""


@specialise("GatherElements")
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
        rows, used = (-1, places.shape[-1]), threads if places.size >= SHARED else 1
        lines = data.reshape(-1, data.shape[-1])
        run(lines, places.reshape(rows), out.reshape(rows), wrong, used)
        return plain(data, places) if wrong[0] else out

    return call


def _fit(data: NDArray, places: NDArray) -> bool:
    """Says whether arrays are of the kernel's types, adjacent and aligned."""
    whole = all(array.flags.c_contiguous and array.flags.aligned for array in (data, places))
    return whole and data.dtype == np.float32 and places.dtype == np.int64 and data.size > 0
