"""Arrays whose large operations numpy does in pieces, between which a run can be stopped.

They are for kernels that have no axis to be cut along, as the softmax of one long row: such a
kernel is called as it is, with its inputs as these arrays. numpy's functions then compute some
elements after the others: functions of elements, reductions, reading and writing by index,
conversions. The results are numpy's, but for sums of floats: those of pieces are added in float64.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from tenonnx.interruption import copied, pieces
from tenonnx.operators import Array
from tenonnx_array.allocation import check_allocation
from tenonnx_array.sorting import stable_order

LONGEST = 1 << 18
"""Elements of a piece."""

Place = tuple[slice, ...]


class Piecewise(np.ndarray[Any, Any]):
    """An array of numpy's, and what is made of it, whose operations are done in pieces."""

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = None, **options: Any
    ) -> Any:
        """Does what numpy's function does, in pieces if that is element by element."""
        arrays = [plain(x) for x in inputs]
        into = None if out is None else tuple(plain(x) for x in out)
        if method == "__call__" and ufunc.signature is None and ufunc.nout == 1:
            if options.get("where", True) is True:
                target = None if into is None else into[0]
                return watched(elementwise(functools.partial(ufunc, **options), arrays, target))
        elif method == "reduce" and into is None and not _is_partial(options):
            return watched(reduced(ufunc, arrays[0], **options))
        elif method == "accumulate" and into is None and inputs[0].ndim == 1:
            return watched(_accumulated(ufunc, arrays[0], **options))
        elif method == "at":
            return _at_indices(ufunc, *arrays)
        if into is not None:
            options["out"] = into
        found = getattr(ufunc, method)(*arrays, **options)
        return tuple(map(watched, found)) if isinstance(found, tuple) else watched(found)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Chooses elements in pieces; the rest is for the methods of these arrays."""
        if func is np.where and len(args) == 3 and not kwargs:
            return watched(elementwise(np.where, [plain(x) for x in args]))
        return super().__array_function__(func, types, args, kwargs)

    def __getitem__(self, key: Any) -> Any:
        """Reads by many indices in pieces."""
        if (rows := _rows(key, self.shape)) is None:
            return super().__getitem__(key)
        source, extent = plain(self), self.shape[len(rows.columns) :]
        check_allocation(np, (*rows.shape, *extent), self.dtype)
        y = np.empty((rows.count, *extent), self.dtype)
        for some in rows.pieces():
            y[some] = source[tuple(column[some] for column in rows.columns)]
        return watched(y.reshape(*rows.shape, *extent))

    def __setitem__(self, key: Any, value: Any) -> None:
        """Writes by many indices in pieces."""
        if (rows := _rows(key, self.shape)) is None:
            super().__setitem__(key, value)
            return
        target, extent = plain(self), self.shape[len(rows.columns) :]
        values = np.broadcast_to(plain(value), (*rows.shape, *extent))
        values = values.reshape(rows.count, *extent)
        for some in rows.pieces():
            target[tuple(column[some] for column in rows.columns)] = values[some]

    def astype(self, dtype: Any, *args: Any, **options: Any) -> Any:
        """Converts in pieces."""
        kept = self.dtype == dtype and not options.get("copy", True)
        if kept or args or self.size <= LONGEST:
            return super().astype(dtype, *args, **options)
        y = np.empty_like(plain(self), dtype)
        for place in places(y):
            y[place] = plain(self)[place]
        return watched(y)

    def copy(self, order: Any = "C") -> Any:
        """Copies in pieces."""
        return watched(copied(plain(self))) if order == "C" else super().copy(order)

    def flatten(self, order: Any = "C") -> Any:
        """Copies in pieces."""
        return self.copy(order).reshape(-1, order=order)

    def compress(self, condition: Any, axis: Any = None, out: Any = None) -> Any:
        """Picks elements of the flattened array in pieces."""
        if axis is not None or out is not None or self.size <= LONGEST:
            return super().compress(condition, axis, out)
        flat, chosen = plain(self).reshape(-1), np.asarray(condition).reshape(-1).astype(bool)
        if len(chosen) > len(flat):
            return super().compress(condition)
        y, start = np.empty(np.count_nonzero(chosen), self.dtype), 0
        for some in _flat_pieces(len(chosen)):
            stop = start + int(np.count_nonzero(chosen[some]))
            np.compress(chosen[some], flat[some], out=y[start:stop])
            start = stop
        return watched(y)

    def argsort(self, axis: Any = -1, kind: Any = None, order: Any = None, **options: Any) -> Any:
        """Orders a long row in pieces; stably, whatever the kind."""
        if self.ndim != 1 or self.size <= LONGEST or order is not None or self.dtype.names:
            return super().argsort(axis, kind, order, **options)
        return watched(stable_order(plain(self)))


def watched(x: Any) -> Any:
    """Returns numpy's array as one whose operations are done in pieces, over its own memory."""
    return x.view(Piecewise) if type(x) is np.ndarray else x


