"""``com.microsoft::GroupQueryAttention`` on kernels that write caches where they lie."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tenonnx_cpu.attention.attention import ATTEND, Rule, attend
from tenonnx_cpu.buffers import F32, empty
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.specialise import Call, NDArray, Site, specialise

PLACE = JitKernel("attention.group_query", "place")

ENOUGH, SHARED = 1 << 15, 1 << 16
"""Elements of tokens, and of caches, that are worth a second thread."""

PLAIN = {
    "causal": (1,),
    "k_quant_type": ("NONE",),
    "v_quant_type": ("NONE",),
    "qk_output": (0,),
    "sliding_window_cache": (0,),
    "smooth_softmax": (-1, 0),
    "softcap": (0.0,),
}
"""Attributes that the kernels can do without, and the values at which they can."""

NO_ANGLES = np.empty((0, 0), np.float32)
NO_POSITIONS = np.empty((0, 0), np.int64)
NO_PAST = np.empty((0, 0, 0, 0), np.float32)


class Heads(NamedTuple):
    """Query, key and value as ``(batch, length, heads * size)``, and how many heads there are."""

    q: NDArray
    k: NDArray
    v: NDArray
    heads: int
    groups: int

    @property
    def size(self) -> int:
        """Elements of a head."""
        return int(self.q.shape[2]) // self.heads


@specialise("GroupQueryAttention", domain="com.microsoft")
def group_query_attention(site: Site, plain: Call) -> Call | None:
    """Takes float32 with rotary positions or without, and a window if one token comes at a time."""
    if any(site.attribute(name, kept[0]) not in kept for name, kept in PLAIN.items()):
        return None
    if any(value is not None for value in site.node.inputs[10:]):
        return None
    heads, groups = site.attribute("num_heads", 0), site.attribute("kv_num_heads", 0)
    rotary, interleaved = site.attribute("do_rotary", 0), site.attribute("rotary_interleaved", 0)
    window, scale = site.attribute("local_window_size", -1), site.attribute("scale", 0.0)
    threads = site.threads
    ATTEND.request()
    PLACE.request()

    def call(*inputs: Any, _outs: Sequence[Any] = (None, None, None)) -> Any:
        query, key, value, past_k, past_v, lengths, total_length = inputs[:7]
        cos, sin, ids = (*inputs[7:10], None, None, None)[:3]
        found = _heads(query, key, value, heads, groups)
        if found is None or PLACE.run is None or ATTEND.run is None:
            return plain(*inputs)
        batch, length = query.shape[:2]
        angles = _angles(cos, sin, found.size) if rotary else (NO_ANGLES, NO_ANGLES)
        if angles is None or not _usable(past_k, past_v, found, batch):
            return plain(*inputs)
        total, totals = int(total_length.item()), [n + 1 for n in lengths.reshape(-1).tolist()]
        starts = [0 if length == total else each - length for each in totals]
        capacity = total if past_k is None else max(total, past_k.shape[2])
        if len(totals) != batch or min(starts) < 0 or max(totals) > capacity:
            return plain(*inputs)
        positions = _positions(len(angles[0]), starts, length, total, ids)
        padded = length == total and any(each != total for each in totals)
        if padded or _windowed(window, length, total) or positions is None:
            return plain(*inputs)
        shape = (batch, groups, capacity, found.size)
        past_k, past_v = _as_cache(past_k), _as_cache(past_v)
        keys = _memory(_outs[1], past_k, past_v, shape)
        values = _memory(_outs[2], past_v, past_k, shape)
        turned = empty((batch, length, heads, found.size))
        enough = query.size > ENOUGH or 2 * keys.size > SHARED
        PLACE.run(
            found.q, found.k, found.v, past_k, past_v, *angles, positions,
            np.array(starts, np.int64), interleaved, turned, keys, values, threads if enough else 1,
        )  # fmt: skip
        factor = scale or 1 / math.sqrt(found.size)
        seen = window if window > 0 and length == 1 else 0
        y = _attended(turned, keys, values, starts, seen, factor, threads)
        return y.reshape(batch, length, heads * found.size), keys, values, None

    return call


def _heads(
    query: NDArray, key: NDArray | None, value: NDArray | None, heads: int, groups: int
) -> Heads | None:
    if key is None or value is None:
        width = query.shape[2] // (heads + 2 * groups)
        cuts = heads * width, (heads + groups) * width, (heads + 2 * groups) * width
        query, key, value = (
            query[..., : cuts[0]],
            query[..., cuts[0] : cuts[1]],
            query[..., cuts[1] : cuts[2]],
        )
    if not (query.ndim == key.ndim == value.ndim == 3) or not query.size or heads % groups:
        return None
    for x in (query, key, value):
        if x.dtype != F32 or x.strides[2] != 4 or not x.flags.aligned:
            return None
    same = key.shape == value.shape == (*query.shape[:2], query.shape[2] // heads * groups)
    fits = same and query.shape[2] % heads == 0
    return Heads(query, key, value, heads, groups) if fits else None


def _angles(cos: Any, sin: Any, size: int) -> tuple[NDArray, NDArray] | None:
    if cos is None or sin is None or not cos.dtype == sin.dtype == F32 or cos.shape != sin.shape:
        return None
    if cos.ndim != 2 or 2 * cos.shape[1] > size or not cos.size:
        return None
    return np.ascontiguousarray(cos), np.ascontiguousarray(sin)


def _usable(past_k: Any, past_v: Any, found: Heads, batch: int) -> bool:
    """Says whether both caches or none are there, and of the heads' shape."""
    if past_k is None or past_v is None:
        return past_k is past_v
    outer = (batch, found.groups), (found.size,)
    return past_k.shape == past_v.shape and all(
        x.dtype == F32 and x.ndim == 4 and (x.shape[:2], x.shape[3:]) == outer
        for x in (past_k, past_v)
    )


