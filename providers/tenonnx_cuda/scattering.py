"""Scatter with a reduction: cupy's ``ufunc.at`` knows few types, and no product."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from tenonnx.operators import Array
from tenonnx_array.index import element_positions, from_front
from tenonnx_cuda.chosen import Call, Site, choose
from tenonnx_cuda.sources import THREADS, blocks

OPERATIONS: Final = {"add": 0, "mul": 1, "max": 2, "min": 3}

PLAIN: Final = {
    "int8": "signed char", "uint8": "unsigned char", "int16": "short", "uint16": "unsigned short",
    "int32": "int", "uint32": "unsigned", "int64": "long long", "uint64": "unsigned long long",
    "float32": "float", "float64": "double",
}  # fmt: skip
"""Element types that C has, by numpy's names."""


def accumulate(site: Site, data: Array, targets: Array, updates: Array, reduction: str) -> Array:
    """Returns a copy of data, flat targets of which took up the updates."""
    xp, dtype = site.xp, data.dtype
    wide = np.dtype(np.float32) if dtype.name not in PLAIN else dtype
    fresh = xp.ascontiguousarray(data).astype(wide)
    macros = {"E": PLAIN[wide.name], "WIDTH": wide.itemsize, "OPERATION": OPERATIONS[reduction]}
    launch = site.kernel("scatter", "scatter", **macros)
    given = xp.ascontiguousarray(updates.reshape(-1).astype(wide, copy=False))
    targets = xp.ascontiguousarray(targets.astype(np.int64, copy=False))
    launch(blocks(given.size), (THREADS,), (fresh, targets, given, np.int64(given.size)))
    return fresh.astype(dtype, copy=False)


@choose("ScatterElements")
def scatter_elements(site: Site, plain: Call) -> Call | None:
    """ScatterElements with a reduction."""
    reduction, axis = site.attribute("reduction", "none"), site.attribute("axis", 0)
    if reduction not in OPERATIONS:
        return None

    def call(data: Array, indices: Array, updates: Array) -> Array:
        if not updates.size or indices.shape != updates.shape or data.dtype == np.bool_:
            return plain(data, indices, updates)
        positions = element_positions(
            site.xp, data.shape, indices, normalize_axis_index(axis, data.ndim)
        )
        return accumulate(site, data, positions.reshape(-1), updates, reduction)

    return call


@choose("ScatterND")
def scatter_nd(site: Site, plain: Call) -> Call | None:
    """ScatterND with a reduction."""
    xp, reduction = site.xp, site.attribute("reduction", "none")
    if reduction not in OPERATIONS:
        return None

    def call(data: Array, indices: Array, updates: Array) -> Array:
        depth = indices.shape[-1]
        inner = data.shape[depth:]
        wrong = depth > data.ndim or updates.shape != indices.shape[:-1] + inner
        if wrong or not updates.size or data.dtype == np.bool_:
            return plain(data, indices, updates)
        row = xp.zeros(indices.shape[:-1], xp.int64)
        for axis, n in enumerate(data.shape[:depth]):
            row = row * n + from_front(xp, indices[..., axis], n, axis)
        extent = math.prod(inner)
        targets = (row.reshape(-1, 1) * extent + xp.arange(extent)).reshape(-1)
        return accumulate(site, data, targets, updates, reduction)

    return call