def plain(x: Any) -> Any:
    """Returns such an array as numpy's: its source, if it has one."""
    if not isinstance(x, Piecewise):
        return x
    base = x.base
    if type(base) is np.ndarray and (base.shape, base.strides, base.dtype, base.ctypes.data) == (
        x.shape, x.strides, x.dtype, x.ctypes.data,
    ):  # fmt: skip
        return base
    return x.view(np.ndarray)


def piecewise(call: Callable[..., Any], *inputs: Any, **options: Any) -> Any:
    """Returns what a kernel of numpy's does of inputs whose operations are done in pieces."""
    found = call(*map(watched, inputs), **options)
    return tuple(map(plain, found)) if isinstance(found, tuple) else plain(found)


def places(like: Array) -> Iterator[Place]:
    """Yields where an array's pieces are, in the order of its memory, looking whether to stop."""
    order = sorted(range(like.ndim), key=lambda axis: -abs(like.strides[axis]))
    depth, inner = 0, like.size // like.shape[order[0]]
    while inner > LONGEST:
        depth += 1
        inner //= like.shape[order[depth]]
    outer, axis = order[:depth], order[depth]
    for index in np.ndindex(*(like.shape[each] for each in outer)):
        for some in pieces(like.shape[axis], like.shape[axis] * inner, LONGEST):
            place = [slice(None)] * like.ndim
            place[axis] = some
            for each, at in zip(outer, index, strict=True):
                place[each] = slice(at, at + 1)
            yield tuple(place)


def elementwise(function: Callable[..., Any], inputs: Sequence[Any], out: Any = None) -> Any:
    """Returns a function of elements of inputs that broadcast, in ``out`` if that is given."""
    into = {} if out is None else {"out": out}
    shape = np.broadcast_shapes(*(np.shape(x) for x in inputs))
    if math.prod(shape) <= LONGEST:
        return function(*inputs, **into)
    if out is None:
        dtype = function(*(_part(x, (slice(1),) * len(shape)) for x in inputs)).dtype
        check_allocation(np, shape, dtype)
        like = next((x for x in inputs if np.shape(x) == shape), None)
        out = np.empty(shape, dtype) if like is None else np.empty_like(like, dtype)
    elif out.shape != shape or any(_crosses(x, out) for x in inputs):
        return function(*inputs, **into)
    for place in places(out):
        found = _part(out, place)
        if function is np.where:
            found[...] = function(*(_part(x, place) for x in inputs))
        else:
            function(*(_part(x, place) for x in inputs), out=found)
    return out


def _part(x: Any, place: Place) -> Any:
    if np.ndim(x) == 0:
        return x
    own = place[len(place) - x.ndim :]
    return x[tuple(slice(None) if n == 1 else s for n, s in zip(x.shape, own, strict=True))]


