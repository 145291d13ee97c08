"""Writing by index into a copy: Scatter, ScatterElements, ScatterND, TensorScatter.

Targets are positions in the flattened output: ``ufunc.at`` is several times faster on one axis
than with a tuple of indices.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from tenonnx.operators import Array, Namespace, OperatorTable
from tenonnx_array.index import element_positions, from_front, refuse_outside

table = OperatorTable()
op = table.op

SCATTER_UFUNCS = {"add": "add", "mul": "multiply", "max": "maximum", "min": "minimum"}


@op("ScatterElements", since=16)
@op("Scatter", since=9, without=("reduction",))
@op("ScatterElements", since=11, without=("reduction",))
def scatter_elements(
    xp: Namespace,
    data: Array,
    indices: Array,
    updates: Array,
    *,
    axis: int = 0,
    reduction: str = "none",
) -> Array:
    """Write ``updates[i, j, k]`` to ``data[i, indices[i, j, k], k]``."""
    axis = normalize_axis_index(axis, data.ndim)
    if indices.shape != updates.shape:
        raise ValueError(f"indices of shape {indices.shape} and updates of {updates.shape} differ")
    target = element_positions(xp, data.shape, indices, axis)
    return _write(xp, data, target.reshape(-1), updates, reduction)


@op("ScatterND", since=16)
@op("ScatterND", since=11, without=("reduction",))
def scatter_nd(
    xp: Namespace,
    data: Array,
    indices: Array,
    updates: Array,
    *,
    reduction: str = "none",
    _out: Array | None = None,
) -> Array:
    """Write ``updates[i]``, an element or a slice, to ``data[indices[i]]`` for each index tuple.

    If ``_out`` is the memory of ``data``, that is updated in place.
    """
    depth = indices.shape[-1]
    slice_shape = data.shape[depth:]
    if depth > data.ndim or updates.shape != indices.shape[:-1] + slice_shape:
        raise ValueError(
            f"indices {indices.shape} into data {data.shape} need updates of shape "
            f"{indices.shape[:-1] + slice_shape}, found {updates.shape}"
        )
    row = xp.zeros(indices.shape[:-1], xp.int64)
    for axis, n in enumerate(data.shape[:depth]):
        row = row * n + from_front(xp, indices[..., axis], n, axis)
    return _write(xp, data, row.reshape(-1), updates, reduction, math.prod(slice_shape), _out)


@op(
    "TensorScatter",
    since=24,
    shapes=(
        "past: B ...; update: B ...; write_indices: B; len(update) == len(past); len(past) > 2; "
        "update[:axis] == past[:axis]; update[axis:][1:] == past[axis:][1:]; "
        "update[axis] <= past[axis]"
    ),
)
def tensor_scatter(
    xp: Namespace,
    past: Array,
    update: Array,
    write_indices: Array | None = None,
    *,
    axis: int = -2,
    mode: str = "linear",
    _out: Array | None = None,
) -> Array:
    """Copy the cache with each sample's ``update`` written from its index on along ``axis``.

    In circular mode positions wrap around; in linear mode they must lie inside the cache. If
    ``_out`` is the cache's own memory, it is updated in place.
    """
    axis = normalize_axis_index(axis, past.ndim)
    batch, limit, length = past.shape[0], past.shape[axis], update.shape[axis]
    if axis == 0 or mode not in ("linear", "circular"):
        raise ValueError(f"expected linear or circular mode off axis 0, found {mode}, axis {axis}")
    if write_indices is None:
        firsts = [0] * batch
    else:
        firsts = write_indices.tolist() if isinstance(write_indices, np.ndarray) else []
    if firsts and min(firsts) >= 0 and max(firsts) + length <= limit:
        # A slice is written ten times as fast as what a list of positions says.
        present = _copy(past, _out)
        before = (slice(None),) * (axis - 1)
        for sample, first in enumerate(firsts):
            present[sample, *before, first : first + length] = update[sample]
        return present
    start = xp.asarray(firsts, xp.int64) if write_indices is None else write_indices
    positions = start.reshape(batch, 1) + xp.arange(length)
    if mode == "circular":
        positions = positions % limit
    refuse_outside(positions, limit, axis)
    present = _copy(past, _out)
    xp.moveaxis(present, axis, 1)[xp.arange(batch).reshape(batch, 1), positions] = xp.moveaxis(
        update, axis, 1
    )
    return present


def _copy(data: Array, out: Array | None) -> Array:
    """Return a copy of ``data``: in ``out`` if it fits, for nothing if it is there already."""
    if out is data:
        return out
    if out is None or out.shape != data.shape or not out.flags.c_contiguous:
        return data.copy()
    here = isinstance(out, np.ndarray) and out.ctypes.data == data.ctypes.data
    if not here or out.strides != data.strides:
        out[...] = data
    return out


def _write(
    xp: Namespace,
    data: Array,
    rows: Array,
    updates: Array,
    reduction: str,
    extent: int = 1,
    out: Array | None = None,
) -> Array:
    """Write ``updates``, as rows of ``extent`` elements, to these rows of a copy of ``data``."""
    if reduction != "none" and reduction not in SCATTER_UFUNCS:
        raise ValueError(f"expected reduction none, {', '.join(SCATTER_UFUNCS)}; found {reduction}")
    fresh = _copy(data, out)
    if not math.prod(updates.shape):
        return fresh
    if reduction == "none":
        fresh.reshape((-1, extent))[rows] = updates.reshape((-1, extent))
    else:
        elements = (rows[:, None] * extent + xp.arange(extent)).reshape(-1)
        ufunc = getattr(xp, SCATTER_UFUNCS[reduction])
        ufunc.at(fresh.reshape(-1), elements, updates.reshape(-1))
    return fresh
