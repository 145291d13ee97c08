"""The Attention operator: caches, shared key heads, masks and windows, in one kernel."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from tenonnx.records import record
from tenonnx_cpu.attention.attention import ATTEND, Rule, attend_launch
from tenonnx_cpu.buffers import F32, HALVES, empty
from tenonnx_cpu.recording.launch import Launch, done
from tenonnx_cpu.recording.recorded import Recorded
from tenonnx_cpu.specialise import Call, Site, specialise


@record
class Seen:
    """Which keys a query sees, and what becomes of its scores.

    Attributes:
        left: So many keys before its own; -1 for all.
        right: So many after it; -1 for all.
        scale: What products are multiplied by; ``None`` for one over the root of a head's size.
        softcap: What scores stay below; 0 for anything.
        threads: How many threads to use at most.
    """

    left: int
    right: int
    scale: float | None
    softcap: float
    threads: int

    def launch(
        self, q: Any, k: Any, v: Any, bias: Any, before: int, lengths: Any = None
    ) -> Launch | None:
        """Returns what attends with heads (batch, heads, length, size), as ``attend_launch`` does.

        Args:
            q: Queries.
            k: Keys.
            v: Values.
            bias: What scores are added to, or ``None``.
            before: Keys before the first query's own.
            lengths: How many keys of each entry count, if not all do; ``before`` is 0 then.
        """
        if lengths is not None and not self._counts(q, lengths):
            return None
        if self.left >= 0:
            first = min(max(0, before - self.left), k.shape[2])
            k, v, before = k[:, :, first:], v[:, :, first:], before - first
            bias = None if bias is None else bias[..., first:]
        limit = -1
        if self.right == 0:
            if before < 0:
                return None
            limit = before
        queries, keys = q.shape[2], k.shape[2]
        if self.right > 0 or (self.left >= 0 and queries > 1):
            hidden = _hidden(queries, keys, before, self.left, self.right)
            bias = hidden if bias is None else bias + hidden
        scale = 1 / math.sqrt(q.shape[3]) if self.scale is None else self.scale
        rule = Rule(scale, self.softcap, limit, nothing=0.0)
        return attend_launch(q, k, v, bias, rule, self.threads, lengths)

    def _counts(self, q: Any, lengths: Any) -> bool:
        """Says whether the kernel can be told how many keys count."""
        fits = lengths.shape == q.shape[:1] and lengths.dtype == np.int64
        return fits and self.left < 0 and self.right <= 0 and lengths.flags.carray


@functools.lru_cache(maxsize=4)
def _hidden(queries: int, keys: int, before: int, left: int, right: int) -> Any:
    """Returns what is added to scores so that queries see a window; a negative side is open."""
    ahead = np.arange(keys) - np.arange(before, before + queries)[:, None]
    hidden = np.zeros((queries, keys), np.float32)
    if left >= 0:
        hidden[ahead < -left] = -math.inf
    if right >= 0:
        hidden[ahead > right] = -math.inf
    return hidden


@specialise("Attention")
def specialise_attention(site: Site, plain: Call) -> Call | None:
    """Takes floats, unless the scores or another precision of the softmax are asked for."""
    node = site.node
    if site.attribute("softmax_precision", None) is not None:
        return None
    if len(node.outputs) > 3 and (node.outputs[3].uses() or node.outputs[3].is_graph_output()):
        return None
    heads, groups = site.attribute("q_num_heads", None), site.attribute("kv_num_heads", None)
    seen = Seen(
        site.attribute("left_window_size", -1),
        0 if site.attribute("is_causal", 0) else site.attribute("right_window_size", -1),
        site.attribute("scale", None),
        site.attribute("softcap", 0.0),
        site.threads,
    )
    ATTEND.request()

    def call(q: Any, k: Any, v: Any, *rest: Any) -> Any:
        if q.dtype in HALVES:
            wide = [x.astype(F32) if x is not None and x.dtype in HALVES else x for x in rest]
            given = (*(x.astype(F32) for x in (q, k, v)), *wide)
            made = done(call(*given), given)
            return tuple(None if x is None else x.astype(q.dtype) for x in made)
        mask, past_k, past_v, lengths = (*rest, None, None, None, None)[:4]
        packed = q.ndim == 3
        if packed and heads and groups and not _uneven(q, k, v, heads, groups):
            found = _split(q, heads), _split(k, groups), _split(v, groups)
        else:
            found = q, k, v
        if _unfit(found, past_k, past_v, lengths):
            return plain(q, k, v, *rest)
        qs, ks, vs = found
        before = 0
        if past_k is not None:
            before = past_k.shape[2]
            ks, vs = _joined(past_k, ks), _joined(past_v, vs)
        made = None
        bias = _bias(mask, ks.shape[2])
        if bias is not None or mask is None:
            made = seen.launch(qs, ks, vs, bias, before, lengths)
        if made is None and lengths is not None:
            made = _in_cache(seen, qs, ks, vs, mask, lengths.reshape(-1).tolist())

        def form(y: Any) -> Any:
            if packed:
                batch, _, queries, _ = y.shape
                y = y.transpose(0, 2, 1, 3).reshape(batch, queries, heads * y.shape[3])
            return y, ks, vs, None

        if made is None:
            return plain(q, k, v, *rest)
        if not isinstance(made, Launch):
            return form(made)
        return made._replace(result=form(made.result), otherwise=plain)

    return Recorded(call)


def _in_cache(seen: Seen, q: Any, k: Any, v: Any, mask: Any, lengths: list[int]) -> Any | None:
    """Returns what queries see of a cache whose entries are filled to some length each."""
    queries = q.shape[2]
    if len(lengths) != q.shape[0] or not 0 < min(lengths) <= max(lengths) <= k.shape[2]:
        return None
    results = []
    for entry, length in enumerate(lengths):
        part = slice(entry, entry + 1)
        own = mask if mask is None or mask.ndim < 4 or len(mask) == 1 else mask[part]
        bias = _bias(own, length)
        if bias is None and own is not None:
            return None
        ks, vs = k[part, :, :length], v[part, :, :length]
        made = seen.launch(q[part], ks, vs, bias, length - queries)
        if made is None:
            return None
        results.append(done(made))
    return np.concatenate(results)


def _unfit(found: tuple[Any, Any, Any], past_k: Any, past_v: Any, lengths: Any) -> bool:
    """Says whether something is left to numpy, or to its error."""
    q, k, v = found
    if not (q.ndim == k.ndim == v.ndim == 4) or q.dtype != F32:
        return True
    if past_k is None and past_v is None:
        return False
    return lengths is not None or past_k is None or past_v is None or past_k.dtype != k.dtype


def _uneven(q: Any, k: Any, v: Any, heads: int, groups: int) -> bool:
    return bool(q.shape[-1] % heads or k.shape[-1] % groups or v.shape[-1] % groups)


def _split(x: Any, heads: int) -> Any:
    """Returns (batch, length, heads * size) as a view of shape (batch, heads, length, size)."""
    return x.reshape(*x.shape[:-1], heads, x.shape[-1] // heads).swapaxes(1, 2)


def _joined(past: Any, new: Any) -> Any:
    """Returns keys or values with those before them."""
    batch, groups, count, size = new.shape
    out = empty((batch, groups, past.shape[2] + count, size), new.dtype)
    return np.concatenate((past, new), axis=2, out=out)


def _bias(mask: Any, keys: int) -> Any | None:
    """Returns a mask of so many keys as what scores are added to; ``None`` if it is too short."""
    if mask is None or mask.shape[-1] < keys or mask.ndim > 4:
        return None
    if mask.shape[-1] > keys:
        mask = mask[..., :keys]
    if mask.dtype == bool:
        return np.where(mask, np.float32(0), np.float32(-np.inf))
    return mask if mask.dtype == F32 else None
