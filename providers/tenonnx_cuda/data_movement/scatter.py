"""Scatter with a reduction, for which cupy's ``ufunc.at`` has few types; and into caches."""

from __future__ import annotations

import functools
import math
from typing import Final

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from tenonnx.operators import Array
from tenonnx_array.index import element_positions, from_front
from tenonnx_cuda.attention.caches import is_same
from tenonnx_cuda.capture.tracer import cannot_capture
from tenonnx_cuda.kernel_selection import Call, Site, Target, choose
from tenonnx_cuda.sources import THREADS_PER_BLOCK, blocks, is_aligned, pointer

OPERATIONS: Final = {"add": 0, "mul": 1, "max": 2, "min": 3}

# Element types that C has, by numpy's names.
C_TYPES: Final = {
    "int8": "signed char", "uint8": "unsigned char", "int16": "short", "uint16": "unsigned short",
    "int32": "int", "uint32": "unsigned", "int64": "long long", "uint64": "unsigned long long",
    "float32": "float", "float64": "double",
}  # fmt: skip

# Kinds of elements that are left to cupy: booleans and complex numbers.
OTHERS: Final = "bc"


def accumulate(
    target: Target, data: Array, targets: Array, updates: Array, reduction: str
) -> Array:
    """Return a copy of data, flat targets of which took up the updates."""
    xp, dtype = target.xp, data.dtype
    wide = np.dtype(np.float32) if dtype.name not in C_TYPES else dtype
    fresh = xp.ascontiguousarray(data).astype(wide)
    macros = {"E": C_TYPES[wide.name], "WIDTH": wide.itemsize, "OPERATION": OPERATIONS[reduction]}
    launch = target.kernel("data_movement/scatter", "scatter", **macros)
    given = xp.ascontiguousarray(updates.reshape(-1).astype(wide, copy=False))
    targets = xp.ascontiguousarray(targets.astype(np.int64, copy=False))
    sizes = np.int64(given.size), np.int64(fresh.size)
    launch(blocks(given.size), (THREADS_PER_BLOCK,), (fresh, targets, given, *sizes))
    return fresh.astype(dtype, copy=False)


@choose("ScatterElements")
def scatter_elements(site: Site, plain: Call) -> Call | None:
    """ScatterElements with a reduction."""
    reduction, axis = site.attribute("reduction", "none"), site.attribute("axis", 0)
    if reduction not in OPERATIONS:
        return None
    return functools.partial(_scattered_elements, site.target, plain, reduction, axis)


def _scattered_elements(
    target: Target,
    plain: Call,
    reduction: str,
    axis: int,
    data: Array,
    indices: Array,
    updates: Array,
) -> Array:
    if not updates.size or indices.shape != updates.shape or data.dtype.kind in OTHERS:
        return plain(data, indices, updates)
    positions = element_positions(
        target.xp, data.shape, indices, normalize_axis_index(axis, data.ndim)
    )
    return accumulate(target, data, positions.reshape(-1), updates, reduction)


@choose("ScatterND")
def scatter_nd(site: Site, plain: Call) -> Call | None:
    """ScatterND with a reduction."""
    reduction = site.attribute("reduction", "none")
    if reduction not in OPERATIONS:
        return None
    return functools.partial(_scattered_slices, site.target, plain, reduction)


def _scattered_slices(
    target: Target, plain: Call, reduction: str, data: Array, indices: Array, updates: Array
) -> Array:
    xp, depth = target.xp, indices.shape[-1]
    inner = data.shape[depth:]
    wrong = depth > data.ndim or updates.shape != indices.shape[:-1] + inner
    if wrong or not updates.size or data.dtype.kind in OTHERS:
        return plain(data, indices, updates)
    row = xp.zeros(indices.shape[:-1], xp.int64)
    for axis, n in enumerate(data.shape[:depth]):
        row = row * n + from_front(xp, indices[..., axis], n, axis)
    extent = math.prod(inner)
    targets = (row.reshape(-1, 1) * extent + xp.arange(extent)).reshape(-1)
    return accumulate(target, data, targets, updates, reduction)


# Plain types of an element's bytes; 16 of them are four words.
TYPE_OF_BYTES: Final = {
    1: "unsigned char",
    2: "unsigned short",
    4: "unsigned",
    8: "unsigned long long",
    16: "unsigned",
}


@choose("TensorScatter")
def tensor_scatter(site: Site, plain: Call) -> Call:
    """TensorScatter: the cache's own memory, if it is what the output is bound to, is updated."""
    axis: int = site.attribute("axis", -2)
    circular = int(site.attribute("mode", "linear") == "circular")
    return functools.partial(_written, site.target, plain, axis, circular)


def _written(
    target: Target,
    plain: Call,
    axis: int,
    circular: int,
    past: Array,
    update: Array,
    firsts: Array | None = None,
    *,
    _out: Array | None = None,
) -> Array:
    at = normalize_axis_index(axis, past.ndim)
    whole = past.flags.c_contiguous and update.flags.c_contiguous
    alike = past.dtype == update.dtype and past.ndim == update.ndim and past.dtype != np.bool_
    rest = [(*x.shape[:at], *x.shape[at + 1 :]) for x in (past, update)]
    wrong = at == 0 or rest[0] != rest[1] or update.shape[at] > past.shape[at]
    if not whole or not alike or wrong or not update.size:
        return plain(past, update, firsts)
    present = carried(target, past, _out)
    inner, width = math.prod(past.shape[at + 1 :]), past.dtype.itemsize
    if inner * width % 16 == 0 and is_aligned(present, update):
        inner, width = inner * width // 16, 16
    outer, length = math.prod(past.shape[1:at]), update.shape[at]
    count = past.shape[0] * outer * length * inner
    launch = target.kernel(
        "data_movement/steps", "write_steps", E=TYPE_OF_BYTES[width], WIDTH=width, CIRCULAR=circular
    )
    begins = None if firsts is None else firsts.reshape(-1).astype(np.int64, copy=False)
    numbers = map(np.int64, (count, outer, past.shape[at], length, inner))
    launch(blocks(count), (THREADS_PER_BLOCK,), (present, update, pointer(begins), *numbers))
    return present


def carried(target: Target, past: Array, out: Array | None) -> Array:
    """Return an array with a cache's contents: one that is given, if it can be, or a copy."""
    fits = out is not None and (out.shape, out.dtype) == (past.shape, past.dtype)
    if out is None or not fits or not out.flags.c_contiguous:
        return past.copy()
    if not is_same(out, past):
        if target.xp.may_share_memory(out, past):
            return past.copy()
        cannot_capture()
        out[...] = past
    return out
