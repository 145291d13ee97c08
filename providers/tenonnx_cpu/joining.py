"""Concat into memory that is used again: for a cache of keys and values, most of its cost."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tenonnx_cpu.buffers import SMALL, empty
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.specialise import Call, Site, specialise

JOIN = JitKernel("joining", "join")

ENOUGH = 1 << 18
"""Bytes that are worth a second thread."""


@specialise("Concat")
def specialise_concat(site: Site, plain: Call) -> Call | None:
    """Takes large arrays of one dtype."""
    axis = site.attribute("axis", None)
    if axis is None:
        return None
    threads = site.threads
    if threads > 1:
        JOIN.request()

    def call(*arrays: Any) -> Any:
        first = arrays[0]
        nbytes = 0
        for array in arrays:
            if array.dtype != first.dtype or array.ndim != first.ndim:
                return plain(*arrays)
            nbytes += array.nbytes
        if nbytes < SMALL or first.dtype == object or not -first.ndim <= axis < first.ndim:
            return plain(*arrays)
        shape = list(first.shape)
        shape[axis] = sum(array.shape[axis] for array in arrays)
        out = empty(tuple(shape), first.dtype)
        if threads > 1 and nbytes >= ENOUGH and join(arrays, axis % first.ndim, out, threads):
            return out
        return np.concatenate(arrays, axis, out=out)

    return call


def join(arrays: tuple[Any, ...], axis: int, out: Any, threads: int) -> bool:
    """Writes arrays side by side into ``out`` on several threads; ``False`` where numpy must.

    Args:
        arrays: Of one dtype, which takes a multiple of 4 bytes.
        axis: Along which they are joined.
        out: C-contiguous.
        threads: How many to use at most.
    """
    run = JOIN.run
    rows = math.prod(out.shape[:axis])
    if run is None or rows < threads or out.itemsize % 4:
        return False
    for array in arrays:
        if not array.flags.c_contiguous or array.shape[:axis] != out.shape[:axis]:
            return False
        if array.shape[axis + 1 :] != out.shape[axis + 1 :]:
            return False
    starts = np.array([array.ctypes.data for array in arrays], np.int64)
    lengths = np.array([array.nbytes // (4 * rows) for array in arrays], np.int64)
    run(starts, lengths, out.ctypes.data, rows, out.nbytes // (4 * rows), threads)
    return True
