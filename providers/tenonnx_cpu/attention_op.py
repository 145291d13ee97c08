"""The Attention operator: caches, shared key heads and masks, in one kernel."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tenonnx_cpu.attention import ATTEND, attend
from tenonnx_cpu.buffers import F32, HALVES, empty
from tenonnx_cpu.specialise import Call, Site, specialise

LEFT_OUT = ("left_window_size", "right_window_size", "softcap", "softmax_precision")


@specialise("Attention")
def specialise_attention(site: Site, plain: Call) -> Call | None:
    """Takes floats without windows or a soft cap, unless the scores are asked for."""
    node = site.node
    usual = {"left_window_size": -1, "right_window_size": -1, "softcap": 0.0}
    if any(site.attribute(name, usual.get(name)) != usual.get(name) for name in LEFT_OUT):
        return None
    if len(node.outputs) > 3 and (node.outputs[3].uses() or node.outputs[3].is_graph_output()):
        return None
    heads, groups = site.attribute("q_num_heads", None), site.attribute("kv_num_heads", None)
    causal, scale = site.attribute("is_causal", 0), site.attribute("scale", None)
    threads = site.threads
    ATTEND.request()

    def call(q: Any, k: Any, v: Any, *rest: Any) -> Any:
        if q.dtype in HALVES:
            wide = [x.astype(F32) if x is not None and x.dtype in HALVES else x for x in rest]
            made = call(*(x.astype(F32) for x in (q, k, v)), *wide)
            return tuple(None if x is None else x.astype(q.dtype) for x in made)
        given = [*rest, *[None] * (4 - len(rest))]
        mask, past_k, past_v, lengths = given
        packed = q.ndim == 3
        y = None
        if lengths is None and (past_k is None) == (past_v is None) and q.dtype == F32:
            qs, ks, vs = q, k, v
            if packed and heads and groups and not _uneven(q, k, v, heads, groups):
                qs, ks, vs = _split(q, heads), _split(k, groups), _split(v, groups)
            before = 0
            if qs.ndim == ks.ndim == vs.ndim == 4:
                if past_k is not None and past_k.dtype == ks.dtype and past_v.dtype == vs.dtype:
                    before = past_k.shape[2]
                    ks, vs = _joined(past_k, ks), _joined(past_v, vs)
                factor = 1 / math.sqrt(qs.shape[3]) if scale is None else scale
                bias = _bias(mask, ks.shape[2])
                if bias is not None or mask is None:
                    limit = before if causal else -1
                    y = attend(qs, ks, vs, bias, factor, limit, 0.0, threads)
        if y is None:
            return plain(q, k, v, *rest)
        if packed:
            batch, _, queries, _ = y.shape
            y = y.transpose(0, 2, 1, 3).reshape(batch, queries, -1)
        return y, ks, vs, None

    return call


def _uneven(q: Any, k: Any, v: Any, heads: int, groups: int) -> bool:
    return bool(q.shape[-1] % heads or k.shape[-1] % groups or v.shape[-1] % groups)


def _split(x: Any, heads: int) -> Any:
    """Returns (batch, length, heads * size) as a view of shape (batch, heads, length, size)."""
    return x.reshape(*x.shape[:-1], heads, -1).swapaxes(1, 2)


def _joined(past: Any, new: Any) -> Any:
    """Returns keys or values with those before them."""
    batch, groups, count, size = new.shape
    out = empty((batch, groups, past.shape[2] + count, size), new.dtype)
    return np.concatenate((past, new), axis=2, out=out)


def _bias(mask: Any, keys: int) -> Any | None:
    """Returns a mask as what scores are added to; ``None`` for one that is too short."""
    if mask is None or mask.shape[-1] != keys or mask.ndim > 4:
        return None
    if mask.dtype == bool:
        return np.where(mask, np.float32(0), np.float32(-np.inf))
    return mask if mask.dtype == F32 else None
