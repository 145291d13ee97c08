"""The Attention operator: caches, shared key heads, masks and windows, in one kernel."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_array.attention import fits
from tenonnx_cpu.attention.attention import ATTEND, Rule, attend_launch
from tenonnx_cpu.buffers import F32, is_half
from tenonnx_cpu.capture.capturable import dynamic
from tenonnx_cpu.capture.launch import Launch, done
from tenonnx_cpu.kernel_selection import Call, Site, specialize


@specialize("Attention")
def specialize_attention(site: Site, plain: Call) -> Call | None:
    """Take floats, unless scores are an output or the softmax has another precision."""
    node = site.node
    if site.attribute("softmax_precision", None) is not None:
        return None
    if len(node.outputs) > 3 and (node.outputs[3].uses() or node.outputs[3].is_graph_output()):
        return None
    heads = site.attribute("q_num_heads", None)
    right = 0 if site.attribute("is_causal", 0) else site.attribute("right_window_size", -1)
    # What a transform made of nodes, and what these did where no key is seen.
    written = site.attribute("_written", None)
    call = AttentionCall(
        heads,
        site.attribute("kv_num_heads", None),
        site.attribute("scale", None),
        site.attribute("softcap", 0.0),
        (site.attribute("left_window_size", -1), right),
        0.0 if written is None or written[1] else math.nan,
        site.attribute("_fill", math.nan),
        None if written is None else written[0],
        site.threads,
        plain,
        site.narrows,
    )
    ATTEND.request()
    any_rank = written is not None and not heads
    return dynamic(functools.partial(_of_any_rank, call, plain) if any_rank else call)


@cacheable
@dataclass(frozen=True, eq=False)
class AttentionCall:
    """Attends to keys.

    Attributes:
        heads: Of queries with three axes.
        groups: Heads of their keys and values.
        scale: The factor of scores; one over the root of a head's size if ``None``.
        softcap: The bound of scores; none if 0.
        window: Tokens that a query sees before and after its own; all if -1.
        nothing: The result where no key is seen.
        fill: The score of keys to whose score a mask adds -inf; NaN for that sum.
        written: For an operator that a transform made of nodes, what ``fits`` takes of these.
        threads: How many to use at most.
        plain: Computes the same from the same inputs.
        narrows: Whether factors of products may be rounded to bfloat16.
    """

    heads: int | None
    groups: int | None
    scale: float | None
    softcap: float
    window: tuple[int, int]
    nothing: float
    fill: float
    written: Any
    threads: int
    plain: Call
    narrows: bool = False

    def __call__(self, q: Any, k: Any, v: Any, *rest: Any) -> Any:
        """Return a launch, or the results."""
        if is_half(q.dtype):
            wide = [x.astype(F32) if x is not None and is_half(x.dtype) else x for x in rest]
            given = (*(x.astype(F32) for x in (q, k, v)), *wide)
            made = done(self(*given), given)
            return tuple(None if x is None else x.astype(q.dtype) for x in made)
        mask, past_k, past_v, lengths = (*rest, None, None, None, None)[:4]
        packed, heads, groups = q.ndim == 3, self.heads, self.groups
        if packed and heads and groups and not _uneven(q, k, v, heads, groups):
            found = _in_heads(q, heads), _in_heads(k, groups), _in_heads(v, groups)
        else:
            found = q, k, v
        qs, ks, vs = found
        if _unfit(found, past_k, past_v, lengths) or (
            self.written is not None and not fits(qs.shape, ks.shape, vs.shape, mask, self.written)
        ):
            return self.plain(q, k, v, *rest)
        pasts = None if past_k is None else (past_k, past_v)
        before = 0 if past_k is None else past_k.shape[2]
        bias = _bias(mask, before + ks.shape[2])
        made = None
        if bias is not None or mask is None:
            scale = 1 / math.sqrt(qs.shape[3]) if self.scale is None else self.scale
            rule = Rule(scale, self.softcap, *self.window, self.nothing, self.fill, self.narrows)
            made = attend_launch((qs, ks, vs), bias, rule, self.threads, before, lengths, pasts)
        if made is None:
            return self.plain(q, k, v, *rest)
        y, *joined = made.result
        y = _joined(y) if packed else y
        return made._replace(result=(y, *joined, None), otherwise=self.plain)


@cacheable
def _of_any_rank(attend: Call, plain: Call, q: Any, k: Any, v: Any, *rest: Any) -> Any:
    """Attend to heads without a batch, too: (heads, length, size), as nodes do."""
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


def _unfit(found: tuple[Any, Any, Any], past_k: Any, past_v: Any, lengths: Any) -> bool:
    """Return whether something is left to numpy, or to its error."""
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
    """Return (batch, length, heads * size) as a view of shape (batch, heads, length, size)."""
    return x.reshape(*x.shape[:-1], heads, x.shape[-1] // heads).swapaxes(1, 2)


def _joined(y: Any) -> Any:
    """Return (batch, heads, length, size) as (batch, length, heads * size)."""
    return y.swapaxes(1, 2).reshape(y.shape[0], y.shape[2], y.shape[1] * y.shape[3])


def _bias(mask: Any, keys: int) -> Any | None:
    """Return a mask of exactly so many keys; ``None`` leaves any other to numpy."""
    if mask is None or mask.shape[-1] != keys or mask.ndim > 4:
        return None
    return mask if mask.dtype in (F32, bool) else None
