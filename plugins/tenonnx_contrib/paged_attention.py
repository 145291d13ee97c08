"""PagedAttention: tokens of several requests, whose keys and values lie in blocks of a cache."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np

from tenonnx import Array, Namespace, OperatorTable
from tenonnx_array.packed import unpack
from tenonnx_contrib.attend import attend, visible
from tenonnx_contrib.cache import Store
from tenonnx_contrib.group_query import normed, rotated

table = OperatorTable("com.microsoft")
op = table.op


@op("PagedAttention", host=(5, 6, 7, 10, 16), multiple=True)
def paged_attention(
    xp: Namespace,
    query: Array,
    key: Array | None,
    value: Array | None,
    key_cache: Array,
    value_cache: Array | None,
    cumulative_sequence_length: Array,
    past_seqlens: Array,
    block_table: Array,
    cos_cache: Array | None = None,
    sin_cache: Array | None = None,
    slot_mapping: Array | None = None,
    head_sink: Array | None = None,
    q_norm_weight: Array | None = None,
    k_norm_weight: Array | None = None,
    k_scale: Array | None = None,
    v_scale: Array | None = None,
    attention_metadata: Array | None = None,  # noqa: ARG001 - bounds that size buffers elsewhere
    *,
    do_rotary: int = 0,
    is_causal: int = 1,
    k_cache_dtype: str = "",
    k_quant_type: str = "NONE",
    kv_cache_layout: str = "SEPARATE",
    kv_num_heads: int,
    local_window_size: int = -1,
    num_heads: int,
    qk_norm_epsilon: float = 1e-6,
    rotary_interleaved: int = 0,
    rotary_offset: int = 0,
    scale: float = 0.0,
    softcap: float = 0.0,
    v_cache_dtype: str = "",
    v_head_size: int = 0,
    v_quant_type: str = "NONE",
) -> tuple[Array | None, ...]:
    """Return each token's attention (tokens, heads * size) and the caches with new entries.

    Request r has the tokens between ``cumulative_sequence_length[r]`` and the next, after
    ``past_seqlens[r]`` earlier ones. Caches are (blocks, block size, key heads, size);
    ``block_table[r]`` names the blocks of a request in order. A LATENT cache holds keys alone,
    whose first ``v_head_size`` elements are the values. The caches are copied, not written to.

    Raises:
        ValueError: Heads or requests do not fit, or a cache lacks its scale.
    """
    latent = kv_cache_layout == "LATENT"
    q, k, v = tokens_of(query, key, value, num_heads, kv_num_heads, latent=latent)
    if q_norm_weight is not None and k_norm_weight is not None:
        q = normed(xp, q, q_norm_weight, qk_norm_epsilon)
        k = normed(xp, k, k_norm_weight, qk_norm_epsilon)
    ends, past = cumulative_sequence_length.tolist(), past_seqlens.tolist()
    positions = np.concatenate(
        [np.arange(b - a) + p for (a, b), p in zip(itertools.pairwise(ends), past, strict=True)]
    )
    if do_rotary:
        at = xp.asarray(positions)
        q, k = rotated_tokens(
            xp, (q, k), at, cos_cache, sin_cache, rotary_offset, rotary_interleaved
        )
    requests = np.repeat(np.arange(len(past)), np.diff(ends))
    slots = slots_of(slot_mapping, block_table, requests, positions, key_cache.shape[1])
    stores = [
        PagedStore(kind, factor, name, cache, k)
        for kind, factor, name, cache in (
            (k_quant_type, k_scale, k_cache_dtype, key_cache),
            (v_quant_type, v_scale, v_cache_dtype, key_cache if latent else value_cache),
        )
    ]
    caches = [stores[0].stored(xp, k, slots), None if latent else stores[1].stored(xp, v, slots)]
    outputs = []
    for request, (start, stop) in enumerate(itertools.pairwise(ends)):
        total = past[request] + stop - start
        blocks = xp.asarray(block_table[request, : -(-total // key_cache.shape[1])])
        keys = stores[0].read(xp, caches[0], blocks, total)
        values = keys if latent else stores[1].read(xp, caches[1], blocks, total)
        rows = xp.asarray(positions[None, start:stop])
        seen = visible(xp, rows, xp.arange(total), causal=bool(is_causal), window=local_window_size)
        result = attend(
            xp, q[start:stop].swapaxes(0, 1)[None], keys, values[..., : v_head_size or None],
            scale or None, seen=seen, sinks=head_sink, softcap=softcap,
        )  # fmt: skip
        outputs.append(result.values[0].swapaxes(0, 1).reshape(stop - start, -1))
    return xp.concatenate(outputs), *caches


class PagedStore(Store):
    """A cache in blocks.

    Args:
        kind: NONE, PER_TENSOR or PER_CHANNEL.
        scale: (1,) or (key heads, 1, size).
        name: The logical type: int4 and float4e2m1 lie two to a byte.
        cache: (blocks, block size, key heads, size).
        new: Its new entries: the last axis is a head's size.
    """

    def __init__(self, kind: str, scale: Array | None, name: str, cache: Array, new: Array) -> None:
        super().__init__(kind, scale, 4 if name == "int4" else 8, cache)
        self.name, self.cache, self.size = name, cache, new.shape[-1]
        if self.scale is not None and self.scale.ndim == 4:
            self.scale = self.scale[0].swapaxes(0, 1)

    def stored(self, xp: Namespace, new: Array, slots: Array) -> Array:
        """Return a copy of the cache with new entries (tokens, key heads, size) in their slots."""
        kept = np.flatnonzero(slots >= 0)
        cache = self.cache.copy()
        rows = cache.reshape(-1, *cache.shape[2:])
        rows[xp.asarray(slots[kept])] = self.encode(xp, new[xp.asarray(kept)])
        return cache

    def read(self, xp: Namespace, cache: Array, blocks: Array, total: int) -> Array:
        """Return the first entries of some blocks as (1, key heads, total, size)."""
        rows = cache[blocks].reshape(-1, *cache.shape[2:])[:total]
        return self.decode(xp, rows, self.size).swapaxes(0, 1)[None]

    def encode(self, xp: Namespace, values: Array) -> Array:
        """Return values as the cache keeps them."""
        if self.name not in ("int4", "float4e2m1"):
            return super().encode(xp, values)
        quotient = values.astype(xp.float32) / self.scale
        if self.name == "int4":
            nibbles = xp.clip(xp.rint(quotient), -8, 7).astype(xp.int8).view(xp.uint8) & 15
        else:
            nibbles = quotient.astype(ml_dtypes.float4_e2m1fn).view(xp.uint8) & 15
        return nibbles[..., ::2] | (nibbles[..., 1::2] << xp.uint8(4))

    def decode(self, xp: Namespace, stored: Array, size: int) -> Array:
        """Return what ``encode`` was given."""
        if self.name not in ("int4", "float4e2m1"):
            return super().decode(xp, stored, size)
        # By a table of all codes, since arrays of 4-bit types have no arithmetic.
        codes = xp.arange(16, dtype=xp.uint8)
        if self.name == "int4":
            values = (codes.astype(xp.float32) + 8) % 16 - 8
        else:
            values = codes.view(ml_dtypes.float4_e2m1fn).astype(xp.float32)
        return xp.take(values, unpack(xp, stored, 4)[..., :size]) * self.scale


def tokens_of(
    query: Array, key: Array | None, value: Array | None, heads: int, groups: int, *, latent: bool
) -> tuple[Array, Array, Array]:
    """Return query, key and value as (tokens, heads, size); a latent key is the value too."""
    tokens = query.shape[0]
    if key is None:
        size = query.shape[1] // (heads + 2 * groups)
        packed = query.reshape(tokens, -1, size)
        return packed[:, :heads], packed[:, heads : heads + groups], packed[:, heads + groups :]
    k = key.reshape(tokens, groups, -1)
    v = k if latent or value is None else value.reshape(tokens, groups, -1)
    return query.reshape(tokens, heads, -1), k, v


def rotated_tokens(
    xp: Namespace,
    parts: tuple[Array, ...],
    positions: Array,
    cos_cache: Array | None,
    sin_cache: Array | None,
    offset: int,
    interleaved: int,
) -> list[Array]:
    """Return tokens (tokens, heads, size) with elements from ``offset`` on rotated."""
    heads = tuple(x[None, ..., offset:].swapaxes(1, 2) for x in parts)
    turned = rotated(xp, heads, positions[None], cos_cache, sin_cache, interleaved)
    return [
        xp.concatenate((x[..., :offset], y.swapaxes(1, 2)[0]), axis=-1)
        for x, y in zip(parts, turned, strict=True)
    ]


def slots_of(
    given: Array | None, block_table: Array, requests: Array, positions: Array, size: int
) -> Array:
    """Return where in the flattened cache each token goes; -1 is nowhere."""
    if given is not None:
        return given.reshape(-1)
    return block_table[requests, positions // size].astype(np.int64) * size + positions % size
