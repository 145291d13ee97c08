"""Images whose channels are last in memory, in arrays whose channels are second as ONNX's are.

Tensor cores take the channels of a pixel together. Whoever does not know of it reads such arrays by
their strides, and is right.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tenonnx.operators import Array

if TYPE_CHECKING:
    import onnx_ir as ir


def is_last(x: Array) -> bool:
    """Return whether an array (N, C, D1, ...) lies as (N, D1, ..., C) does, without gaps."""
    return bool(last(x).flags.c_contiguous)


def last(x: Array) -> Array:
    """Return (N, C, D1, ...) as (N, D1, ..., C): the same memory."""
    return x.transpose(0, *range(2, x.ndim), 1)


def empty(xp: Any, shape: tuple[int, ...], dtype: Any, *, at_end: bool) -> Array:
    """Return an array (N, C, D1, ...) with its channels last, or where they are."""
    if not at_end:
        return xp.empty(shape, dtype)
    n, c, *size = shape
    return first(xp.empty((n, *size, c), dtype))


def first(x: Array) -> Array:
    """Return (N, D1, ..., C) as (N, C, D1, ...): the same memory."""
    return x.transpose(0, x.ndim - 1, *range(1, x.ndim - 1))


def with_channels(xp: Any, x: Array, *, at_end: bool) -> Array:
    """Return an array with its channels last, or where they are; itself if it has them there."""
    if not at_end:
        return xp.ascontiguousarray(x)
    return x if is_last(x) else first(xp.ascontiguousarray(last(x)))


def has_channels_last(x: Array) -> bool | None:
    """Return whether channels are last (``True``) or where they are; ``None`` if there are gaps."""
    if x.flags.c_contiguous:
        return False
    return True if is_last(x) else None


def turned(arrays: Sequence[Array]) -> list[Array] | None:
    """Return arrays that broadcast with their channels as the last axis: the same memory.

    ``None`` where channels are last in none of them, or that would align other axes.
    """
    rank = max(x.ndim for x in arrays)
    if rank < 3 or not any(x.ndim == rank and has_channels_last(x) for x in arrays):
        return None
    if any(x.ndim < rank and x.size > 1 for x in arrays):
        return None
    return [last(x) if x.ndim == rank else x for x in arrays]


def may_choose(node: ir.Node) -> bool:
    """Return whether a node's results may lie either way: what a run returns has an address."""
    return not any(value.is_graph_output() for value in node.outputs)
