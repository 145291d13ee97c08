"""GroupQueryAttention: heads are rotated into the cache, and read there where they lie."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from tenonnx.operators import Array
from tenonnx_cuda.attention.caches import (
    CacheWrite,
    append,
    cached,
    continues,
    grown,
    longest,
    outputs,
)
from tenonnx_cuda.attention.choosing import attended
from tenonnx_cuda.attention.flash import FROM_ZERO, MAX_WINDOW_KEYS, Heads, Scoring, attends, masked
from tenonnx_cuda.capture.dynamic_length import DynamicCall, Limit
from tenonnx_cuda.kernel_selection import Call, Site, Target, choose, same_element

# Attributes that are left to the array kernel, unless they have these values.
ELSEWHERE: Final = {
    "k_quant_type": "NONE",
    "v_quant_type": "NONE",
    "sliding_window_cache": 0,
    "qk_output": 0,
}

INPUT_COUNT: Final = 16


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
    window, rotates = site.attribute("local_window_size", -1), bool(site.attribute("do_rotary", 0))
    call = GroupQuery(
        site.target,
        plain,
        (site.attribute("num_heads", 0), site.attribute("kv_num_heads", 0)),
        (min(max(-1, window - 1), MAX_WINDOW_KEYS), 0 if site.attribute("causal", 1) else -1),
        site.attribute("scale", 0.0),
        site.attribute("softcap", 0.0),
        smooth=site.attribute("smooth_softmax", -1) == 1,
        rotates=rotates,
        interleaved=site.attribute("rotary_interleaved", 0),
        fixed=site.has_static_inputs,
    )
    # Given positions are read otherwise where there are as many tokens as there are new ones.
    positioned = len(site.node.inputs) > 9 and site.node.inputs[9] is not None
    limits = [Limit(3, 2)]
    limits += [Limit(7, 0)] if rotates else []
    limits += [Limit(9, -1, unlike=True)] if positioned else []
    pasts = {3: 2, 4: 2}
    return DynamicCall(call, pasts, numbers=(6,), limits={6: limits}, changing=(5, 6))


@dataclasses.dataclass(frozen=True)
class GroupQuery:
    """A call of GroupQueryAttention.

    Attributes:
        target: The device.
        plain: Takes what the kernels do not, with the lengths on the host.
        heads: Of queries, and of keys.
        reach: How many keys a query sees before its own, and after; negative for all.
        scale: Of scores; 0 for one over the root of a head's size.
        softcap: What scores saturate at; 0 for none.
        smooth: Whether each head has one more score of 0.
        rotates: Whether heads are rotated.
        interleaved: Whether pairs that turn are neighbors.
        fixed: Whether the model declares all lengths.
    """

    target: Target
    plain: Call
    heads: tuple[int, int]
    reach: tuple[int, int]
    scale: float
    softcap: float
    smooth: bool
    rotates: bool
    interleaved: int
    fixed: bool

    def __call__(self, *inputs: Any, _outs: Sequence[Any] | None = None) -> Any:
        """Return the result and the caches."""
        given: list[Any] = [*inputs, *[None] * (INPUT_COUNT - len(inputs))]
        query, key, value, past_key, past_value, last, total = given[:7]
        cos, sin, ids, bias, sinks = given[7:12]
        target, xp = self.target, self.target.xp
        new = projected(query, key, value, *self.heads)
        angles = (cos, sin) if self.rotates else (None, None)
        same = same_element(query, key, value, past_key, past_value, *angles)
        whole = self.rotates == (angles[0] is not None)
        whole = whole and (past_key is None) == (past_value is None)
        whole = whole and all(more is None for more in given[12:])
        if new is None or same is None or not whole:
            return self._elsewhere(inputs)
        (q, *kv), steps = new, int(total.item())
        past, room = (past_key, past_value), longest(past_key, steps)
        k, v = (dataclasses.replace(heads, steps=room) for heads in kv)
        seen = masked(bias, q, k, query.dtype)
        if not fits(steps, q, angles[0]) or not continues(past, (k, v)):
            return self._elsewhere(inputs)  # which says what is wrong
        if seen is None or not attends(q, k, v):
            return self._elsewhere(inputs)
        present = grown(target, past, (k, v), outputs(_outs, 3)[1:3])
        places = positions(xp, ids, q, first=q.steps == steps)
        lasts = last.reshape(-1).astype(np.int32, copy=False)
        write = CacheWrite(angles[0], angles[1], places, self.interleaved, lasts)
        rotated, lengths = append(target, q, (kv[0], kv[1]), present, write)
        given_sinks = xp.zeros(self.heads[0], np.float32) if self.smooth else sinks
        added = None if given_sinks is None else given_sinks.astype(np.float32, copy=False)
        factor = self.scale or 1 / math.sqrt(q.size)
        scoring = Scoring(
            seen, FROM_ZERO, lengths, *self.reach, factor, self.softcap, added, self.fixed
        )
        caches = (cached(xp, cache) for cache in present)
        k, v = (dataclasses.replace(x, steps=x.capacity, room=0) for x in caches)
        y = attended(target, rotated or q, k, v, scoring)
        return y.reshape(*query.shape[:2], -1), *present, None

    def _elsewhere(self, inputs: Sequence[Any]) -> Any:
        """Leave it to the library's kernel, which takes the lengths on the host."""
        on_host = self.target.platform.to_host(inputs[5])
        return self.plain(*inputs[:5], on_host, *inputs[6:])


def projected(
    query: Array, key: Array | None, value: Array | None, q_heads: int, kv_heads: int
) -> tuple[Heads, Heads, Heads] | None:
    """Return the new heads where they lie, in arrays of their own or all in the query.

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
    """Return whether new steps have room, and angles for their positions and heads' sizes."""
    return q.steps <= total and (
        cosines is None or (len(cosines) >= total and 2 * cosines.shape[-1] <= q.size)
    )


def positions(xp: Any, ids: Array | None, q: Heads, *, first: bool) -> Array | None:
    """Return int64 positions (batch, steps), or ``None`` for those in the cache.

    Of those given for a first prompt the first one counts.
    """
    if ids is None:
        return None
    if first:
        ids = ids.reshape(-1)[:1] + xp.arange(q.steps)
    wide = ids.astype(np.int64, copy=False)
    return xp.ascontiguousarray(xp.broadcast_to(wide, (q.batch, q.steps)))
