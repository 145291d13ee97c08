"""Common parts of the attention operators: visibility, scores, and a softmax with sinks."""

from __future__ import annotations

import math
from typing import NamedTuple

from tenonnx import Array, Namespace
from tenonnx_array.attention import capped, mixed, scaled_scores, softmax
from tenonnx_array.attention import visible as bounded


class Attended(NamedTuple):
    """Values by query (batch, heads, queries, size); the scores before and after softmax."""

    values: Array
    scores: Array
    weights: Array


def attend(
    xp: Namespace,
    q: Array,
    k: Array,
    v: Array,
    scale: float | None,
    *,
    bias: Array | None = None,
    seen: Array | None = None,
    sinks: Array | None = None,
    softcap: float = 0.0,
) -> Attended:
    """Return ``softmax(softcap(scale * q @ k') + bias) @ v``, in q's type; sums are in float32.

    q is (batch, heads, queries, size), k and v have a divisor of that many heads. Where ``seen``
    is False a key gets no weight; a query that sees none gives zeros. ``sinks`` are one score per
    head that takes its share of the softmax and gives no value.
    """
    scores = capped(xp, scaled_scores(xp, q, k, scale), softcap)
    if bias is not None:
        scores = scores + bias.astype(scores.dtype, copy=False)
    if seen is not None:
        scores = xp.where(seen, scores, scores.dtype.type(-math.inf))
    weights = softmax(xp, scores) if sinks is None else softmax_with_sinks(xp, scores, sinks)
    return Attended(mixed(xp, weights, v, q.dtype), scores, weights)


def softmax_with_sinks(xp: Namespace, scores: Array, sinks: Array) -> Array:
    """Return the softmax over the last axis of scores and one more per head, without the latter."""
    sinks = sinks.reshape(-1, 1, 1).astype(scores.dtype, copy=False)
    top = xp.maximum(xp.max(scores, axis=-1, keepdims=True), sinks)
    y = xp.exp(scores - top)
    y /= xp.sum(y, axis=-1, keepdims=True) + xp.exp(sinks - top)
    return y


def visible(
    xp: Namespace,
    queries: Array,
    keys: Array,
    *,
    causal: bool = True,
    window: int = -1,
    totals: Array | None = None,
) -> Array | None:
    """Return which keys each query may see (batch, 1, queries, keys), or None for all.

    Args:
        xp: The array namespace.
        queries: Positions (batch, queries).
        keys: Positions (keys,) or (batch, keys).
        causal: A key after the query is hidden.
        window: So many keys up to the query's own are seen; -1 for any number.
        totals: Positions from here on are hidden, (batch,).
    """
    columns = keys.reshape(-1, 1, 1, keys.shape[-1])
    left, right = window - 1 if window > 0 else -1, 0 if causal else -1
    return bounded(xp, queries[:, None, :, None], columns, left, right, totals)
