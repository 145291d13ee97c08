"""Attention of encoders and encoder-decoders: MultiHeadAttention, Attention, QAttention."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

from tenonnx import Array, Namespace, OperatorTable
from tenonnx_array.attention import in_heads, joined
from tenonnx_array.axes import split_last
from tenonnx_array.dtypes import accumulator
from tenonnx_array.linalg import matmul
from tenonnx_contrib import masks
from tenonnx_contrib.attend import Attended, attend
from tenonnx_contrib.cache import extended
from tenonnx_contrib.integer_product import dequantized_product
from tenonnx_contrib.rotary import turned

table = OperatorTable("com.microsoft")
op = table.op


@op(
    "MultiHeadAttention",
    host=(8,),
    multiple=True,
    shapes=(
        "query: B L ...; key value: B ...; bias: n; attention_bias: 1|B 1|num_heads L total; "
        "past_key past_value: B num_heads P ...; "
        "past_sequence_length: | 1; cache_indirection: b beams room; "
        "key_padding_mask: B|3*B+2 | B mask | B L mask; "
        "cache_indirection is None or past_key is None or room <= P; "
        "past_key is None or len(query) != 3 or past_key[3]*num_heads == query[2]; "
        "past_value is None or value is None or len(value) != 3 "
        "or past_value[3]*num_heads == value[2]; "
        "key is None or value is None or key[1:-1] == value[1:-1]; "
        "key is None or value is None or len(key) != 4 or key == value; "
        "bias is None or key is None or value is None or len(key) == 4 or len(query) == 5 "
        "or bias[0] == 2*query[2] + value[2]; "
        "keys = L if key is None else key[1] if len(key) != 4 else key[2]; "
        "total = keys if past_key is None else keys + P if past_sequence_length is None else None"
    ),
)
def multi_head_attention(
    xp: Namespace,
    query: Array,
    key: Array | None = None,
    value: Array | None = None,
    bias: Array | None = None,
    key_padding_mask: Array | None = None,
    attention_bias: Array | None = None,
    past_key: Array | None = None,
    past_value: Array | None = None,
    past_sequence_length: Array | None = None,
    cache_indirection: Array | None = None,
    *,
    mask_filter_value: float = masks.MASK_FILTER_VALUE,
    num_heads: int,
    scale: float = 0.0,
    unidirectional: int = 0,
) -> tuple[Array, ...]:
    """Return the attention's result, the keys, the values, and the weights.

    query is (batch, length, heads * size), or (batch, length, heads, 3, size) with keys and
    values; key and value are likewise, or (batch, length, heads, 2, size) together, or caches
    (batch, heads, length, size). With ``past_sequence_length`` the caches have room for the new
    keys; ``cache_indirection`` (batch, beams, room) then says whose entries a beam continues.

    Raises:
        ValueError: key or value is missing, or a mask does not fit.
    """
    q, k, v = heads_of(query, key, value, bias, num_heads)
    before = 0 if past_key is None else past_key.shape[2]
    if past_sequence_length is not None:
        before = int(past_sequence_length.item())
    total = before + k.shape[2]
    present = extended(xp, (past_key, past_value), (k, v), [before] * k.shape[0], total)
    keys, values = (cache[:, :, :total] for cache in present)
    if cache_indirection is not None:
        keys, values = (continued(xp, cache, cache_indirection, before) for cache in (keys, values))
    scoring = Scoring(
        key_padding_mask, mask_filter_value, attention_bias, scale, bool(unidirectional)
    )
    result = scoring.attend(xp, q, keys, values)
    return joined(result.values), *present, result.weights.astype(query.dtype, copy=False)


class Scoring(NamedTuple):
    """Changes to the scores of keys.

    Attributes:
        mask: Of integers, in any of the shapes of ``masks.added``.
        hidden: The summand of the scores of keys that the mask hides.
        bias: Is added to all.
        scale: Their factor; 0 for the usual one.
        causal: Whether a query sees no later keys.
    """

    mask: Array | None
    hidden: float
    bias: Array | None
    scale: float
    causal: bool

    def attend(self, xp: Namespace, q: Array, k: Array, v: Array) -> Attended:
        """Return the attention of queries to keys, all (batch, heads, length, size)."""
        queries, keys = q.shape[2], k.shape[2]
        bias = self.bias
        total = masks.total(
            masks.added(xp, self.mask, q.shape[0], queries, keys, self.hidden),
            None if bias is None else bias.astype(accumulator(bias.dtype), copy=False),
            masks.causal(xp, queries, keys) if self.causal else None,
        )
        return attend(xp, q, k, v, self.scale or None, bias=total)


def heads_of(
    query: Array, key: Array | None, value: Array | None, bias: Array | None, heads: int
) -> tuple[Array, Array, Array]:
    """Return query, key and value as (batch, heads, length, size), their biases added.

    Raises:
        ValueError: key or value is missing.
    """
    if query.ndim == 5:
        parts = [query[:, :, :, i].swapaxes(1, 2) for i in range(3)]
    elif key is not None and key.ndim == 5:
        parts = [in_heads(query, heads), *(key[:, :, :, i].swapaxes(1, 2) for i in range(2))]
    elif key is not None and value is not None:
        parts = [in_heads(x, heads) if x.ndim == 3 else x for x in (query, key, value)]
    else:
        raise ValueError("expected key and value, or a query that holds them, found neither")
    if bias is not None:
        widths = [x.shape[1] * x.shape[3] for x in parts]
        ends = list(itertools.accumulate(widths))
        for i, (width, end) in enumerate(zip(widths, ends, strict=True)):
            share = bias[end - width : end].reshape(1, heads, 1, -1)
            parts[i] = parts[i] + share
    return parts[0], parts[1], parts[2]


def continued(xp: Namespace, cache: Array, indirection: Array, before: int) -> Array:
    """Return a cache whose first ``before`` entries are those of the beams they come from."""
    beams = indirection.shape[1]
    origin = indirection[:, :, :before].reshape(-1, before)
    # Beams are numbered within their batch entry, rows of the cache through all of them.
    origin = origin + (xp.arange(origin.shape[0]) // beams * beams)[:, None]
    old = cache[origin, :, xp.arange(before)].swapaxes(1, 2)
    return xp.concatenate((old, cache[:, :, before:]), axis=2)


@op(
    "DecoderMaskedMultiHeadAttention",
    like=[multi_head_attention],
    without=("unidirectional",),
    host=(7, 8),
    multiple=True,
    shapes=(
        "query: B 1 W; key value: B ...; "
        "bias is None or key is None or len(key) != 3 or bias[0] == 2*W + value[2]; "
        "past_key past_value: B num_heads P ...; bias: n; "
        "attention_bias: 1|B 1|num_heads 1 T; past_sequence_length beam_width: | 1; "
        "cache_indirection: b beams room; "
        "cache_indirection is None or past_key is None or room <= P; "
        "past_key is None or key is None or past_key[3]*num_heads == W; "
        "past_value is None or value is None or len(value) != 3 "
        "or past_value[3]*num_heads == value[2]; "
        "key is None or value is None "
        "or len(key) == len(value) in (3, 4) and key[1:-1] == value[1:-1]; "
        "key is None or value is None or len(key) != 4 or key == value"
    ),
)
def decoder_masked_multi_head_attention(
    xp: Namespace,
    query: Array,
    key: Array | None = None,
    value: Array | None = None,
    mask_index: Array | None = None,
    attention_bias: Array | None = None,
    past_key: Array | None = None,
    past_value: Array | None = None,
    past_sequence_length: Array | None = None,
    beam_width: Array | None = None,  # noqa: ARG001 - the cache indirection has that many
    cache_indirection: Array | None = None,
    bias: Array | None = None,
    *,
    num_heads: int,
    output_qk: int = 0,  # noqa: ARG001 - it comes for free
    past_present_share_buffer: int = 0,
    **attributes: Any,
) -> tuple[Array, ...]:
    """Return MultiHeadAttention of one token per sequence; query may hold its key and value."""
    if key is None:
        query = split_last(query, 3, num_heads).swapaxes(2, 3)
    return multi_head_attention(
        xp,
        query,
        key,
        value,
        bias,
        mask_index,
        attention_bias,
        past_key,
        past_value,
        past_sequence_length if past_present_share_buffer else None,
        cache_indirection,
        num_heads=num_heads,
        **attributes,
    )


@op(
    "Attention",
    host=(6,),
    multiple=True,
    shapes=(
        "input: B L D; weights: D W; bias: W; past: 2 B num_heads P S; "
        "attention_bias: 1|B 1|num_heads L total; "
        "total = L if past is None else L + P if past_sequence_length is None else None"
    ),
)
def attention(
    xp: Namespace,
    input: Array,  # noqa: A002 - the schema's name
    weights: Array,
    bias: Array | None = None,
    mask_index: Array | None = None,
    past: Array | None = None,
    attention_bias: Array | None = None,
    past_sequence_length: Array | None = None,
    *,
    do_rotary: int = 0,
    mask_filter_value: float = masks.MASK_FILTER_VALUE,
    num_heads: int,
    past_present_share_buffer: int = 0,
    qkv_hidden_sizes: tuple[int, ...] | None = None,
    rotary_embedding_dim: int = 0,
    scale: float = 0.0,
    unidirectional: int = 0,
) -> tuple[Array, Array]:
    """Return self-attention of an input that is projected first, and the keys and values.

    input is (batch, length, width), weights are (width, query + key + value widths). The past and
    the present are (2, batch, heads, length, size).
    """
    projected = matmul(xp, input, weights)
    if bias is not None:
        projected = projected + bias
    q, k, v = projections(projected, num_heads, qkv_hidden_sizes)
    before = 0 if past is None else past.shape[3]
    if past_present_share_buffer and past_sequence_length is not None:
        before = int(past_sequence_length.item())
    if do_rotary:
        q, k = (computed_rotary(xp, x, before, rotary_embedding_dim or x.shape[-1]) for x in (q, k))
    scoring = Scoring(mask_index, mask_filter_value, attention_bias, scale, bool(unidirectional))
    return over_past(xp, (q, k, v), past, before, scoring)


def projections(
    projected: Array, heads: int, widths: tuple[int, ...] | None
) -> tuple[Array, Array, Array]:
    """Return the heads of query, key and value, which lie side by side."""
    widths = widths or (projected.shape[-1] // 3,) * 3
    first, second = widths[0], widths[0] + widths[1]
    return (
        in_heads(projected[..., :first], heads),
        in_heads(projected[..., first:second], heads),
        in_heads(projected[..., second:], heads),
    )


def over_past(
    xp: Namespace,
    new: tuple[Array, Array, Array],
    past: Array | None,
    before: int,
    scoring: Scoring,
) -> tuple[Array, Array]:
    """Attend to a past (2, batch, heads, length, size) and to new keys; return both together.

    Of the past, ``before`` keys count; ``new`` are query, key and value.
    """
    q, k, v = new
    total = before + k.shape[2]
    pasts = (None, None) if past is None else (past[0], past[1])
    keys, values = extended(xp, pasts, (k, v), [before] * k.shape[0], total)
    result = scoring.attend(xp, q, keys[:, :, :total], values[:, :, :total])
    # Keys and values of other widths than each other have no common array.
    present = xp.stack((keys, values)) if keys.shape == values.shape else keys
    return joined(result.values), present


def computed_rotary(xp: Namespace, x: Array, before: int, width: int) -> Array:
    """Rotate heads by the angles of base 10000, of positions from ``before`` on."""
    places = xp.arange(before, before + x.shape[2], dtype=xp.float32)[None, :, None]
    rates = xp.float32(10000) ** (-xp.arange(0, width, 2, dtype=xp.float32) / xp.float32(width))
    angles = xp.broadcast_to(places * rates, (x.shape[0], x.shape[2], width // 2))
    return turned(xp, x, xp.cos(angles), xp.sin(angles))


@op(
    "QAttention",
    multiple=True,
    shapes=(
        "input: B L D; weight: D W; bias: W; input_scale input_zero_point: | 1; "
        "weight_scale weight_zero_point: | 1 | W; past: 2 B num_heads P S; "
        "mask_index: lengths | B mask | B L mask"
    ),
)
def q_attention(
    xp: Namespace,
    input: Array,  # noqa: A002 - the schema's name
    weight: Array,
    bias: Array,
    input_scale: Array,
    weight_scale: Array,
    mask_index: Array | None = None,
    input_zero_point: Array | None = None,
    weight_zero_point: Array | None = None,
    past: Array | None = None,
    *,
    do_rotary: int = 0,
    mask_filter_value: float = masks.MASK_FILTER_VALUE,
    num_heads: int,
    past_present_share_buffer: int = 0,  # noqa: ARG001 - says how a caller allocates
    scale: float = 0.0,
    unidirectional: int = 0,
) -> tuple[Array, Array]:
    """Return Attention of a quantized input and quantized weights."""
    projected = dequantized_product(
        xp, input, weight, input_scale, weight_scale, input_zero_point, weight_zero_point
    )
    q, k, v = projections(projected.astype(bias.dtype, copy=False) + bias, num_heads, None)
    before = 0 if past is None else past.shape[3]
    if do_rotary:
        q, k = (computed_rotary(xp, x, before, x.shape[-1]) for x in (q, k))
    scoring = Scoring(mask_index, mask_filter_value, None, scale, bool(unidirectional))
    return over_past(xp, (q, k, v), past, before, scoring)
