"""Scaled dot-product attention and rotary position embedding."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx.operators import Array, Namespace, OperatorTable
from tenonnx_array.dtypes import accumulator, dtype_of
from tenonnx_array.products import matmul

if TYPE_CHECKING:
    from collections.abc import Iterator

table = OperatorTable()
op = table.op


@op("Attention", since=25, multiple=True)
@op(
    "Attention",
    since=23,
    multiple=True,
    without=["left_window_size", "right_window_size"],
    shapes=(
        "Q K V: B ... if not _written; past_key: B k[1] P k[3]; past_value: B v[1] P v[3]; "
        "nonpad_kv_seqlen: B; "
        "q = Q if len(Q) == 4 else (Q[0], q_num_heads, Q[1], Q[2] / q_num_heads); "
        "k = K if len(K) == 4 else (K[0], kv_num_heads, K[1], K[2] / kv_num_heads); "
        "v = V if len(V) == 4 else (V[0], kv_num_heads, V[1], V[2] / kv_num_heads); "
        "_written or len(Q) == len(K) == len(V) in (3, 4); _written or q[3] == k[3]; "
        "_written or k[1:3] == v[1:3]"
    ),
)
def attention(
    xp: Namespace,
    Q: Array,
    K: Array,
    V: Array,
    attn_mask: Array | None = None,
    past_key: Array | None = None,
    past_value: Array | None = None,
    nonpad_kv_seqlen: Array | None = None,
    *,
    is_causal: int = 0,
    kv_num_heads: int | None = None,
    left_window_size: int = -1,
    q_num_heads: int | None = None,
    qk_matmul_output_mode: int = 0,
    right_window_size: int = -1,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int | None = None,
    _written: tuple[int, int] | None = None,
    _fill: float | None = None,
    _outputs: int = 4,
) -> tuple[Array, Array, Array, Array | None]:
    """Return ``softmax(scale * Q @ K' + bias) @ V``, all keys, all values, and the scores.

    Q, K and V have the shape (batch, heads, length, head size), or (batch, length, heads * head
    size) with the numbers of heads as attributes. A query that may see no key gives zeros.
    The scores are None unless the node names four outputs. ``_written`` says that a transform put
    the operator in the place of nodes, and what these did of shapes that it refuses: how often
    heads of keys were repeated, 0 if that is not known, and whether such a query gave zeros.
    ``_fill`` is the score that these nodes gave to keys to whose score the mask adds -inf.

    Raises:
        ValueError: Numbers of heads are missing or do not divide, or the caches contradict.
    """
    # Heads without a batch are what nodes had, where nobody says how many there are.
    packed, dtype = Q.ndim == 3 and (_written is None or q_num_heads is not None), Q.dtype
    if packed:
        Q, K, V = in_heads(Q, q_num_heads), in_heads(K, kv_num_heads), in_heads(V, kv_num_heads)
    if _written is not None and not fits(Q.shape, K.shape, V.shape, attn_mask, _written[0]):
        scale = 1 / math.sqrt(Q.shape[-1] or 1) if scale is None else scale
        Y = broadcast(xp, Q, K, V, attn_mask, scale, softcap, _written, _fill)
        Y = Y.astype(dtype, copy=False)
        return (joined(Y) if packed else Y), K, V, None
    heads, groups = Q.shape[1], K.shape[1]
    if heads % groups:
        raise ValueError(f"expected {groups} key heads to divide the query heads, found {heads}")
    offset = count_before(Q.shape[2], past_key, past_value, nonpad_kv_seqlen)
    if past_key is not None:
        K, V = xp.concatenate((past_key, K), axis=2), xp.concatenate((past_value, V), axis=2)

    keys, values = K, V
    if _outputs < 4:
        keys, values, attn_mask = filled(K, V, attn_mask, nonpad_kv_seqlen)
    scores = scaled_scores(xp, Q, keys, scale)
    right = 0 if is_causal else right_window_size
    places, columns = xp.arange(Q.shape[2])[:, None] + offset, xp.arange(scores.shape[-1])
    seen = visible(xp, places, columns, left_window_size, right, nonpad_kv_seqlen)
    taken = None
    zeros = _written is None or bool(_written[1])
    all_stages = stages(
        xp, scores, softcap, attn_mask, seen, softmax_precision, zeros=zeros, fill=_fill
    )
    for mode, stage in enumerate(all_stages):
        if _outputs > 3 and mode == qk_matmul_output_mode:
            taken = stage.astype(dtype, copy=False)
        scores = stage
    Y = mixed(xp, scores, values, dtype)
    return (joined(Y) if packed else Y), K, V, taken


def joined(x: Array) -> Array:
    """Return (batch, heads, length, size) as (batch, length, heads * size)."""
    return x.swapaxes(1, 2).reshape(x.shape[0], x.shape[2], x.shape[1] * x.shape[3])


def fits(
    q: tuple[int, ...], k: tuple[int, ...], v: tuple[int, ...], mask: Array | None, repeats: int
) -> bool:
    """Return whether products of these shapes broadcast nothing but heads of keys.

    Args:
        q: The queries' shape, (batch, heads, length, size).
        k: The keys'.
        v: The values'.
        mask: The summand of the scores, if there is one.
        repeats: How often heads of keys are repeated; 0 for any number.
    """
    if not len(q) == len(k) == len(v) == 4 or not q[0] == k[0] == v[0] or k[1] != v[1]:
        return False
    if not k[1] or q[1] % k[1] or (repeats and k[1] * repeats not in (1, q[1])):
        return False
    return mask is None or spreads(mask.shape, (*q[:3], k[2]))


def spreads(mask: tuple[int, ...], scores: tuple[int, ...]) -> bool:
    """Return whether a mask has a number for every key, and broadcasts to the scores."""
    sides = zip(reversed(mask), reversed(scores), strict=False)
    is_whole = 0 < len(mask) <= len(scores) and mask[-1] == scores[-1]
    return is_whole and all(own in (1, size) for own, size in sides)


def broadcast(
    xp: Namespace,
    Q: Array,
    K: Array,
    V: Array,
    mask: Array | None,
    scale: float,
    softcap: float,
    written: tuple[int, int],
    fill: float | None,
) -> Array:
    """Return ``softmax(cap(scale * Q @ K') + mask) @ V`` of any shapes that broadcast.

    ``written`` and ``fill`` are ``_written`` and ``_fill`` of ``attention``.
    """
    repeats, zeros = written
    if repeats != 1 and K.ndim == V.ndim == 4:
        times = repeats or max(1, Q.shape[1] // max(1, K.shape[1]))
        K, V = xp.repeat(K, times, axis=1), xp.repeat(V, times, axis=1)
    wide = accumulator(Q.dtype)
    rows = Q.astype(wide) * wide.type(scale)
    scores = capped(xp, matmul(xp, rows, K.astype(wide, copy=False).swapaxes(-1, -2)), softcap)
    if mask is not None:
        scores = masked(xp, scores, mask, fill)
    return matmul(xp, softmax(xp, scores, zeros=bool(zeros)), V.astype(wide, copy=False))


def masked(xp: Namespace, scores: Array, mask: Array, fill: float | None) -> Array:
    """Return the sums of scores and a mask, or ``fill`` in place of a sum with -inf."""
    added = scores + mask.astype(scores.dtype)
    return added if fill is None else xp.where(xp.isneginf(mask), scores.dtype.type(fill), added)


def in_heads(x: Array, heads: int | None) -> Array:
    """Return (batch, length, heads * size) as a view of shape (batch, heads, length, size)."""
    if not heads or x.shape[-1] % heads:
        raise ValueError(
            f"expected the number of heads to divide the last axis, found {heads} heads for "
            f"shape {x.shape}"
        )
    return x.reshape(*x.shape[:-1], heads, x.shape[-1] // heads).swapaxes(1, 2)


def count_before(
    queries: int, past_key: Array | None, past_value: Array | None, lengths: Array | None
) -> int | Array:
    """Return how many keys precede the first query, per batch if ``lengths`` says."""
    if (past_key is None) != (past_value is None):
        raise ValueError("expected past_key and past_value together, found one of them")
    if lengths is None:
        return 0 if past_key is None else int(past_key.shape[2])
    if past_key is not None:
        raise ValueError("expected either nonpad_kv_seqlen or past_key, found both")
    return lengths.reshape(-1, 1, 1, 1) - queries


def filled(
    K: Array, V: Array, mask: Array | None, lengths: Array | None
) -> tuple[Array, Array, Array | None]:
    """Return keys, values and mask without the end of a cache that no entry has filled yet.

    That end is seen by nobody; looking at it would cost as much as a full cache does. Lengths
    that lie on a device are not waited for.
    """
    if not isinstance(lengths, np.ndarray) or not lengths.size:
        return K, V, mask
    end = int(lengths.max())
    return K[:, :, :end], V[:, :, :end], None if mask is None else mask[..., :end]


def scaled_scores(xp: Namespace, Q: Array, K: Array, scale: float | None) -> Array:
    """Return ``scale * Q @ K'``, one score per query and key, at least in float32.

    Query heads that share a key head become rows of one product, so no key is repeated.
    """
    (batch, heads, queries, size), groups = Q.shape, K.shape[1]
    wide = accumulator(Q.dtype)
    rows = Q.astype(wide) * wide.type(1 / math.sqrt(size or 1) if scale is None else scale)
    rows = rows.reshape(batch, groups, heads // groups * queries, size)
    scores = matmul(xp, rows, K.astype(wide, copy=False).swapaxes(-1, -2))
    return scores.reshape(batch, heads, queries, K.shape[2])


def capped(xp: Namespace, scores: Array, softcap: float) -> Array:
    """Return scores between ``-softcap`` and ``softcap``, or as they are if that is 0."""
    if not softcap:
        return scores
    cap = scores.dtype.type
    return xp.tanh(scores * cap(1 / softcap)) * cap(softcap)


def mixed(xp: Namespace, weights: Array, values: Array, dtype: Any) -> Array:
    """Return ``weights @ values`` (batch, heads, queries, size), a divisor of the heads in values.

    ``weights`` is (batch, heads, queries, keys).
    """
    batch, heads, queries, keys = weights.shape
    groups = values.shape[1]
    rows = weights.reshape(batch, groups, heads // groups * queries, keys)
    y = matmul(xp, rows, values.astype(rows.dtype, copy=False)).astype(dtype, copy=False)
    return y.reshape(batch, heads, queries, values.shape[-1])


def visible(
    xp: Namespace, queries: Array, keys: Array, left: int, right: int, lengths: Array | None
) -> Array | None:
    """Return which keys each query may see, or None for all.

    Args:
        xp: The array namespace.
        queries: Their positions, (queries, 1) or (batch, 1, queries, 1).
        keys: Their positions, (keys,) or (batch, 1, 1, keys).
        left: So many keys before a query's own are seen; -1 for any number.
        right: So many keys after a query's own are seen; -1 for any number.
        lengths: Positions from here on are hidden, per batch.
    """
    bounds = []
    if left >= 0:
        bounds.append(keys >= queries - left)
    if right >= 0:
        bounds.append(keys <= queries + right)
    if lengths is not None:
        bounds.append(keys < lengths.reshape(-1, 1, 1, 1))
    return functools.reduce(xp.logical_and, bounds) if bounds else None


def stages(
    xp: Namespace,
    scores: Array,
    softcap: float,
    mask: Array | None,
    seen: Array | None,
    precision: int | None,
    *,
    zeros: bool,
    fill: float | None = None,
) -> Iterator[Array]:
    """Yield the scores as they are, after the soft cap, after the mask and after softmax.

    ``zeros`` is that of ``softmax``, ``fill`` that of ``masked``.
    """
    dtype = scores.dtype
    yield scores
    scores = capped(xp, scores, softcap)
    yield scores
    if mask is not None:
        mask = pad(xp, mask, scores.shape[-1])
        if mask.dtype != bool:
            scores = masked(xp, scores, mask, fill)
        else:
            seen = mask if seen is None else seen & mask
    if seen is not None:
        scores = xp.where(seen, scores, dtype.type(-math.inf))
    yield scores
    if precision is not None:
        scores = scores.astype(accumulator(dtype_of(precision)), copy=False)
    yield softmax(xp, scores, zeros=zeros).astype(dtype, copy=False)


def pad(xp: Namespace, mask: Array, keys: int) -> Array:
    """Return a mask that hides the keys it is too short for."""
    missing = keys - mask.shape[-1]
    if not missing:
        return mask
    if missing < 0:
        raise ValueError(f"attn_mask has {mask.shape[-1]} columns, but there are {keys} keys")
    hidden = False if mask.dtype == bool else -math.inf
    tail = xp.full((*mask.shape[:-1], missing), hidden, dtype=mask.dtype)
    return xp.concatenate((mask, tail), axis=-1)


def softmax(xp: Namespace, x: Array, *, zeros: bool = True) -> Array:
    """Return the softmax over the last axis; a row of -inf gives zeros, or else is not a number."""
    if not x.size:
        return x
    top = xp.max(x, axis=-1, keepdims=True)
    if not zeros:
        y = xp.exp(x - top)
        y /= xp.sum(y, axis=-1, keepdims=True)
        return y
    # -inf less -inf is NaN, where a row has no key; its sum of 0 makes zeros of it.
    y = xp.exp(x - xp.where(xp.isneginf(top), x.dtype.type(0), top))
    total = xp.sum(y, axis=-1, keepdims=True)
    y /= xp.where(total == 0, x.dtype.type(1), total)
    return y


@op(
    "RotaryEmbedding",
    since=23,
    shapes=(
        "len(X) in (3, 4); "
        "x = X if len(X) == 4 else (X[0], num_heads, X[1], X[2] / num_heads); "
        "cos_cache: M turned/2 if position_ids is not None; "
        "cos_cache: x[0] x[2] turned/2 if position_ids is None; sin_cache: *cos_cache; "
        "position_ids: x[0] x[2]; turned = rotary_embedding_dim or x[3]"
    ),
)
def rotary_embedding(
    xp: Namespace,
    X: Array,
    cos_cache: Array,
    sin_cache: Array,
    position_ids: Array | None = None,
    *,
    interleaved: int = 0,
    num_heads: int | None = None,
    rotary_embedding_dim: int = 0,
) -> Array:
    """Return X with pairs of elements of every head rotated by its position's angles.

    X has the shape (batch, heads, length, size), or (batch, length, heads * size). The pairs are
    neighbors if ``interleaved``, else an element of each half; elements from
    ``rotary_embedding_dim`` on stay as they are. The caches are indexed by position, or have the
    shape (batch, length, pairs).

    Raises:
        ValueError: A position that is not in the caches, or 3-D X comes without num_heads.
    """
    x = in_heads(X, num_heads).swapaxes(1, 2) if X.ndim == 3 else X
    turned = rotary_embedding_dim or x.shape[-1]
    wide = accumulator(X.dtype)
    if position_ids is not None:
        check_positions(position_ids, len(cos_cache))
    cos, sin = (
        xp.expand_dims(
            (cache if position_ids is None else cache[position_ids]).astype(wide, copy=False),
            2 if X.ndim == 3 else 1,
        )
        for cache in (cos_cache, sin_cache)
    )
    first, second = (
        (x[..., :turned:2], x[..., 1:turned:2])
        if interleaved
        else (x[..., : turned // 2], x[..., turned // 2 : turned])
    )
    parts = [first * cos - second * sin, first * sin + second * cos]
    if interleaved:
        parts = [xp.stack(parts, axis=-1).reshape(*x.shape[:-1], turned)]
    y = xp.concatenate([*(part.astype(X.dtype) for part in parts), x[..., turned:]], axis=-1)
    return y.reshape(X.shape)


def check_positions(position_ids: Array, rows: int) -> None:
    """Refuse positions that caches of so many rows do not have; those on a device are not read.

    Raises:
        ValueError: A position is none of theirs.
    """
    if isinstance(position_ids, np.ndarray) and position_ids.size:
        least, most = position_ids.min(), position_ids.max()
        if least < 0 or most >= rows:
            raise ValueError(f"expected position_ids from 0 to {rows - 1}, found {least} to {most}")
