"""GroupQueryAttention: causal attention with a cache, as decoders of language models have it."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx import Array, Namespace, OperatorTable
from tenonnx_array.attention import in_heads, joined
from tenonnx_array.dtypes import accumulator
from tenonnx_contrib.attend import attend, visible
from tenonnx_contrib.cache import Store, extended
from tenonnx_contrib.rotary import turned
from tenonnx_contrib.skip_norm import by_root_mean_square, weighted
from tenonnx_contrib.window_cache import Window

table = OperatorTable("com.microsoft")
op = table.op


@op(
    "GroupQueryAttention",
    host=(5, 6, 16),
    multiple=True,
    shapes=(
        "query: B L W; key value: B ...; past_key past_value: B kv_num_heads P ...; "
        "total_sequence_length: | 1; cos_cache: M R; sin_cache: M R; head_sink: num_heads; "
        "position_ids: B ...; seqlens_k: n ...; query_seqlens: B; "
        "key is None or past_key is not None or len(key) != 3 or key[1] == L; "
        "position_ids is None or position_ids[1] >= L; attention_bias: 1|B 1|num_heads L T"
    ),
)
def group_query_attention(
    xp: Namespace,
    query: Array,
    key: Array | None,
    value: Array | None,
    past_key: Array | None,
    past_value: Array | None,
    seqlens_k: Array,
    total_sequence_length: Array,
    cos_cache: Array | None = None,
    sin_cache: Array | None = None,
    position_ids: Array | None = None,
    attention_bias: Array | None = None,
    head_sink: Array | None = None,
    k_scale: Array | None = None,
    v_scale: Array | None = None,
    q_norm_weight: Array | None = None,
    k_norm_weight: Array | None = None,
    query_seqlens: Array | None = None,
    *,
    causal: int = 1,
    do_rotary: int = 0,
    k_norm_epsilon: float | None = None,
    k_quant_type: str = "NONE",
    kv_cache_bit_width: int = 8,
    kv_num_heads: int,
    local_window_size: int = -1,
    num_heads: int,
    q_norm_epsilon: float | None = None,
    qk_norm_epsilon: float = 1e-6,
    qk_output: int = 0,
    rotary_interleaved: int = 0,
    scale: float = 0.0,
    sliding_window_cache: int = 0,
    smooth_softmax: int = -1,
    softcap: float = 0.0,
    v_quant_type: str = "NONE",
) -> tuple[Array | None, ...]:
    """Return the attention's result, the keys, the values, and the scores if ``qk_output``.

    query is (batch, length, heads * size), or holds keys and values behind its heads. There may be
    no new key, where the cache is one that another layer has extended. A cache is
    (batch, key heads, capacity, size); batch entry b has ``seqlens_k[b] + 1`` tokens with the
    new ones. A cache that is too short for ``total_sequence_length`` grows to it. A query sees
    ``local_window_size`` tokens up to its own. A head's sink, or 0 for ``smooth_softmax``, is one
    more score in its softmax. Of each batch entry's new tokens the first ``query_seqlens`` are
    some, and the others padding, whose results mean nothing.

    Raises:
        ValueError: Heads do not divide, rotary caches are missing, the window or the bias does not
            fit, or there are not so many tokens.
    """
    q, k, v = split(query, key, value, num_heads, kv_num_heads)
    if q_norm_weight is not None and k_norm_weight is not None:
        q = normed(xp, q, q_norm_weight, q_norm_epsilon or qk_norm_epsilon)
        k = normed(xp, k, k_norm_weight, k_norm_epsilon or qk_norm_epsilon)
    length, total, totals = q.shape[2], counted(total_sequence_length), seqlens_k.reshape(-1) + 1
    require_bias(attention_bias, total)
    counts = valid_tokens(query_seqlens, totals, length, total)
    first, pasts = length == total and counts is None, (past_key, past_value)
    windowed = bool(sliding_window_cache)
    before = seen_before(length, (k, v), pasts, totals, total, counts, windowed=windowed)
    positions = xp.asarray(before[:, None] + np.arange(length))
    if do_rotary:
        at = rotary_positions(xp, positions, position_ids, first=first)
        q, k = rotated(xp, (q, k), at, cos_cache, sin_cache, rotary_interleaved)
    stores = (
        Store(k_quant_type, k_scale, kv_cache_bit_width, past_key),
        Store(v_quant_type, v_scale, kv_cache_bit_width, past_value),
    )
    new = [store.encode_heads(xp, heads) for store, heads in zip(stores, (k, v), strict=True)]
    if sliding_window_cache:
        window = Window(past_key, local_window_size, before, totals)
        held, present, places = window.step(xp, (past_key, past_value), new)
        attention_bias = window.columns(xp, attention_bias)
    else:
        present = extended(xp, (past_key, past_value), new, before.tolist(), total, counts)
        held, places = [heads[:, :, :total] for heads in present], xp.arange(total)
    keys, values = (s.decode(xp, x, q.shape[3]) for s, x in zip(stores, held, strict=True))
    sinks = xp.zeros(num_heads, xp.float32) if smooth_softmax == 1 else head_sink
    seen = visible(
        xp, positions, places,
        causal=bool(causal), window=local_window_size, totals=xp.asarray(totals),
    )  # fmt: skip
    result = attend(
        xp, q, keys, values, scale or None,
        bias=attention_bias, seen=seen, sinks=sinks, softcap=softcap,
    )  # fmt: skip
    shown = {1: result.scores, 2: result.weights}.get(qk_output)
    if shown is not None:
        shown = xp.where(xp.isneginf(shown), 0, shown).astype(query.dtype, copy=False)
    return joined(result.values), *present, shown


def counted(total: Array) -> int:
    """Return ``total_sequence_length``.

    Raises:
        ValueError: There is no token.
    """
    count = int(total.item())
    if count < 1:
        raise ValueError(f"total_sequence_length must be at least 1, found {count}")
    return count


def require_bias(bias: Array | None, total: int) -> None:
    """Refuse a bias that has not one number for each key.

    Raises:
        ValueError: Its last axis is not as long as there are keys.
    """
    if bias is not None and bias.shape[3] != total:
        raise ValueError(
            f"expected attention_bias of {total} keys along axis 3, found {bias.shape[3]}"
        )


def valid_tokens(valid: Array | None, totals: Array, length: int, total: int) -> list[int] | None:
    """Return how many of each batch entry's new tokens are no padding; ``None`` if all are.

    Raises:
        ValueError: More than there are, or they do not fit.
    """
    if valid is None:
        return None
    counts, most = valid.reshape(-1), np.minimum(length, totals)
    if counts.shape != totals.shape or (counts < 0).any() or (counts > most).any():
        raise ValueError(
            f"expected query_seqlens of 0 to {most.tolist()}, one per batch entry, found "
            f"{counts.tolist()}"
        )
    if (totals > total).any():
        raise ValueError(
            f"expected total_sequence_length of {totals.max()} at least, found {total}"
        )
    return [int(count) for count in counts]


def split(
    query: Array, key: Array | None, value: Array | None, heads: int, groups: int
) -> tuple[Array, Array, Array]:
    """Return the heads of query, key and value, which may all lie in the query.

    Raises:
        ValueError: One of key and value is missing, or the heads do not divide.
    """
    if heads % groups:
        raise ValueError(f"expected kv_num_heads to divide num_heads={heads}, found {groups}")
    if (key is None) != (value is None):
        raise ValueError("expected key and value together, found one of them")
    if key is not None:
        return in_heads(query, heads), in_heads(key, groups), in_heads(value, groups)
    packed = in_heads(query, heads + 2 * groups)
    return packed[:, :heads], packed[:, heads : heads + groups], packed[:, heads + groups :]


def seen_before(
    length: int,
    new: tuple[Array, Array],
    past: tuple[Array | None, Array | None],
    totals: np.ndarray[Any, Any],
    total: int,
    counts: list[int] | None,
    *,
    windowed: bool,
) -> np.ndarray[Any, Any]:
    """Return how many tokens each entry has before its queries, so many; none if all are new.

    Raises:
        ValueError: Keys and values differ in shape, or lengths contradict them.
    """
    for what, (keys, values) in (("", new), ("past ", past)):
        shapes = [None if x is None else tuple(x.shape) for x in (keys, values)]
        if shapes[0] != shapes[1]:
            raise ValueError(f"expected {what}key and {what}value of one shape, found {shapes}")
    batch, held = len(new[0]), 0 if past[0] is None else past[0].shape[2]
    first = length == total and counts is None
    # Prompts of a batch are padded at their ends, so one may have fewer tokens than its row.
    least = 0 if counts else 1 if first else length
    if len(totals) != batch or ((totals < least) | (totals > total)).any():
        raise ValueError(
            f"expected seqlens_k of {batch} numbers from {least - 1} to {total - 1}, which are "
            f"the tokens without the last one, found {(totals - 1).tolist()}"
        )
    added = new[0].shape[2]
    if added not in (0, length):
        raise ValueError(f"expected {length} new keys, one per query, or none, found {added}")
    if total > held + added and not windowed:
        raise ValueError(
            f"expected total_sequence_length of at most {held + added}: {held} in the cache and "
            f"{added} new ones, found {total}"
        )
    return np.zeros_like(totals) if first else totals - (counts or length)


def rotary_positions(xp: Namespace, counted: Array, given: Array | None, *, first: bool) -> Array:
    """Return positions (batch, length); of those given for a first prompt the first one counts."""
    if given is None:
        return counted
    if first:
        given = given.reshape(-1)[0] + xp.arange(counted.shape[1])
    return xp.broadcast_to(given, counted.shape)


def normed(xp: Namespace, x: Array, weight: Array, epsilon: float) -> Array:
    """Return the RMS norm of every head."""
    wide = x.astype(accumulator(x.dtype), copy=False)
    return weighted(by_root_mean_square(xp, wide, epsilon)[0], weight, None, x.dtype)


def rotated(
    xp: Namespace,
    parts: tuple[Array, ...],
    positions: Array,
    cos_cache: Array | None,
    sin_cache: Array | None,
    interleaved: int,
) -> list[Array]:
    """Return heads (batch, heads, length, size) with their first elements rotated.

    Raises:
        ValueError: The angles are missing.
    """
    if cos_cache is None or sin_cache is None:
        raise ValueError("expected cos_cache and sin_cache with do_rotary=1, found none")
    cos, sin = cos_cache[positions], sin_cache[positions]
    return [
        turned(xp, x, cos, sin, interleaved=interleaved, num_heads=0, rotary_embedding_dim=0)
        for x in parts
    ]
