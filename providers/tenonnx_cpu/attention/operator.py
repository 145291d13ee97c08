"""The Attention operator: caches, shared key heads, masks and windows, in one kernel."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tenonnx_array.attention import fits
from tenonnx_cpu.attention.attention import ATTEND, Rule, attend_launch
from tenonnx_cpu.buffers import F32, is_half
from tenonnx_cpu.capture.capturable import dynamic
from tenonnx_cpu.capture.launch import Launch, done
from tenonnx_cpu.kernel_selection import Call, Site, specialize


@specialize("Attention")
def specialize_attention(site: Site, plain: Call) -> Call | None:
    """Takes floats, unless scores are an output or the softmax has another precision."""
    node = site.node
    if site.attribute("softmax_precision", None) is not None:
        return None
    if len(node.outputs) > 3 and (node.outputs[3].uses() or node.outputs[3].is_graph_output()):
        return None
    heads, groups = site.attribute("q_num_heads", None), site.attribute("kv_num_heads", None)
    left = site.attribute("left_window_size", -1)
    right = 0 if site.attribute("is_causal", 0) else site.attribute("right_window_size", -1)
    scale, softcap = site.attribute("scale", None), site.attribute("softcap", 0.0)
    # What a transform made of nodes, and what these did where no key is seen.
    written = site.attribute("_written", None)
    nothing = 0.0 if written is None or written[1] else math.nan
    ATTEND.request()

    def call(q: Any, k: Any, v: Any, *rest: Any) -> Any:
        if is_half(q.dtype):
            wide = [x.astype(F32) if x is not None and is_half(x.dtype) else x for x in rest]
            given = (*(x.astype(F32) for x in (q, k, v)), *wide)
            made = done(call(*given), given)
            return tuple(None if x is None else x.astype(q.dtype) for x in made)
        mask, past_k, past_v, lengths = (*rest, None, None, None, None)[:4]
        packed = q.ndim == 3
        if packed and heads and groups and not _uneven(q, k, v, heads, groups):
            found = _in_heads(q, heads), _in_heads(k, groups), _in_heads(v, groups)
        else:
            found = q, k, v
        qs, ks, vs = found
        if _unfit(found, past_k, past_v, lengths) or (
            written is not None and not fits(qs.shape, ks.shape, vs.shape, mask, written[0])
        ):
            return plain(q, k, v, *rest)
        pasts = None if past_k is None else (past_k, past_v)
        before = 0 if past_k is None else past_k.shape[2]
        bias = _bias(mask, before + ks.shape[2])
        made = None
        if bias is not None or mask is None:
            rule = Rule(
                1 / math.sqrt(qs.shape[3]) if scale is None else scale,
                softcap,
                left,
                right,
                nothing,
            )
            made = attend_launch((qs, ks, vs), bias, rule, site.threads, before, lengths, pasts)
        if made is None:
            return plain(q, k, v, *rest)
        y, *joined = made.result
        return made._replace(result=(_joined(y) if packed else y, *joined, None), otherwise=plain)

    return dynamic(call if written is None or heads else _of_any_rank(call, plain))


def _of_any_rank(attend: Call, plain: Call) -> Call:
    """Returns a call that takes heads without a batch, too: (heads, length, size), as nodes do."""

    def call(q: Any, k: Any, v: Any, *rest: Any) -> Any:
        if q.ndim != 3:
            return attend(q, k, v, *rest)
        mask = rest[0] if rest else None
        if not k.ndim == v.ndim == 3 or (mask is not None and mask.ndim > 3):
            return plain(q, k, v, *rest)
        mask = mask[:, None] if mask is not None and mask.ndim == 3 else mask
        made = attend(q[:, None], k[:, None], v[:, None], mask)
        if type(made) is Launch:
            y, *others = made.result
            return made._replace(result=(y[:, 0], *others))
        y, *others = made
        return (y[:, 0], *others)

    return call


def _unfit(found: tuple[Any, Any, Any], past_k: Any, past_v: Any, lengths: Any) -> bool:
    """Says whether something is left to numpy, or to its error."""
    q, k, v = found
    if not (q.ndim == k.ndim == v.ndim == 4) or q.dtype != F32:
        return True
    if lengths is not None and not (
        lengths.shape == q.shape[:1] and lengths.dtype == np.int64 and lengths.flags.c_contiguous
    ):
        return True
    if past_k is None and past_v is None:
        return False
    return lengths is not None or past_k is None or past_v is None or past_k.dtype != k.dtype


def _uneven(q: Any, k: Any, v: Any, heads: int, groups: int) -> bool:
    return bool(q.shape[-1] % heads or k.shape[-1] % groups or v.shape[-1] % groups)


def _in_heads(x: Any, heads: int) -> Any:
    """Returns (batch, length, heads * size) as a view of shape (batch, heads, length, size)."""
    return x.reshape(*x.shape[:-1], heads, x.shape[-1] // heads).swapaxes(1, 2)


def _joined(y: Any) -> Any:
    """Returns (batch, heads, length, size) as (batch, length, heads * size)."""
    return y.swapaxes(1, 2).reshape(y.shape[0], y.shape[2], y.shape[1] * y.shape[3])


def _bias(mask: Any, keys: int) -> Any | None:
    """Returns a mask of exactly so many keys; ``None`` leaves any other to numpy."""
    if mask is None or mask.shape[-1] != keys or mask.ndim > 4:
        return None
    return mask if mask.dtype in (F32, bool) else None
