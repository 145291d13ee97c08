"""OneHot and Hardmax: the places of classes compared with their numbers."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.capture.launch import ahead, fix
from tenonnx_cpu.elementwise.kernels import operations as o
from tenonnx_cpu.elementwise.typed import APPLY, DTYPES, OF_SIZE, code_of, launch
from tenonnx_cpu.kernel_selection import Call, NDArray, Site, specialize
from tenonnx_cpu.reduce.fold import FOLD, folded

# Classes at most: the numbers that places are compared with are kept for later runs.
MAX_CLASSES = 1 << 20


@specialize("OneHot")
def specialize_one_hot(site: Site, plain: Call) -> Call | None:
    """Take a number of classes that is a constant."""
    depth = site.scalar(1)
    if depth is None or not 1 <= depth.item() <= MAX_CLASSES:
        return None
    APPLY.request()
    axis, count = site.attribute("axis", -1), int(depth.item())
    return Capturable(functools.partial(_one_hot, axis, count, site.threads, plain))


@cacheable
def _one_hot(
    axis: int, count: int, threads: int, plain: Call, places: NDArray, depth: NDArray,
    values: NDArray,
) -> Any:  # fmt: skip
    element, moved, rank = code_of(places.dtype), OF_SIZE.get(values.itemsize), places.ndim + 1
    if element in (o.FLOAT32, o.FLOAT64):
        cast = launch(o.INT64, element, (places,), np.dtype(np.int64), threads)
        if cast is not None:
            return _one_hot(axis, count, threads, plain, ahead(cast), depth, values)
    if element not in o.INTEGERS or values.dtype.hasobject or moved is None:
        return plain(places, depth, values)
    if not -rank <= axis < rank or count > np.iinfo(places.dtype).max or values.shape != (2,):
        return plain(places, depth, values)
    axis %= rank
    each = np.expand_dims(places, axis)
    classes = _numbers(count, rank - 1 - axis, places.dtype)
    made = launch(o.EQUAL, element, (each, classes), DTYPES[o.BOOL], threads)
    if made is not None and places.dtype.kind == "i":
        found, from_end = ahead(made), _numbers(count, rank - 1 - axis, places.dtype, -count)
        other = launch(o.EQUAL, element, (each, from_end), DTYPES[o.BOOL], threads)
        made = (
            None
            if other is None
            else launch(o.OR, o.BOOL, (found, ahead(other)), DTYPES[o.BOOL], threads)
        )
    if made is None:
        return plain(places, depth, values)
    made = launch(o.WHERE, moved, (ahead(made), values[1:], values[:1]), values.dtype, threads)
    return plain(places, depth, values) if made is None else made


@functools.lru_cache(maxsize=256)
def _numbers(count: int, inner: int, dtype: np.dtype[Any], first: int = 0) -> NDArray:
    """Return the numbers of classes, along an axis before ``inner`` others."""
    return fix(np.arange(first, first + count, dtype=dtype).reshape((-1,) + (1,) * inner))


@specialize("Hardmax")
def specialize_hardmax(site: Site, plain: Call) -> Call | None:
    """Take numbers along one axis, as since version 13."""
    if (site.node.version or 1) < 13:
        return None
    APPLY.request()
    FOLD.request()
    return Capturable(functools.partial(_hardmax, site.attribute("axis", -1), site.threads, plain))


@cacheable
def _hardmax(axis: int, threads: int, plain: Call, x: NDArray) -> Any:
    element, rank = code_of(x.dtype), x.ndim
    if element is None or not -rank <= axis < rank or not 0 < x.shape[axis] <= MAX_CLASSES:
        return plain(x)
    best = folded("ArgMax", x, (axis,), True, threads)
    if best is None:
        return plain(x)
    numbers = _numbers(x.shape[axis], rank - 1 - axis % rank, np.dtype(np.int64))
    found = launch(o.EQUAL, o.INT64, (ahead(best), numbers), DTYPES[o.BOOL], threads)
    made = None if found is None else launch(element, o.BOOL, (ahead(found),), x.dtype, threads)
    return plain(x) if made is None else made
