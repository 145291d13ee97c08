"""Running sums and products."""

from __future__ import annotations

from collections.abc import Callable

from tenonnx.operators import Array, Namespace, OperatorTable
from tenonnx_array.dtypes import accumulator

table = OperatorTable()
op = table.op


@op("CumSum", since=11, host=(1,), shapes="axis: | 1")
def cumsum(xp: Namespace, x: Array, axis: Array, *, exclusive: int = 0, reverse: int = 0) -> Array:
    """Return sums of all elements up to each one: from the end on if reversed, itself excluded."""
    return _scan(xp, xp.cumsum, x, axis, exclusive, reverse, empty=0)


@op("CumProd", since=26, host=(1,), shapes="axis: | 1")
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
    y = function(y, axis=0, dtype=accumulator(x.dtype)).astype(x.dtype, copy=False)
    if exclusive:
        y = xp.concatenate([xp.full_like(y[:1], empty), y[:-1]])
    if reverse:
        y = y[::-1]
    return xp.moveaxis(y, 0, at)
