"""GroupQueryAttention: heads are turned into the cache, and read there where they lie."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from tenonnx.operators import Array
from tenonnx_cuda.attention.caches import Turn, append, cached, continues, grown, longest, outputs
from tenonnx_cuda.attention.choosing import attended
from tenonnx_cuda.attention.flash import FARTHEST, FROM_ZERO, Heads, Sight, attends, masked
from tenonnx_cuda.capture.dynamic_length import DynamicCall, Limit
from tenonnx_cuda.kernel_selection import Call, Site, choose, same_element

ELSEWHERE: Final = {
    "k_quant_type": "NONE",
    "v_quant_type": "NONE",
    "sliding_window_cache": 0,
    "qk_output": 0,
}
"""Attributes that are left to the array kernel, unless they have these values."""

INPUTS: Final = 16


@choose("GroupQueryAttention", domain="com.microsoft")
def group_query_attention(site: Site, plain: Call) -> Call | None:
    """GroupQueryAttention whose cache holds what it is given.

    Sequences' lengths are read on the device. What the host is told is how long the longest one is,
    and for a cache that has room this does not matter.
    """
    if any(site.attribute(name, value) != value for name, value in ELSEWHERE.items()):
        return None
    if any(value is not None for value in site.node.inputs[16:]):
        return None
    q_heads, kv_heads = site.attribute("num_heads", 0), site.attribute("kv_num_heads", 0)
    window, rotates = site.attribute("local_window_size", -1), site.attribute("do_rotary", 0)
    left, right = min(max(-1, window - 1), FARTHEST), 0 if site.attribute("causal", 1) else -1
    scale, softcap = site.attribute("scale", 0.0), site.attribute("softcap", 0.0)
    smooth = site.attribute("smooth_softmax", -1) == 1
    interleaved = site.attribute("rotary_interleaved", 0)
    xp = site.xp

    def elsewhere(inputs: Sequence[Any]) -> Any:
        """Leaves it to the library's kernel, which takes the lengths on the host."""
        return plain(*inputs[:5], site.platform.to_host(inputs[5]), *inputs[6:])

    def call(*inputs: Any, _outs: Sequence[Any] | None = None) -> Any:
        given: list[Any] = [*inputs, *[None] * (INPUTS - len(inputs))]
        query, key, value, past_key, past_value, last, total = given[:7]
        cos, sin, ids, bias, sinks = given[7:12]
        new = projected(query, key, value, q_heads, kv_heads)
        angles = (cos, sin) if rotates else (None, None)
        same = same_element(query, key, value, past_key, past_value, *angles)
        whole = rotates == (angles[0] is not None) and (past_key is None) == (past_value is None)
        whole = whole and all(more is None for more in given[12:])
        if new is None or same is None or not whole:
            return elsewhere(inputs)
        (q, *kv), steps = new, int(total.item())
        past, room = (past_key, past_value), longest(past_key, steps)
        k, v = (dataclasses.replace(heads, steps=room) for heads in kv)
        seen = masked(bias, q, k, query.dtype)
        if not fits(steps, q, angles[0]) or not continues(past, (k, v)):
            return elsewhere(inputs)  # which says what is wrong
        if seen is None or not attends(q, k, v):
            return elsewhere(inputs)
        present = grown(site, past, (k, v), outputs(_outs, 3)[1:3])
        places = positions(xp, ids, q, first=q.steps == steps)
        turn = Turn(
            angles[0], angles[1], places, interleaved, last.reshape(-1).astype(np.int32, copy=False)
        )
        turned, lengths = append(site, q, (kv[0], kv[1]), present, turn)
        given_sinks = xp.zeros(q_heads, np.float32) if smooth else sinks
        added = None if given_sinks is None else given_sinks.astype(np.float32, copy=False)
        factor = scale or 1 / math.sqrt(q.size)
        sight = Sight(seen, FROM_ZERO, lengths, left, right, factor, softcap, added)
        caches = (cached(xp, cache) for cache in present)
        k, v = (dataclasses.replace(x, steps=x.capacity, room=0) for x in caches)
        y = attended(site, turned or q, k, v, sight)
        return y.reshape(*query.shape[:2], -1), *present, None

    # Given positions are read otherwise where there are as many tokens as there are new ones.
    positioned = len(site.node.inputs) > 9 and site.node.inputs[9] is not None
    limits = [Limit(3, 2)]
    limits += [Limit(7, 0)] if rotates else []
    limits += [Limit(9, -1, unlike=True)] if positioned else []
    pasts = {3: 2, 4: 2}
    return DynamicCall(call, pasts, numbers=(6,), limits={6: limits}, changing=(5, 6))


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


def fits(total: int, q: Heads, cosines: Array | None) -> bool:
    """Says whether new steps have room, and angles for their positions and heads' sizes."""
    return q.steps <= total and (
        cosines is None or (len(cosines) >= total and 2 * cosines.shape[-1] <= q.size)
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
