"""Places of the greatest and the least: ArgMax, ArgMin, TopK."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tenonnx.interruption import pieces
from tenonnx.operators import Array, Namespace, OperatorTable

LONGEST = 1 << 19
"""Elements that are sorted at once, if rows are no longer: some hundredths of a second."""

table = OperatorTable()
op = table.op


def extreme(find: str) -> Callable[..., Array]:
    """Return the kernel of ArgMax or ArgMin, from the name of numpy's."""

    def kernel(
        xp: Namespace, data: Array, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0
    ) -> Array:
        if not data.ndim:  # a scalar has no axes, and onnxruntime takes any
            return getattr(data, find)()
        if not select_last_index:
            return getattr(data, find)(axis=axis, keepdims=bool(keepdims))
        behind = getattr(xp.flip(data, axis), find)(axis=axis, keepdims=bool(keepdims))
        return data.shape[axis] - 1 - behind

    return kernel


for _name in ("ArgMax", "ArgMin"):
    _kernel = extreme(_name.lower())
    op(_name, since=12)(_kernel)
    op(_name, without=("select_last_index",))(_kernel)


def top_k(xp: Namespace, x: Array, k: int, axis: int, largest: int) -> tuple[Array, Array]:
    """Return the k first elements and their indices along the axis, in order; ties by index."""
    if not 0 <= k <= x.shape[axis]:
        raise ValueError(
            f"expected k from 0 to {x.shape[axis]}, the size of axis {axis}, found {k}"
        )
    from tenonnx_array.dtypes import INTEGERS, accumulator  # an ArgMax needs no types

    x = xp.moveaxis(x, axis, -1)
    keys = x.astype(accumulator(x.dtype), copy=False)
    if largest:
        # ~ reverses the order of integers and, unlike -, has no overflow.
        keys = ~keys if x.dtype in INTEGERS else -keys
    indices = _smallest(xp, keys, k)
    values = xp.take_along_axis(x, indices, axis=-1)
    return xp.moveaxis(values, -1, axis), xp.moveaxis(indices, -1, axis)


def _smallest(xp: Namespace, keys: Array, k: int) -> Array:
    """Return the stable order of the k least along the last axis; numpy sorts some rows a time."""
    if xp is not np or keys.size <= LONGEST:
        return _smallest_at_once(xp, keys, k)
    if k > 0 and keys.shape[-1] > LONGEST:
        return _smallest_of_long_rows(keys, k)
    rows = keys.reshape(-1, keys.shape[-1])
    indices = np.empty((len(rows), k), np.intp)
    for some in pieces(len(rows), rows.size, LONGEST):
        indices[some] = _smallest_at_once(xp, rows[some], k)
    return indices.reshape(*keys.shape[:-1], k)


def _smallest_of_long_rows(keys: Array, k: int) -> Array:
    """Return the order of the k least of those that are the k least of a piece of their row."""
    from tenonnx_array.sorting import stable_order  # few rows are so long

    indices = np.empty((*keys.shape[:-1], k), np.intp)
    for place in np.ndindex(keys.shape[:-1]):
        row = keys[place]
        if 64 * k >= LONGEST:
            indices[place] = stable_order(row, k)
            continue
        some = np.concatenate(
            [
                _smallest_at_once(np, row[piece], k) + piece.start
                for piece in pieces(len(row), len(row), LONGEST)
            ]
        )
        # Where keys are equal, their indices go up in this order, too.
        indices[place] = some[_smallest_at_once(np, row[some], k)]
    return indices


def _smallest_at_once(xp: Namespace, keys: Array, k: int) -> Array:
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


@op("TopK", since=10, host=(1,), multiple=True)
def top_k_10(xp: Namespace, x: Array, k: Array, *, axis: int = -1) -> tuple[Array, Array]:
    """Return the k greatest, k being a tensor of one element."""
    return top_k(xp, x, int(k.reshape(())), axis, largest=1)


@op("TopK", since=11, host=(1,), multiple=True)
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
