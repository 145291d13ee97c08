"""GroupQueryAttention: heads are turned into the cache, and read there where they lie."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tenonnx.operators import Array
from tenonnx_cuda.chosen import Call, Site, choose, same_element
from tenonnx_cuda.flash import Heads, Sight, attended, masked
from tenonnx_cuda.sources import THREADS, blocks, pointer

ELSEWHERE: Final = {
    "k_quant_type": "NONE",
    "v_quant_type": "NONE",
    "sliding_window_cache": 0,
    "qk_output": 0,
}
"""Attributes that are left to the array kernel, unless they have these values."""

INPUTS: Final = 16


@dataclass(frozen=True)
class Turn:
    """How heads turn, and where they go.

    Attributes:
        cosines: (positions, turned / 2), or ``None`` if they do not.
        sines: Likewise.
        ids: Positions, int64 (batch, steps), or ``None`` for those in the cache.
        interleaved: Whether pairs are neighbours.
        starts: Where in the cache each sequence's new steps go, int64 (batch,).
        start: Where they go without ``starts``.
    """

    cosines: Array | None
    sines: Array | None
    ids: Array | None
    interleaved: int
    starts: Array | None
    start: int

    @property
    def size(self) -> int:
        """Elements of a head that turn."""
        return 0 if self.cosines is None else 2 * int(self.cosines.shape[-1])


@choose("GroupQueryAttention", domain="com.microsoft")
def group_query_attention(site: Site, plain: Call) -> Call | None:
    """GroupQueryAttention whose cache holds what it is given."""
    if any(site.attribute(name, value) != value for name, value in ELSEWHERE.items()):
        return None
    q_heads, kv_heads = site.attribute("num_heads", 0), site.attribute("kv_num_heads", 0)
    window, rotates = site.attribute("local_window_size", -1), site.attribute("do_rotary", 0)
    left, right = max(-1, window - 1), 0 if site.attribute("causal", 1) else -1
    scale, softcap = site.attribute("scale", 0.0), site.attribute("softcap", 0.0)
    smooth = site.attribute("smooth_softmax", -1) == 1
    interleaved = site.attribute("rotary_interleaved", 0)
    xp = site.xp

    def call(*inputs: Any) -> tuple[Any, ...]:
        given: list[Any] = [*inputs, *[None] * (INPUTS - len(inputs))]
        query, key, value, past_key, past_value, last, total = given[:7]
        cos, sin, ids, bias, sinks = given[7:12]
        new = projected(query, key, value, q_heads, kv_heads)
        angles = (cos, sin) if rotates else (None, None)
        element = same_element(query, key, value, past_key, past_value, *angles)
        whole = rotates == (angles[0] is not None) and (past_key is None) == (past_value is None)
        whole = whole and all(more is None for more in given[12:])
        if new is None or element is None or not whole:
            return plain(*inputs)  # type: ignore[no-any-return]  # a kernel of the library
        q, k, v = new
        keys, totals = int(total.item()), last.reshape(-1).astype(np.int64) + 1
        starts = np.zeros_like(totals) if q.steps == keys else totals - q.steps
        if not fits(starts, q, keys, angles[0]):
            return plain(*inputs)  # type: ignore[no-any-return]  # which says what is wrong
        places = positions(xp, ids, q, first=q.steps == keys)
        # Sequences of one length, as one alone, need nothing brought over.
        alike = bool((totals == keys).all())
        begins, lengths = (None, None) if alike else xp.asarray(np.stack([starts, totals]))
        turn = Turn(angles[0], angles[1], places, interleaved, begins, int(starts[0]))
        present = [grown(xp, past, h, keys) for past, h in ((past_key, k), (past_value, v))]
        turned = append(site, element, q, k, v, present, turn)
        held = [cached(heads, keys) for heads in present]
        seen = masked(bias, turned, held[0], query.dtype)
        if seen is None:
            return plain(*inputs)  # type: ignore[no-any-return]  # likewise
        offset = turn.start if alike or q.steps == keys else -1
        given_sinks = xp.zeros(q_heads, np.float32) if smooth else sinks
        added = None if given_sinks is None else given_sinks.astype(np.float32, copy=False)
        factor = scale or 1 / math.sqrt(q.size)
        sight = Sight(seen, offset, lengths, left, right, factor, softcap, added)
        y = attended(site, turned, held[0], held[1], sight)
        if y is None:
            return plain(*inputs)  # type: ignore[no-any-return]  # likewise
        return y.reshape(*query.shape[:2], -1), *present, None

    return call


def projected(
    query: Array, key: Array | None, value: Array | None, q_heads: int, kv_heads: int
) -> tuple[Heads, Heads, Heads] | None:
    """Returns the new heads where they lie, in arrays of their own or all in the query.

    ``None`` if they do not divide evenly, or lie scattered.
    """
    if (key is None) != (value is None) or not query.flags.c_contiguous or not query.size:
        return None
    batch, steps, width = query.shape
    count = q_heads if key is not None else q_heads + 2 * kv_heads
    if width % count or q_heads % kv_heads:
        return None
    size = width // count
    q = Heads(query, batch, q_heads, steps, size, (steps * width, size, width))
    if key is None or value is None:
        flat = query.reshape(-1)
        ends = (q_heads * size, (q_heads + kv_heads) * size)
        k, v = (dataclasses.replace(q, array=flat[end:], heads=kv_heads) for end in ends)
        return q, k, v
    if key.shape != (batch, steps, kv_heads * size) or value.shape != key.shape:
        return None
    if not (key.flags.c_contiguous and value.flags.c_contiguous):
        return None
    width = kv_heads * size
    strides = (steps * width, size, width)
    k, v = (Heads(array, batch, kv_heads, steps, size, strides) for array in (key, value))
    return q, k, v


def fits(starts: Array, q: Heads, keys: int, cosines: Array | None) -> bool:
    """Says whether new steps have room, and angles for their positions and heads' sizes."""
    inside = starts.min() >= 0 and (starts + q.steps).max() <= keys
    return bool(inside) and (
        cosines is None or (len(cosines) >= keys and 2 * cosines.shape[-1] <= q.size)
    )


