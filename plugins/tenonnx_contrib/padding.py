"""Attention over batches without padding, and what adds and removes it; relative positions."""

from __future__ import annotations

import itertools
import math

import numpy as np

from tenonnx import Array, Namespace, OperatorTable
from tenonnx_array.axes import merged, split_last
from tenonnx_array.linalg import matmul
from tenonnx_array.nonlinear import sigmoid
from tenonnx_contrib.attend import attend
from tenonnx_contrib.branches import wide

table = OperatorTable("com.microsoft")
op = table.op


@op("RemovePadding", host=(1,), multiple=True)
def remove_padding(
    xp: Namespace,
    input: Array,  # noqa: A002 - the schema's name
    sequence_token_count: Array,
) -> tuple[Array, Array, Array, Array]:
    """Return the tokens that are no padding, where all come from, sums of lengths, the longest.

    input is (batch, length, width), padded at the ends; places are (batch, length), those of
    padding last.
    """
    batch, length = input.shape[:2]
    counts = sequence_token_count.reshape(-1)
    padding = (np.arange(length) >= counts[:, None]).reshape(-1)
    order = np.argsort(padding, kind="stable").astype(np.int32)
    ends = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    tokens = input.reshape(batch * length, -1)[xp.asarray(order[: ends[-1]])]
    longest = np.array([counts.max(initial=0)], np.int32)
    places = order.reshape(batch, length)
    return tokens, *(xp.asarray(x) for x in (places, ends, longest))


@op("RestorePadding")
def restore_padding(
    xp: Namespace,
    input: Array,  # noqa: A002 - the schema's name
    token_offset: Array,
) -> Array:
    """Return tokens (tokens, width) at their places (batch, length), zeros elsewhere."""
    y = xp.zeros((token_offset.size, input.shape[1]), input.dtype)
    y[token_offset.reshape(-1)[: input.shape[0]]] = input
    return y.reshape(*token_offset.shape, input.shape[1])


@op("PackedAttention", host=(4,))
def packed_attention(
    xp: Namespace,
    input: Array,  # noqa: A002 - the schema's name
    weights: Array,
    bias: Array,
    token_offset: Array,  # noqa: ARG001 - the sequences follow each other
    cumulative_sequence_length: Array,
    attention_bias: Array | None = None,
    *,
    num_heads: int,
    qkv_hidden_sizes: tuple[int, ...] | None = None,
    scale: float = 0.0,
) -> Array:
    """Return self-attention within each sequence of projected tokens (tokens, width)."""
    rows = matmul(xp, input, weights) + bias
    widths = qkv_hidden_sizes or (rows.shape[1] // 3,) * 3
    second = widths[0] + widths[1]
    parts = rows[:, : widths[0]], rows[:, widths[0] : second], rows[:, second:]
    return within(xp, parts, num_heads, cumulative_sequence_length, attention_bias, scale)


@op("PackedMultiHeadAttention", host=(5,))
def packed_multi_head_attention(
    xp: Namespace,
    query: Array,
    key: Array | None,
    value: Array | None,
    bias: Array | None,
    token_offset: Array,  # noqa: ARG001 - the sequences follow each other
    cumulative_sequence_length: Array,
    attention_bias: Array | None = None,
    *,
    mask_filter_value: float = 0.0,  # noqa: ARG001 - nothing is masked
    num_heads: int,
    scale: float = 0.0,
) -> Array:
    """Return attention within each sequence of tokens (tokens, heads * size).

    query may be (tokens, heads, 3, size), with keys and values.
    """
    if key is None or value is None:
        parts = tuple(merged(query[:, :, i], 1) for i in range(3))
    else:
        parts = query, key, value
    if bias is not None:
        ends = [0, *itertools.accumulate(x.shape[1] for x in parts)]
        spans = itertools.pairwise(ends)
        parts = tuple(x + bias[a:b] for x, (a, b) in zip(parts, spans, strict=True))
    return within(xp, parts, num_heads, cumulative_sequence_length, attention_bias, scale)


def within(
    xp: Namespace,
    parts: tuple[Array, ...],
    heads: int,
    ends: Array,
    bias: Array | None,
    scale: float,
) -> Array:
    """Return each sequence's attention; query, key and value are (tokens, heads * size)."""
    q, k, v = (split_last(x, heads)[None].swapaxes(1, 2) for x in parts)
    outputs = []
    for sequence, (start, stop) in enumerate(itertools.pairwise(ends.tolist())):
        added = None
        if bias is not None:
            row = sequence if bias.shape[0] > 1 else 0
            added = bias[row : row + 1, :, : stop - start, : stop - start]
        span = (slice(None), slice(None), slice(start, stop))
        values = attend(xp, q[span], k[span], v[span], scale or None, bias=added).values
        outputs.append(merged(values[0].swapaxes(0, 1), 1))
    return xp.concatenate(outputs)


@op("RelativePositionBias", host=(1, 2))
def relative_position_bias(
    xp: Namespace,
    bias_table: Array,
    query_length: Array,
    key_length: Array,
    *,
    is_bidirectional: int = 0,
    max_distance: int,
) -> Array:
    """Return a bias per head and pair of positions (1, heads, queries, keys), as T5 has it.

    The table is (buckets, heads). Half of the buckets are for exact distances, the others grow
    with the logarithm; if bidirectional, half of all are for keys after the query.
    """
    queries, keys = int(query_length.item()), int(key_length.item())
    distance = np.arange(queries)[:, None] - np.arange(keys)
    buckets, later = bias_table.shape[0], np.zeros((queries, keys), np.int64)
    if is_bidirectional:
        buckets //= 2
        later = np.where(distance < 0, buckets, 0)
        distance = np.abs(distance)
    distance = np.maximum(distance, 0)
    exact = buckets // 2
    ratio = np.log(np.maximum(distance, 1).astype(np.float32) / np.float32(exact))
    far = exact + ratio / math.log(max_distance / exact) * (buckets - exact)
    far = np.minimum(far.astype(np.int64), buckets - 1)
    bucket = later + np.where(distance < exact, distance, far)
    return xp.moveaxis(bias_table[xp.asarray(bucket)], -1, 0)[None]


@op("GatedRelativePositionBias", host=(6,))
def gated_relative_position_bias(
    xp: Namespace,
    query_layer: Array,
    query_bias: Array,
    rel_pos: Array,
    weight: Array,
    bias: Array,
    eco_a: Array,
    token_offset: Array | None = None,
    *,
    num_heads: int,
) -> Array:
    """Return the relative positions' bias times a gate per query and head, as WavLM has it.

    query_layer is (batch, length, heads * size), or tokens without padding and their places.
    """
    rows = query_layer + query_bias
    if token_offset is not None and rows.ndim == 2:
        rows = restore_padding(xp, rows, xp.asarray(token_offset))
    q = split_last(wide(rows), num_heads).swapaxes(1, 2)
    gates = xp.matmul(q, wide(weight)) + wide(bias)
    gates = sigmoid(xp, xp.sum(split_last(gates, 2), axis=-1))
    factor = gates[..., :1] * (gates[..., 1:] * wide(eco_a) - 1) + 2
    return (factor * wide(rel_pos)).astype(query_layer.dtype)
