"""Attention without a matrix of scores."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tenonnx.operators import Array
from tenonnx_array.attention import count_before
from tenonnx_cuda.attention.caches import (
    CacheWrite,
    append,
    cached,
    continues,
    grown,
    in_room,
    outputs,
)
from tenonnx_cuda.attention.choosing import attended
from tenonnx_cuda.attention.flash import MAX_WINDOW_KEYS, Heads, Scoring, attends, masked
from tenonnx_cuda.capture.dynamic_length import DynamicCall
from tenonnx_cuda.capture.tracer import DynamicNumber
from tenonnx_cuda.fuse import PATTERN, Fused, Scope, fusion
from tenonnx_cuda.kernel_selection import Call, Site, Target, choose, same_element
from tenonnx_cuda.kv_cache import is_cache

if TYPE_CHECKING:
    import onnx_ir as ir

# The third of four axes.
STEPS: Final = (2, -2)


@choose("Attention")
def attention(site: Site, plain: Call) -> Call | None:
    """Attention whose scores nobody asks for."""
    given = [*site.node.inputs, *[None] * 5]
    if len(site.node.outputs) > 3:
        return None
    call = attention_call(site, plain, caches=len(site.node.outputs) > 1)
    if given[4] is not None:
        return DynamicCall(call, {4: -2, 5: -2}, along={3: -1})
    if all(value is not None and is_cache(value.producer()) for value in given[1:3]):
        return DynamicCall(call, {1: -2, 2: -2}, along={3: -1})
    return call


@fusion("Attention", priority=PATTERN)
def fuse_caches(node: ir.Node, scope: Scope) -> Fused | None:
    """Take an Attention and the Concats of its keys and of its values.

    A Concat tells Attention nothing of how many keys are before the queries, so it has to see all.
    """
    makers = [value.producer() if value is not None else None for value in node.inputs[1:3]]
    concats = [m for m in makers if m is not None and is_cache(m) and _axis(m) in STEPS]
    alone = all(scope.has(c) and set(c.outputs[0].consumers()) == {node} for c in concats)
    site = scope.site(node)
    bounds = ("is_causal", "left_window_size", "right_window_size")
    sees_all = [site.attribute(n, d) == d for n, d in zip(bounds, (0, -1, -1), strict=True)]
    if len(set(concats)) != 2 or not alone or not all(sees_all) or len(node.outputs) > 1:
        return None
    if len(node.inputs) > 4:
        return None
    call = attention_call(site, None, caches=True)
    pasts, news = zip(*(concat.inputs for concat in concats), strict=True)
    mask = node.inputs[3] if len(node.inputs) > 3 else None
    inputs = (node.inputs[0], *news, mask, *pasts)
    outputs = (node.outputs[0], *(concat.outputs[0] for concat in concats))
    grown = DynamicCall(call, {4: -2, 5: -2}, along={3: -1})
    return Fused((*concats, node), inputs, outputs, grown)


def _axis(concat: ir.Node) -> int:
    return concat.attributes["axis"].as_int()


def attention_call(site: Site, plain: Call | None, *, caches: bool) -> Attend:
    """Return the call of a node.

    Args:
        site: The node.
        plain: Takes what the kernels do not; without it, the call returns ``None`` then.
        caches: Return all keys and all values, too.
    """
    reaches = (site.attribute(f"{side}_window_size", -1) for side in ("left", "right"))
    left, right = (min(reach, MAX_WINDOW_KEYS) for reach in reaches)
    return Attend(
        site.target,
        plain,
        (site.attribute("q_num_heads", 0), site.attribute("kv_num_heads", 0)),
        (left, 0 if site.attribute("is_causal", 0) else right),
        site.attribute("scale", None),
        site.attribute("softcap", 0.0),
        caches=caches,
        fixed=site.has_static_inputs,
    )


@dataclasses.dataclass(frozen=True)
class Attend:
    """A call of Attention.

    Attributes:
        target: The device.
        plain: Takes what the kernels do not; ``None`` for nothing.
        heads: Of queries, and of keys; 0 for arrays of four axes.
        reach: How many keys a query sees before its own, and after; negative for all.
        scale: Of scores; ``None`` for one over the root of a head's size.
        softcap: What scores saturate at; 0 for none.
        caches: Whether all keys and all values are returned.
        fixed: Whether the model declares all lengths.
    """

    target: Target
    plain: Call | None
    heads: tuple[int, int]
    reach: tuple[int, int]
    scale: float | None
    softcap: float
    caches: bool
    fixed: bool

    def __call__(
        self,
        Q: Array,
        K: Array,
        V: Array,
        mask: Array | None = None,
        past_key: Array | None = None,
        past_value: Array | None = None,
        lengths: Array | None = None,
        *,
        _outs: Sequence[Any] | None = None,
    ) -> Any:
        """Return the result, and keys and values, or ``None``s in their place."""
        given = (Q, K, V, mask, past_key, past_value, lengths)
        xp, target, (q_heads, kv_heads) = self.target.xp, self.target, self.heads
        element = same_element(Q, K, V, past_key, past_value)
        if element is None or not Q.size or not V.size or (Q.ndim == 3 and not q_heads):
            return self._elsewhere(given)
        before = count_before(Q.shape[-2], past_key, past_value, None)
        q = Heads.of(xp, Q, q_heads)
        k, v = Heads.of(xp, K, kv_heads), Heads.of(xp, V, kv_heads)
        past = past_key, past_value
        rooms = [dataclasses.replace(heads, steps=before + heads.steps) for heads in (k, v)]
        room = rooms[0], rooms[1]
        seen = masked(mask, q, room[0], Q.dtype)
        if seen is None or not attends(q, *room) or not continues(past, room):
            return self._elsewhere(given)
        if past_key is not None:
            present = grown(target, past, room, outputs(_outs, 3)[1:3])
            append(target, None, (k, v), present, CacheWrite(start=before))
            k, v = (cached(xp, cache) for cache in present)
        else:
            k, v = in_room(k), in_room(v)
        factor = 1 / math.sqrt(q.size) if self.scale is None else self.scale
        start = DynamicNumber(np.int32(before)) if before else 0
        offset = start if lengths is None else -1
        scoring = Scoring(
            seen, offset, lengths, *self.reach, factor, self.softcap, fixed=self.fixed
        )
        y = attended(target, q, k, v, scoring)
        y = y.reshape(*Q.shape[:2], -1) if Q.ndim == 3 else y
        return (y, unpacked(k), unpacked(v)) if self.caches else (y, None, None)

    def _elsewhere(self, given: Sequence[Any]) -> Any:
        return None if self.plain is None else self.plain(*given)


def unpacked(x: Heads) -> Array:
    """Return an array as (batch, heads, length, size)."""
    if x.array.ndim == 4:
        return x.array
    return x.array.reshape(x.batch, x.steps, x.heads, x.size).swapaxes(1, 2)