def _crosses(x: Any, out: Array) -> bool:
    """Says whether an element that is written may be another one that is read later."""
    if not isinstance(x, np.ndarray) or not np.may_share_memory(x, out):
        return False
    return (x.ctypes.data, x.shape, x.strides) != (out.ctypes.data, out.shape, out.strides)


def _is_partial(options: dict[str, Any]) -> bool:
    """Says whether a reduction begins with more than its elements, or has not all of them."""
    given = options.pop("where", True) is not True
    return given or "initial" in options


def reduced(
    ufunc: np.ufunc, x: Array, axis: Any = 0, dtype: Any = None, *, keepdims: bool = False
) -> Any:
    """Returns a reduction of pieces, of floats at least in float64 from piece to piece."""
    if x.size <= LONGEST:
        return ufunc.reduce(x, axis=axis, dtype=dtype, keepdims=keepdims)
    gone = set(range(x.ndim) if axis is None else normalize_axis_tuple(axis, x.ndim))
    y: Array | None = None
    kind = np.dtype(np.float64)
    for place in places(x):
        part = ufunc.reduce(x[place], axis=tuple(gone), dtype=dtype, keepdims=True)
        if y is None:
            kind = part.dtype
            wide = np.result_type(kind, np.float64) if kind.kind == "f" else kind
            y = np.empty([1 if i in gone else n for i, n in enumerate(x.shape)], wide)
        into = y[tuple(slice(None) if i in gone else some for i, some in enumerate(place))]
        if any(place[i].start for i in gone):
            ufunc(into, part, out=into)
        else:
            into[...] = part
    assert y is not None, "there are pieces"
    y = y.astype(kind, copy=False)
    return y if keepdims else y.reshape([n for i, n in enumerate(x.shape) if i not in gone])[()]


def _accumulated(ufunc: np.ufunc, x: Array, axis: int = 0, dtype: Any = None) -> Array:
    """Returns what a ufunc makes of a row's elements up to each one."""
    y = np.empty(len(x), ufunc.accumulate(x[:1], axis, dtype).dtype)
    for some in _flat_pieces(len(x)):
        ufunc.accumulate(x[some], axis, dtype, out=y[some])
        if some.start:
            ufunc(y[some], y[some.start - 1], out=y[some])
    return y


def _at_indices(ufunc: np.ufunc, x: Array, indices: Any, *values: Any) -> None:
    """Does ``ufunc.at``, some indices after the others."""
    if not isinstance(indices, np.ndarray) or indices.ndim != 1:
        ufunc.at(x, indices, *values)
        return
    values = tuple(np.broadcast_to(v, (len(indices), *x.shape[1:])) for v in values)
    for some in _flat_pieces(len(indices)):
        ufunc.at(x, indices[some], *(v[some] for v in values))


def _flat_pieces(count: int) -> Iterator[slice]:
    return pieces(count, count, LONGEST)


class _Rows:
    """Many places of an array's first axes, each in one of flat columns of indices."""

    def __init__(self, columns: Sequence[Array], shape: tuple[int, ...], work: int) -> None:
        self.columns = [np.broadcast_to(column, shape).reshape(-1) for column in columns]
        self.shape, self.count, self.work = shape, math.prod(shape), work

    def pieces(self) -> Iterator[slice]:
        return pieces(self.count, self.work, LONGEST)


def _rows(key: Any, shape: tuple[int, ...]) -> _Rows | None:
    """Returns the places that a key has; ``None`` if they are few, or it is not made of indices."""
    given = key if isinstance(key, tuple) else (key,)
    given = given[:-1] if given and given[-1] is ... else given
    columns = [plain(each) for each in given]
    if not columns or not all(isinstance(x, np.ndarray) and x.dtype.kind in "iu" for x in columns):
        return None
    wide = np.broadcast_shapes(*(column.shape for column in columns))
    work = math.prod(wide) * math.prod(shape[len(columns) :])
    return _Rows(columns, wide, work) if work > LONGEST else None
