"""Parts of tensors and tensors of parts: Slice, Split, Concat, Tile. Parts are views."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from numpy.lib.array_utils import normalize_axis_index

from tenonnx.operators import Array, Namespace, OperatorTable
from tenonnx_array.allocation import check_allocation

table = OperatorTable()
op = table.op


@op("Slice", since=10, host=(1, 2, 3, 4), shapes="starts ends axes steps: n")
def slice_(
    _xp: Namespace,
    data: Array,
    starts: Array,
    ends: Array,
    axes: Array | None = None,
    steps: Array | None = None,
) -> Array:
    first, last = starts.ravel().tolist(), ends.ravel().tolist()
    return _slice(
        data,
        first,
        last,
        range(len(first)) if axes is None else axes.ravel().tolist(),
        [1] * len(first) if steps is None else steps.ravel().tolist(),
    )


@op("Slice")
def slice_1(
    _xp: Namespace,
    data: Array,
    *,
    starts: Sequence[int],
    ends: Sequence[int],
    axes: Sequence[int] | None = None,
) -> Array:
    return _slice(
        data, starts, ends, range(len(starts)) if axes is None else axes, [1] * len(starts)
    )


def _slice(
    data: Array,
    starts: Sequence[int],
    ends: Sequence[int],
    axes: Sequence[int],
    steps: Sequence[int],
) -> Array:
    """Slice as Python does, but for a start before the first element with a negative step.

    The specification clamps that start to the first element, Python to the place before it.
    """
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise ValueError(
            f"expected as many ends, axes and steps as the {len(starts)} starts, "
            f"found {len(ends)}, {len(axes)} and {len(steps)}"
        )
    places = [normalize_axis_index(axis, data.ndim) for axis in axes]
    if len({*places}) < len(places):
        raise ValueError(f"expected axes without repeats, found {list(axes)}")
    index = [slice(None)] * data.ndim
    for start, end, axis, step in zip(starts, ends, places, steps, strict=True):
        if step < 0:
            start = max(start, -data.shape[axis])
        index[axis] = slice(start, end, step)
    return data[tuple(index)]


@op("Split", since=18, host=(1,), multiple=True, shapes="split: n")
def split(
    _xp: Namespace,
    x: Array,
    split: Array | None = None,
    *,
    axis: int = 0,
    num_outputs: int | None = None,
    _outputs: int,
) -> tuple[Array, ...]:
    axis = normalize_axis_index(axis, x.ndim)
    if split is not None:
        return _as_many(pieces(x, split.tolist(), axis), _outputs)
    count, total = num_outputs or _outputs, x.shape[axis]
    if count != _outputs:
        raise ValueError(f"expected num_outputs to be {_outputs}, found {count}")
    chunk = -(-total // count)
    if (last := total - chunk * (count - 1)) < 0:
        raise ValueError(
            f"axis {axis} of shape {x.shape} cannot be split into {count} parts, of which all but "
            "the last are equal"
        )
    return pieces(x, [*[chunk] * (count - 1), last], axis)


@op("Split", since=13, host=(1,), multiple=True, shapes="split: n")
def split_13(
    _xp: Namespace, x: Array, split: Array | None = None, *, axis: int = 0, _outputs: int
) -> tuple[Array, ...]:
    return _even_or_given(x, None if split is None else split.tolist(), axis, _outputs)


@op("Split", since=2, multiple=True)
def split_2(
    _xp: Namespace, x: Array, *, axis: int = 0, split: Sequence[int] | None = None, _outputs: int
) -> tuple[Array, ...]:
    return _even_or_given(x, split, axis, _outputs)


@op("Split", host=(1,), multiple=True)
def split_1(
    _xp: Namespace,
    x: Array,
    lengths: Array | None = None,
    *,
    axis: int | None = None,
    split: Sequence[int] | None = None,
    _outputs: int,
) -> tuple[Array, ...]:
    """Split-1 takes the lengths from either place; as input they have the data's float type."""
    given = split if lengths is None else [int(n) for n in lengths.tolist()]
    return _even_or_given(x, given, axis or 0, _outputs)


def _even_or_given(
    x: Array, lengths: Sequence[int] | None, axis: int, count: int
) -> tuple[Array, ...]:
    axis = normalize_axis_index(axis, x.ndim)
    if lengths is None:
        if x.shape[axis] % count:
            raise ValueError(
                f"axis {axis} of shape {x.shape} cannot be split into {count} equal parts"
            )
        lengths = [x.shape[axis] // count] * count
    return _as_many(pieces(x, lengths, axis), count)


def _as_many(parts: tuple[Array, ...], count: int) -> tuple[Array, ...]:
    if len(parts) != count:
        raise ValueError(f"expected split to have {count} lengths, found {len(parts)}")
    return parts


def pieces(x: Array, lengths: Sequence[int], axis: int) -> tuple[Array, ...]:
    """Cut ``x`` along ``axis`` (not negative) into views of these lengths.

    Raises:
        ValueError: The lengths do not add up to the dimension, or one is negative.
    """
    if sum(lengths) != x.shape[axis] or min(lengths, default=0) < 0:
        raise ValueError(
            f"split {list(lengths)} does not add up to the {x.shape[axis]} of axis {axis}"
        )
    before = (slice(None),) * axis
    stops = itertools.accumulate(lengths)
    return tuple(
        x[(*before, slice(stop - length, stop))]
        for stop, length in zip(stops, lengths, strict=True)
    )


@op("Concat", since=4)
def concat(xp: Namespace, *inputs: Array, axis: int) -> Array:
    if len(inputs) == 1:
        return inputs[0]
    return xp.concatenate(inputs, axis)


@op("Concat")
def concat_1(xp: Namespace, *inputs: Array, axis: int = 1) -> Array:
    return concat(xp, *inputs, axis=axis)


@op("Tile", since=6, host=(1,), shapes="repeats: len(x)")
def tile(xp: Namespace, x: Array, repeats: Array) -> Array:
    return _tile(xp, x, repeats.tolist())


@op("Tile", host=(1, 2))
def tile_1(xp: Namespace, x: Array, tiles: Array, axis: Array) -> Array:
    repeats = [1] * x.ndim
    repeats[normalize_axis_index(int(axis.item()), x.ndim)] = int(tiles.item())
    return _tile(xp, x, repeats)


def _tile(xp: Namespace, x: Array, repeats: Sequence[int]) -> Array:
    """Broadcast (d0, d1) to (r0, d0, r1, d1), then join the pairs: one copy, or none."""
    if len(repeats) != x.ndim:
        raise ValueError(f"expected one repeat for each axis of {x.shape}, found {list(repeats)}")
    apart = [size for n in x.shape for size in (1, n)]
    wide = [size for r, n in zip(repeats, x.shape, strict=True) for size in (r, n)]
    joined = [r * n for r, n in zip(repeats, x.shape, strict=True)]
    check_allocation(xp, joined, x.dtype)
    return xp.broadcast_to(x.reshape(apart), wide).reshape(joined)
