"""SparseAttention: each block of queries sees some blocks of keys."""

from __future__ import annotations

import numpy as np

from tenonnx import Array, Namespace, OperatorTable
from tenonnx_array.attention import joined
from tenonnx_contrib.attend import attend, visible
from tenonnx_contrib.cache import appended
from tenonnx_contrib.group_query import rotated, split

table = OperatorTable("com.microsoft")
op = table.op


@op(
    "SparseAttention",
    host=(5, 6, 7, 8),
    multiple=True,
    shapes=(
        "query: B L ...; key value: B L *key[2:]; past_key past_value: B kv_num_heads P S; "
        "block_row_indices: layouts R; block_col_indices: layouts C; "
        "total_sequence_length: | 1; key_total_sequence_lengths: B; cos_cache: M W; sin_cache: M W"
    ),
)
def sparse_attention(
    xp: Namespace,
    query: Array,
    key: Array | None,
    value: Array | None,
    past_key: Array,
    past_value: Array,
    block_row_indices: Array,
    block_col_indices: Array,
    total_sequence_length: Array,
    key_total_sequence_lengths: Array,
    cos_cache: Array | None = None,
    sin_cache: Array | None = None,
    *,
    do_rotary: int = 0,
    kv_num_heads: int,
    num_heads: int,
    rotary_interleaved: int = 0,
    scale: float = 0.0,
    sparse_block_size: int,
) -> tuple[Array, Array, Array]:
    """Return causal attention to the blocks that a layout names, and the caches with new entries.

    The layouts are sparse matrices of blocks: row starts (layouts, blocks + 1) and columns
    (layouts, entries). Head h has layout h modulo their number.
    """
    q, k, v = split(query, key, value, num_heads, kv_num_heads)
    length, total = q.shape[2], int(total_sequence_length.item())
    totals = key_total_sequence_lengths.reshape(-1)
    before = np.zeros_like(totals) if length == total else totals - length
    positions = xp.asarray(before[:, None] + np.arange(length))
    if do_rotary:
        q, k = rotated(xp, (q, k), positions, cos_cache, sin_cache, rotary_interleaved)
    keys, values = (
        appended(xp, past, new, before.tolist(), past.shape[2])
        for past, new in ((past_key, k), (past_value, v))
    )
    places = np.arange(total)
    seen = visible(xp, positions, xp.asarray(places), totals=xp.asarray(totals))
    layouts = dense(block_row_indices, block_col_indices)
    rows = np.minimum(before[:, None] + np.arange(length), total - 1) // sparse_block_size
    blocks = layouts[:, rows][..., places // sparse_block_size].swapaxes(0, 1)
    repeated = np.tile(blocks, (1, num_heads // len(layouts), 1, 1))
    result = attend(
        xp, q, keys[:, :, :total], values[:, :, :total], scale or None,
        seen=seen & xp.asarray(repeated),
    )  # fmt: skip
    return joined(result.values), keys, values


def dense(starts: Array, columns: Array) -> Array:
    """Return which blocks of keys each block of queries sees (layouts, blocks, blocks).

    Raises:
        ValueError: Rows do not start one after another, or end beyond the columns.
    """
    if (np.diff(starts) < 0).any() or (starts[:, -1] > columns.shape[1]).any():
        raise ValueError(
            "expected block_row_indices to go up to the entries of block_col_indices, "
            f"{columns.shape[1]}; found {starts.tolist()}"
        )
    layouts, size = starts.shape[0], starts.shape[1] - 1
    seen = np.zeros((layouts, size, size), bool)
    for layout in range(layouts):
        counts = np.diff(starts[layout])
        rows = np.repeat(np.arange(size), counts)
        seen[layout, rows, columns[layout, : len(rows)]] = True
    return seen