def _windowed(window: int, length: int, total: int) -> bool:
    """Says whether a window hides different keys from different queries."""
    return 0 < window < total and length > 1


def _positions(known: int, starts: list[int], length: int, total: int, ids: Any) -> NDArray | None:
    """Returns the tokens' positions, or nothing if they are the slots.

    Of those given for a first prompt the first one counts. ``None`` if there are no angles for
    one of them.
    """
    if ids is None:
        return NO_POSITIONS if max(starts) + length <= known or not known else None
    if length == total:
        ids = ids.reshape(-1)[0] + np.arange(length)
    ids = np.ascontiguousarray(np.broadcast_to(ids, (len(starts), length)), np.int64)
    return ids if not known or 0 <= ids.min() <= ids.max() < known else None


def _as_cache(past: NDArray | None) -> NDArray:
    """Returns a cache as the kernel reads it."""
    if past is None:
        return NO_PAST
    return past if past.strides[3] == 4 and past.flags.aligned else np.array(past, order="C")


def _memory(
    buffer: NDArray | None, past: NDArray, other: NDArray, shape: tuple[int, ...]
) -> NDArray:
    """Returns memory for a cache: the buffer, if nothing is in it that is wanted elsewhere."""
    if buffer is None or buffer.shape != shape or buffer.dtype != F32:
        return empty(shape)
    if not buffer.flags.c_contiguous or np.may_share_memory(other, buffer):
        return empty(shape)
    same = past.shape == shape and past.ctypes.data == buffer.ctypes.data
    kept = same and past.flags.c_contiguous
    return buffer if kept or not np.may_share_memory(past, buffer) else empty(shape)


def _attended(
    turned: NDArray,
    keys: NDArray,
    values: NDArray,
    starts: list[int],
    window: int,
    scale: float,
    threads: int,
) -> NDArray:
    """Returns ``(batch, length, heads, size)``; entries as long as one another go together."""
    length = turned.shape[1]
    alike = len(set(starts)) == 1
    results = []
    for entries in [slice(None)] if alike else [slice(n, n + 1) for n in range(len(starts))]:
        start = starts[entries][0]
        stop = start + length
        first = max(0, stop - window) if window else 0
        y = attend(
            turned[entries].transpose(0, 2, 1, 3), keys[entries, :, first:stop],
            values[entries, :, first:stop], None,
            Rule(scale, before=start - first, nothing=0.0), threads,
        )  # fmt: skip
        assert y is not None, "what has been seen to fit"
        results.append(y.transpose(0, 2, 1, 3))
    return results[0] if len(results) == 1 else np.concatenate(results)
