"""Running sums and products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tenonnx.interruption import pieces
from tenonnx.operators import Array, Namespace, OperatorTable
from tenonnx_array.dtypes import accumulator

LONGEST = 1 << 21
"""Elements that are gone over at once: some hundredths of a second."""

table = OperatorTable()
op = table.op


@op("CumSum", since=11, host=(1,))
def cumsum(xp: Namespace, x: Array, axis: Array, *, exclusive: int = 0, reverse: int = 0) -> Array:
    """Return sums of all elements up to each one: from the end on if reversed, itself excluded."""
    return _scan(xp, xp.cumsum, x, axis, exclusive, reverse, empty=0)


@op("CumProd", since=26, host=(1,))
def cumprod(xp: Namespace, x: Array, axis: Array, *, exclusive: int = 0, reverse: int = 0) -> Array:
    """Return products of all elements up to each one; see `cumsum`."""
    return _scan(xp, xp.cumprod, x, axis, exclusive, reverse, empty=1)


def _scan(
    xp: Namespace,
    function: Callable[..., Array],
    x: Array,
    axis: Array,
    exclusive: int,
    reverse: int,
    empty: int,
) -> Array:
    """Run along the axis, which is brought to the front and back again."""
    at = int(axis.reshape(()))
    y = xp.moveaxis(x, at, 0)
    if reverse:
        y = y[::-1]
    y = _run(xp, function, y, accumulator(x.dtype)).astype(x.dtype, copy=False)
    if exclusive:
        y = xp.concatenate([xp.full_like(y[:1], empty), y[:-1]])
    if reverse:
        y = y[::-1]
    return xp.moveaxis(y, 0, at)


def _run(xp: Namespace, function: Callable[..., Array], x: Array, dtype: Any) -> Array:
    """Return ``function(x, axis=0, dtype=dtype)``; numpy's is cut if it takes long."""
    if xp is not np or x.size <= LONGEST:
        return function(x, axis=0, dtype=dtype)
    y = np.empty_like(x, dtype)
    if x.size > len(x):  # cut across what is summed
        axis = 1 + int(np.argmax(x.shape[1:]))
        for some in pieces(x.shape[axis], x.size, LONGEST):
            part = (slice(None),) * axis + (some,)
            function(x[part], axis=0, dtype=dtype, out=y[part])
        return y
    for some in pieces(len(x), x.size, LONGEST):
        before = y[max(some.start - 1, 0) : some.start]
        y[some] = function(np.concatenate([before, x[some]], dtype=dtype), axis=0)[len(before) :]
    return y
