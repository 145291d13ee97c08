"""Places of the greatest and the least: ArgMax, ArgMin, TopK."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from tenonnx.operators import Array, Namespace, OperatorTable

table = OperatorTable()
op = table.op


def extreme(find: str) -> Callable[..., Array]:
    """Return the kernel of ArgMax or ArgMin, from the name of numpy's."""
    return functools.partial(_extreme, find)


def _extreme(
    find: str,
    xp: Namespace,
    data: Array,
    *,
    axis: int = 0,
    keepdims: int = 1,
    select_last_index: int = 0,
) -> Array:
    if not data.ndim:  # a scalar has no axes, and onnxruntime takes any
        return getattr(data, find)()
    if not select_last_index:
        return getattr(data, find)(axis=axis, keepdims=bool(keepdims))
    behind = getattr(xp.flip(data, axis), find)(axis=axis, keepdims=bool(keepdims))
    return data.shape[axis] - 1 - behind


for _name in ("ArgMax", "ArgMin"):
    _kernel = extreme(_name.lower())
    op(_name, since=12)(_kernel)
    op(_name, without=("select_last_index",))(_kernel)


def top_k(xp: Namespace, x: Array, k: int, axis: int, largest: int) -> tuple[Array, Array]:
    """Return the k first elements and their indices along the axis, in order; ties by index.

    NaN is the greatest.
    """
    if not 0 <= k <= x.shape[axis]:
        raise ValueError(
            f"expected k from 0 to {x.shape[axis]}, the size of axis {axis}, found {k}"
        )
    from tenonnx_array.dtypes import accumulator

    x = xp.moveaxis(x, axis, -1)
    keys = x.astype(accumulator(x.dtype), copy=False)
    if not largest:
        indices = _smallest(xp, keys, k)
    elif xp is np:
        indices = _smallest(xp, _descending(keys), k)
    else:
        # From behind, the greatest of a stable order are the first of equals, and NaN.
        order = xp.argsort(xp.flip(keys, -1), axis=-1, kind="stable")
        indices = x.shape[-1] - 1 - xp.flip(order, -1)[..., :k]
    values = xp.take_along_axis(x, indices, axis=-1)
    return xp.moveaxis(values, -1, axis), xp.moveaxis(indices, -1, axis)


def _descending(x: Array) -> Array:
    """Return numbers that are the least where elements are the greatest; equal where they are."""
    if x.dtype.kind in "iu":
        return ~x  # unlike -, it has no overflow
    if not np.isnan(x).any():
        return -x
    bits = x.view(f"i{x.itemsize}")
    magnitude = bits & np.iinfo(bits.dtype).max
    ordered = np.where(bits < 0, -magnitude, magnitude)
    return ~np.where(np.isnan(x), np.iinfo(bits.dtype).max, ordered)


def _smallest(xp: Namespace, keys: Array, k: int) -> Array:
    """Return the stable order of the k least along the last axis."""
    if isinstance(keys, np.ndarray) and 0 < 8 * k < keys.shape[-1]:
        some = np.sort(np.argpartition(keys, k - 1, axis=-1)[..., :k], axis=-1)
        chosen = np.take_along_axis(keys, some, axis=-1)
        within = keys <= chosen.max(axis=-1, keepdims=True)
        # With ties at the k-th place, or NaN, the partition may have chosen the wrong ones.
        if (np.count_nonzero(within, axis=-1) == k).all():
            order = np.argsort(chosen, axis=-1, stable=True)
            return np.take_along_axis(some, order, axis=-1)
    return xp.argsort(keys, axis=-1, kind="stable")[..., :k]


@op("TopK", multiple=True)
def top_k_1(xp: Namespace, x: Array, *, k: int, axis: int = -1) -> tuple[Array, Array]:
    """Return the k greatest."""
    return top_k(xp, x, k, axis, largest=1)


@op("TopK", since=10, host=(1,), multiple=True, shapes="k: 1")
def top_k_10(xp: Namespace, x: Array, k: Array, *, axis: int = -1) -> tuple[Array, Array]:
    """Return the k greatest, k being a tensor of one element."""
    return top_k(xp, x, int(k.reshape(())), axis, largest=1)


@op("TopK", since=11, host=(1,), multiple=True, shapes="k: 1")
def top_k_11(
    xp: Namespace,
    x: Array,
    k: Array,
    *,
    axis: int = -1,
    largest: int = 1,
    sorted: int = 1,  # noqa: A002, ARG001 - unsorted, any order will do; the sorted one does
) -> tuple[Array, Array]:
    """Return the k greatest or least."""
    return top_k(xp, x, int(k.reshape(())), axis, largest)
