"""Attention without a matrix of scores."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tenonnx.operators import Array
from tenonnx_array.attention import count_before
from tenonnx_cuda.attention.caches import Turn, append, cached, continues, grown, in_room, outputs
from tenonnx_cuda.attention.choosing import attended
from tenonnx_cuda.attention.flash import Heads, Sight, attends, masked
from tenonnx_cuda.chosen import Call, Site, choose, same_element
from tenonnx_cuda.noting import Growing
from tenonnx_cuda.rooms import Grown, is_cache


@choose("Attention")
def attention(site: Site, plain: Call) -> Call | None:
    """Attention whose scores nobody asks for."""
    xp = site.xp
    q_heads, kv_heads = site.attribute("q_num_heads", 0), site.attribute("kv_num_heads", 0)
    scale, softcap = site.attribute("scale", None), site.attribute("softcap", 0.0)
    left = site.attribute("left_window_size", -1)
    right = 0 if site.attribute("is_causal", 0) else site.attribute("right_window_size", -1)
    if len(site.node.outputs) > 3:
        return None

    def call(
        Q: Array,
        K: Array,
        V: Array,
        mask: Array | None = None,
        past_key: Array | None = None,
        past_value: Array | None = None,
        lengths: Array | None = None,
        *,
        _outs: Sequence[Any] | None = None,
    ) -> tuple[Any, ...]:
        given = (Q, K, V, mask, past_key, past_value, lengths)
        element = same_element(Q, K, V, past_key, past_value)
        if element is None or not Q.size or not V.size or (Q.ndim == 3 and not q_heads):
            return plain(*given)  # type: ignore[no-any-return]  # a kernel of the library
        before = count_before(Q.shape[-2], past_key, past_value, None)
        q = Heads.of(xp, Q, q_heads)
        k, v = Heads.of(xp, K, kv_heads), Heads.of(xp, V, kv_heads)
        past = past_key, past_value
        rooms = [dataclasses.replace(heads, steps=before + heads.steps) for heads in (k, v)]
        room = rooms[0], rooms[1]
        seen = masked(mask, q, room[0], Q.dtype)
        if seen is None or not attends(q, *room) or not continues(past, room):
            return plain(*given)  # type: ignore[no-any-return]  # likewise
        if past_key is not None:
            present = grown(site, past, room, outputs(_outs, 3)[1:3])
            append(site, None, (k, v), present, Turn(start=before))
            k, v = (cached(xp, cache) for cache in present)
        else:
            k, v = in_room(k), in_room(v)
        factor = 1 / math.sqrt(q.size) if scale is None else scale
        start = Growing(np.int32(before)) if before else 0
        offset = start if lengths is None else -1
        y = attended(site, q, k, v, Sight(seen, offset, lengths, left, right, factor, softcap))
        y = y.reshape(*Q.shape[:2], -1) if Q.ndim == 3 else y
        return (y, unpacked(k), unpacked(v)) if len(site.node.outputs) > 1 else (y, None, None)

    given = [*site.node.inputs, *[None] * 5]
    if given[4] is not None:
        return Grown(call, {4: -2, 5: -2}, along={3: -1})
    if all(value is not None and is_cache(value.producer()) for value in given[1:3]):
        return Grown(call, {1: -2, 2: -2}, along={3: -1})
    return call


def unpacked(x: Heads) -> Array:
    """Returns an array as (batch, heads, length, size)."""
    if x.array.ndim == 4:
        return x.array
    return x.array.reshape(x.batch, x.steps, x.heads, x.size).swapaxes(1, 2)
