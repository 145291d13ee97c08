"""Caches of keys and values: how they grow, and how new heads get into them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tenonnx.operators import Array
from tenonnx_cuda.attention.flash import Heads
from tenonnx_cuda.capture.tracer import DynamicNumber, cannot_capture, is_capturing
from tenonnx_cuda.kernel_selection import Target
from tenonnx_cuda.kv_cache import longer, room_of
from tenonnx_cuda.sources import THREADS_PER_BLOCK, blocks, is_aligned, pointer

# Of keys, and of values.
Pair: TypeAlias = "tuple[Any, Any]"


@dataclass(frozen=True)
class CacheWrite:
    """The rotary angles of new heads, and the places in the caches that they are written to.

    Attributes:
        cosines: (positions, rotated elements / 2), or ``None`` to rotate nothing.
        sines: (positions, rotated elements / 2), or ``None`` to rotate nothing.
        ids: Positions, int64 (batch, steps), or ``None`` for those in the cache.
        interleaved: Whether pairs are neighbors.
        last: int32 (batch,): the position of each sequence's last step, or ``None``.
        start: Where new steps go without ``last``.
    """

    cosines: Array | None = None
    sines: Array | None = None
    ids: Array | None = None
    interleaved: int = 0
    last: Array | None = None
    start: int = 0

    @property
    def sizes(self) -> tuple[int, int]:
        """Elements of a head that are rotated, and positions that there are angles for."""
        if self.cosines is None:
            return 0, 0
        return 2 * int(self.cosines.shape[-1]), int(self.cosines.shape[0])


def longest(past: Array | None, total: int) -> int:
    """Return how many steps a cache has room for that goes on to so many."""
    return total if past is None else max(total, int(past.shape[2]))


def continues(past: Pair, room: tuple[Heads, Heads]) -> bool:
    """Return whether caches can go on as others of these sizes."""
    return past[0] is None or all(
        before.ndim == 4
        and (before.shape[:2], before.shape[3]) == ((heads.batch, heads.heads), heads.size)
        and before.shape[2] == past[0].shape[2] <= heads.steps
        for before, heads in zip(past, room, strict=True)
    )


def grown(target: Target, past: Pair, room: tuple[Heads, Heads], outs: Sequence[Any]) -> Pair:
    """Return caches with what is in the past ones.

    Args:
        target: The device.
        past: Caches (batch, heads, steps, size), or ``None``s.
        room: The sizes that they are to have.
        outs: Arrays to write to, or ``None``s. One that is the past cache is that already.
    """
    steps = 0 if past[0] is None else room[0].steps - past[0].shape[2]
    if steps and not is_capturing() and all(out is None for out in outs):
        keys, values = longer(target.platform, past, 2, steps)
        return keys, values
    places = zip(room, past, outs, strict=True)
    keys, values = (_room(target, heads, before, out) for heads, before, out in places)
    if past[0] is None:
        cannot_capture()
        for cache in (keys, values):
            cache[...] = 0
    elif not (is_same(keys, past[0]) and is_same(values, past[1])):
        before = [target.xp.ascontiguousarray(cache) for cache in past]
        _carry(target, (before[0], before[1]), (keys, values))
    return keys, values


def _room(target: Target, heads: Heads, past: Any, out: Any) -> Array:
    shape, dtype = (heads.batch, heads.heads, heads.steps, heads.size), heads.array.dtype
    fits = out is not None and (out.shape, out.dtype) == (shape, dtype) and out.flags.c_contiguous
    # One that is a past cache in part would be overwritten while that is read.
    if fits and (past is None or is_same(out, past) or not target.xp.may_share_memory(out, past)):
        return out
    return target.xp.empty(shape, dtype)


def is_same(one: Array, other: Array) -> bool:
    """Return whether two contiguous arrays are the same memory in the same shape."""
    alike = one.data.ptr == other.data.ptr and one.shape == other.shape
    return one is other or bool(alike and other.flags.c_contiguous)


def _carry(target: Target, past: Pair, present: Pair) -> None:
    width = present[0].dtype.itemsize
    rows, each = math.prod(present[0].shape[:2]), 16 // width
    sizes = [math.prod(x.shape[2:]) for pair in zip(past, present, strict=True) for x in pair]
    wide = all(size % each == 0 for size in sizes) and is_aligned(*past, *present)
    if wide:
        sizes = [size // each for size in sizes]
    macros = {"T": target.element(present[0]), "VECTOR": int(wide)}
    launch = target.kernel("attention/cache", "carry", **macros)
    grid = (*blocks(rows * max(sizes[1], sizes[3])), 2)
    launch(grid, (THREADS_PER_BLOCK,), (*past, *present, *map(np.int64, (rows, *sizes))))


def append(
    target: Target, q: Heads | None, new: tuple[Heads, Heads], present: Pair, write: CacheWrite
) -> tuple[Heads | None, Array | None]:
    """Write rotated keys, and values, into caches.

    Returns:
        The rotated queries, if there are any; and how many steps each sequence has then, int64
        (batch,), if ``write.last`` says.
    """
    xp, (k, v) = target.xp, new
    rotated = None
    if q is not None:
        rotated = xp.empty((q.batch, q.steps, q.heads * q.size), q.array.dtype)
    lengths = None if write.last is None else xp.empty(k.batch, np.int64)
    arrays = (k.array if q is None else q.array, k.array, v.array)
    angles = (write.cosines, write.sines, write.ids, write.last, lengths)
    heads = 0 if q is None else q.heads
    size, angled = write.sizes
    sizes = (
        k.batch, k.steps, heads, k.heads, k.size, v.size, cached(target.xp, present[0]).capacity,
        size, angled, write.interleaved,
    )  # fmt: skip
    start = DynamicNumber(np.int32(write.start))
    strides = [np.int64(n) for h in (k if q is None else q, k, v) for n in h.strides]
    arguments = (*arrays, pointer(rotated), *present, *map(pointer, angles))
    count = k.batch * k.steps * ((heads + k.heads) * k.size + k.heads * v.size)
    launch = target.kernel("attention/cache", "append", T=target.element(k.array), VECTOR=0)
    launch(
        blocks(count), (THREADS_PER_BLOCK,), (*arguments, start, *map(np.int32, sizes), *strides)
    )
    return None if rotated is None else Heads.of(xp, rotated, heads), lengths


def cached(xp: Any, present: Array) -> Heads:
    """Return a cache as heads, in place."""
    return in_room(Heads.of(xp, present, present.shape[1]))


def in_room(heads: Heads) -> Heads:
    """Return heads with the room that they are in, if they are in one."""
    room = room_of(heads.array, -2)
    return heads if room is None else dataclasses.replace(heads, room=room.capacity)


def outputs(given: Sequence[Any] | None, count: int) -> tuple[Any, ...]:
    """Return the arrays that a step's outputs are to be written to, or ``None``s."""
    return (*(given or ()), *[None] * (count - len(given or ())))