def positions(xp: Any, ids: Array | None, q: Heads, *, first: bool) -> Array | None:
    """Returns int64 positions (batch, steps), or ``None`` for those in the cache.

    Of those given for a first prompt the first one counts.
    """
    if ids is None:
        return None
    if first:
        ids = ids.reshape(-1)[:1] + xp.arange(q.steps)
    wide = ids.astype(np.int64, copy=False)
    return xp.ascontiguousarray(xp.broadcast_to(wide, (q.batch, q.steps)))


def grown(xp: Any, past: Array | None, new: Heads, total: int) -> Array:
    """Returns a cache of one's own with what is in the past one, and room for ``total`` steps."""
    held = 0 if past is None else past.shape[2]
    if past is not None and held >= total:
        return past.copy()
    fresh = xp.zeros((new.batch, new.heads, total, new.size), new.array.dtype)
    if held:
        fresh[:, :, :held] = past
    return fresh


def cached(present: Array, keys: int) -> Heads:
    """Returns the first steps of a cache, in place."""
    batch, heads, capacity, size = present.shape
    strides = (heads * capacity * size, capacity * size, size)
    return Heads(present, batch, heads, keys, size, strides)


def append(
    site: Site,
    element: str,
    q: Heads,
    k: Heads,
    v: Heads,
    present: Sequence[Array],
    turn: Turn,
) -> Heads:
    """Writes turned keys and values to caches, and returns the turned queries."""
    turned = site.xp.empty((q.batch, q.steps, q.heads * q.size), q.array.dtype)
    launch = site.kernel("cache", "append", T=element)
    arrays = (q.array, k.array, v.array, turned, *present)
    angles = map(pointer, (turn.cosines, turn.sines, turn.ids, turn.starts))
    capacity = present[0].shape[2]
    sizes = (
        turn.start, q.batch, q.steps, q.heads, k.heads, q.size, capacity, turn.size,
        turn.interleaved,
    )  # fmt: skip
    strides = [np.int64(h.strides[i]) for h in (q, k, v) for i in (0, 2)]
    count = q.batch * q.steps * (q.heads + 2 * k.heads) * q.size
    arguments = (*arrays, *angles, *map(np.int32, sizes), *strides)
    launch(blocks(count), (THREADS,), arguments)
    return Heads.of(site.xp, turned, q.heads)
