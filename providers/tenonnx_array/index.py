"""Reading by index, and indices themselves: Gather*, NonZero, OneHot, Unique, Compress.

On the host an index out of range is an error; on a device, where looking would stall the
stream, the array library decides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from tenonnx.operators import Array, Namespace, OperatorTable
from tenonnx_array.allocation import check_allocation

table = OperatorTable()
op = table.op

# Numbers up to which a dictionary finds unique rows in less time than sorting ranks does.
MAX_LISTED_NUMBERS = 256


def refuse_outside(indices: Array, size: int, axis: int) -> None:
    """Raise ValueError when host indices leave [-size, size-1]; device indices pass."""
    if not isinstance(indices, np.ndarray | np.generic) or indices.size == 0:
        return
    lowest, highest = int(indices.min()), int(indices.max())
    if lowest < -size or highest >= size:
        worst = lowest if lowest < -size else highest
        raise ValueError(
            f"expected indices in [{-size}, {size - 1}] along axis {axis}, found {worst}"
        )


@op("Gather")
def gather(xp: Namespace, data: Array, indices: Array, *, axis: int = 0) -> Array:
    """Pick slices along ``axis``; one index gives a view.

    ``take`` is the fastest gather there is, but numpy's copies the whole of a tensor that is not
    contiguous or not aligned first.
    """
    if not data.ndim:
        raise ValueError("expected data with an axis to pick from, found a scalar")
    try:
        if xp is not np:
            return xp.take(data, indices, axis)
        if indices.ndim and data.flags.c_contiguous and data.flags.aligned:
            return data.take(indices, axis)
        before = (slice(None),) * normalize_axis_index(axis, data.ndim)
        return data[(*before, indices if indices.ndim else int(indices), ...)]
    except IndexError:
        axis = normalize_axis_index(axis, data.ndim)
        refuse_outside(indices, data.shape[axis], axis)
        raise


def from_front(xp: Namespace, indices: Array, size: int, axis: int) -> Array:
    """Count negative indices from the front; host indices are checked."""
    refuse_outside(indices, size, axis)
    if isinstance(indices, np.ndarray) and indices.min(initial=0) >= 0:
        return indices
    return xp.where(indices < 0, indices + size, indices)


def element_positions(xp: Namespace, shape: Sequence[int], indices: Array, axis: int) -> Array:
    """Return where in a flattened tensor of this shape ``[i, indices[i, j, k], k]`` lies.

    Off ``axis`` the indices may cover less than the tensor, not more.
    """
    covered = zip(indices.shape, shape, strict=False)
    if len(shape) != indices.ndim or any(i != axis and n > m for i, (n, m) in enumerate(covered)):
        raise ValueError(f"indices of shape {indices.shape} do not fit data of {tuple(shape)}")
    strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    positions = from_front(xp, indices, shape[axis], axis).astype(xp.int64) * strides[axis]
    for other, n in enumerate(indices.shape):
        if other != axis and n > 1:
            steps = xp.arange(n) * strides[other]
            positions += steps.reshape((n,) + (1,) * (len(shape) - 1 - other))
    return positions


@op("GatherElements", since=11)
def gather_elements(xp: Namespace, data: Array, indices: Array, *, axis: int = 0) -> Array:
    """Pick ``data[i, indices[i, j, k], k]``."""
    axis = normalize_axis_index(axis, data.ndim)
    return xp.take(data.reshape(-1), element_positions(xp, data.shape, indices, axis))


@op("GatherND", since=12)
@op("GatherND", since=11, without=("batch_dims",))
def gather_nd(xp: Namespace, data: Array, indices: Array, *, batch_dims: int = 0) -> Array:
    """Pick ``data[batch][indices[batch, i]]``; index tuples lie along the last axis."""
    if indices.shape[:batch_dims] != data.shape[:batch_dims]:
        raise ValueError(
            f"expected indices to have the first {batch_dims} sizes of data {data.shape}, found "
            f"{indices.shape}"
        )
    if indices.shape[-1] > data.ndim - batch_dims:
        raise ValueError(
            f"index tuples of {indices.shape[-1]} are too long for data of shape {data.shape} "
            f"with {batch_dims} batch dimensions"
        )
    places = indices.ndim - 1
    batch = [
        xp.arange(n).reshape((n,) + (1,) * (places - 1 - i))
        for i, n in enumerate(indices.shape[:batch_dims])
    ]
    columns = [indices[..., i] for i in range(indices.shape[-1])]
    if not columns:  # empty tuples, each of which picks all there is
        kept = (*indices.shape[:batch_dims], *(1,) * (places - batch_dims))
        whole = data.reshape(kept + data.shape[batch_dims:])
        return xp.broadcast_to(whole, indices.shape[:-1] + data.shape[batch_dims:]).copy()
    try:
        return data[(*batch, *columns, ...)]
    except IndexError:
        for axis, column in enumerate(columns, batch_dims):
            refuse_outside(column, data.shape[axis], axis)
        raise


@op("NonZero", since=9)
def non_zero(xp: Namespace, x: Array) -> Array:
    """One row of int64 indices per axis; a scalar has no axis, but still a count: (0, N)."""
    if x.ndim == 0:
        # A device is not asked: it counts when it finds the places of one element.
        return xp.zeros((0, len(xp.nonzero(x.reshape(1))[0])), xp.int64)
    return xp.stack(xp.nonzero(x)).astype(xp.int64)


@op("OneHot", since=9, host=(1,), shapes="depth: | 1; values: 2")
def one_hot(xp: Namespace, indices: Array, depth: Array, values: Array, *, axis: int = -1) -> Array:
    """Put ``values[1]`` where a class index is, from the front or the back, else ``values[0]``."""
    rank = indices.ndim + 1
    axis = normalize_axis_index(axis, rank)
    count = int(depth.item())
    check_allocation(xp, (*indices.shape, count), values.dtype)
    classes = xp.arange(count).reshape((count,) + (1,) * (rank - 1 - axis))
    if indices.dtype.kind not in "iu":
        indices = indices.astype(xp.int64)
    places = xp.expand_dims(indices, axis)
    return xp.where((places == classes) | (places == classes - count), values[1:], values[:1])


@op("Unique", since=11, multiple=True)
def unique(
    xp: Namespace,
    x: Array,
    *,
    axis: int | None = None,
    sorted: int = 1,  # noqa: A002 - spec's name
) -> tuple[Array, ...]:
    """Distinct elements, or subtensors along ``axis``; where each first occurs; inverse; counts."""
    keys: Any = x.reshape(-1)
    if axis is None and xp is np and x.dtype != object:
        return _unique_of_row(keys, bool(sorted))
    if xp is np and x.size and (x.dtype == object or (axis is not None and _are_few(x))):
        if axis is not None:
            rows = x if axis == 0 and x.ndim else xp.moveaxis(x, axis, 0)
            found = _unique_of_list([*map(tuple, rows.reshape(len(rows), -1).tolist())], sorted)
            return x.take(found[0], axis), *found
        found = _unique_of_list(keys.tolist(), sorted)
        return keys.take(found[0]), *found
    if axis is not None:
        # Ranks in place of values: rows of integers compare whatever the dtype, strings too.
        ranks = xp.unique(keys, return_inverse=True)[1].reshape(x.shape)
        ranks = xp.moveaxis(ranks, axis, 0)
        keys = ranks.reshape((len(ranks), math.prod(ranks.shape[1:])))
        # Rows of many numbers are compared sooner than joined: measured from 4 rows a column.
        if xp is np and len(keys) >= 4 * keys.shape[1] > 0:
            first, *rest = _unique_of_row(_joined(keys), bool(sorted))[1:]
            return xp.take(x, first, axis), first, *rest
    _, first, inverse, counts = xp.unique(
        keys,
        return_index=True,
        return_inverse=True,
        return_counts=True,
        axis=None if axis is None else 0,
    )
    inverse = inverse.reshape(-1)
    if not sorted:
        order = xp.argsort(first)
        first, counts, inverse = first[order], counts[order], xp.argsort(order)[inverse]
    values = keys.take(first) if axis is None else xp.take(x, first, axis)
    return values, *(a.astype(xp.int64) for a in (first, inverse, counts))


def _are_few(x: Array) -> bool:
    """Return whether there are few numbers, none of which is NaN."""
    if x.size > MAX_LISTED_NUMBERS:
        return False
    return x.dtype.kind in "iub" or (x.dtype.kind == "f" and np.count_nonzero(x == x) == x.size)


def _unique_of_list(keys: list[Any], by_value: int) -> tuple[Array, ...]:
    """Return where each of some keys first occurs, their ranks and counts, by a dictionary."""
    rank = {key: place for place, key in enumerate(sorted(set(keys)))}
    inverse = np.fromiter(map(rank.__getitem__, keys), np.int64, len(keys))
    first = np.empty(len(rank), np.int64)
    first[inverse[::-1]] = np.arange(len(keys) - 1, -1, -1)  # the last one that is written stays
    counts = np.bincount(inverse).astype(np.int64, copy=False)
    if not by_value:
        order = np.argsort(first)
        first, counts, inverse = first[order], counts[order], np.argsort(order)[inverse]
    return first, inverse, counts


def _joined(ranks: Array) -> Array:
    """Return a number for each row of ranks, in whose order rows come."""
    base = int(ranks.max()) + 1
    total, most = ranks[:, 0], base
    for column in ranks.T[1:]:
        if most > np.iinfo(np.int64).max // base:
            total = np.unique(total, return_inverse=True)[1]
            if (most := int(total.max()) + 1) == len(total):
                break
        total, most = total * base + column, most * base
    return total


def _unique_of_row(keys: Array, by_value: bool) -> tuple[Array, ...]:
    """Return what ``unique`` does of numpy's; all operations are of whole arrays.

    NaN are all the same one.
    """
    order = np.argsort(keys, kind="stable").astype(np.int64, copy=False)
    row = keys[order]
    new = np.empty_like(row, bool)
    new[:1] = True
    np.not_equal(row[1:], row[:-1], out=new[1:])
    if row.dtype.kind in "fcV":
        new[1:] &= (row[1:] == row[1:]) | (row[:-1] == row[:-1])
    starts = non_zero(np, new)[0]
    first, counts = order[starts], np.empty_like(order, shape=starts.shape)
    np.subtract(starts[1:], starts[:-1], out=counts[:-1])
    counts[-1:] = len(keys) - starts[-1:]
    place = np.add.accumulate(new, dtype=np.int64) - 1
    if not by_value:
        by_place = np.argsort(first, kind="stable")
        first, counts = first[by_place], counts[by_place]
        number = np.empty_like(order, shape=starts.shape)
        number[by_place] = np.arange(len(starts))
        place = number[place]
    inverse = np.empty_like(order)
    inverse[order] = place
    return keys[first], first, inverse, counts


@op("Compress", since=9, shapes="condition: n")
def compress(xp: Namespace, x: Array, condition: Array, *, axis: int | None = None) -> Array:
    """Keep the slices, or the flattened elements, where ``condition`` holds; it may be shorter."""
    return xp.compress(condition, x, axis)


@op(
    "ReverseSequence",
    since=10,
    host=(1,),
    shapes=("sorted((batch_axis, time_axis)) == [0, 1]; len(x) > 1; sequence_lens: x[batch_axis]"),
)
def reverse_sequence(
    xp: Namespace, x: Array, sequence_lens: Array, *, batch_axis: int = 1, time_axis: int = 0
) -> Array:
    """Reverse the first ``sequence_lens[b]`` steps of each sequence; the rest stays.

    Raises:
        ValueError: A length is negative, or more than there are steps.
    """
    batches = xp.moveaxis(x, (batch_axis, time_axis), (0, 1))
    longest = batches.shape[1]
    if sequence_lens.size and not 0 <= sequence_lens.min() <= sequence_lens.max() <= longest:
        raise ValueError(
            f"expected sequence_lens from 0 to {longest}, the size of axis {time_axis}, found "
            f"{sequence_lens.min()} to {sequence_lens.max()}"
        )
    steps = np.arange(longest)
    lengths = sequence_lens[:, None]
    source = np.where(steps < lengths, lengths - 1 - steps, steps)
    reversed_ = batches[xp.arange(len(source))[:, None], xp.asarray(source)]
    return xp.moveaxis(reversed_, (0, 1), (batch_axis, time_axis))
