"""Concat into memory that is used again: for a cache of keys and values, most of its cost."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.buffers import SMALL, empty
from tenonnx_cpu.specialise import Call, Site, specialise


@specialise("Concat")
def specialise_concat(site: Site, plain: Call) -> Call | None:
    """Takes large arrays of one dtype."""
    axis = site.attribute("axis", None)
    if axis is None:
        return None

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
        return np.concatenate(arrays, axis, out=empty(tuple(shape), first.dtype))

    return call
