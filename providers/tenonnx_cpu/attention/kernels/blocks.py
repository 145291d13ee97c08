"""Some queries of a head against a block of keys: products, weights, and sums of values.

Queries, keys and values are an address and the bytes from row to row each. Scores lie ``line``
floats from row to row, sums ``wide`` floats.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.attention.kernels.scores import F, hide, mask_at, score_row, seen_by, weigh_row
from tenonnx_cpu.jit.compiling import helper
from tenonnx_cpu.jit.vectors.lanes import LANES
from tenonnx_cpu.jit.vectors.views import floats
from tenonnx_cpu.matmul.kernels.block import multiply_block
from tenonnx_cpu.matmul.kernels.pack import make_pack
from tenonnx_cpu.matmul.kernels.tile import ADD, COLUMNS, ZERO

pack = make_pack("f32")


@helper
def begin_rows(count: Any, sums: Any, wide: Any, states: Any, sinks: Any, head: Any) -> None:
    """Have rows begin with sums of 0, and with the head's sink as their only score, if it has one.

    Args:
        count: How many rows.
        sums: Address of their sums.
        wide: Floats from row to row of them.
        states: Address of two floats a row: the greatest score and the sum of weights so far.
        sinks: A score of each head, or of no size.
        head: Which of them.
    """
    for row in range(count):
        state = floats(states + 8 * row, 2)
        if sinks.size:
            state[0], state[1] = sinks[head], F(1)
        else:
            state[0], state[1] = F(-np.inf), F(0)
        out = floats(sums + 4 * wide * row, wide)
        for i in range(wide):
            out[i] = F(0)


@helper
def multiply_keys(
    queries: Any, keys: Any, count: Any, span: Any, width: Any, scores: Any, line: Any, room: Any
) -> None:
    """Write the products of ``count`` queries and ``span`` keys of ``width`` floats.

    ``room`` are the addresses of a packed panel and of a tile.
    """
    (query, query_row), (key, key_row), (packed, edge) = queries, keys, room
    for column in range(0, span, COLUMNS):
        target = packed + 4 * width * column
        pack(key + column * key_row, 4, key_row, width, min(COLUMNS, span - column), target)
    multiply_block(
        count, -(-span // LANES) * LANES, width, query, query_row, 4,
        packed, 4 * COLUMNS, 4 * COLUMNS * width, scores, 4 * line, ZERO, edge,
    )  # fmt: skip


@helper
def weigh_keys(
    place: Any, count: Any, first: Any, span: Any, rule: Any, seen: Any,
    scores: Any, line: Any, sums: Any, wide: Any, width: Any, states: Any,
) -> None:  # fmt: skip
    """Make products weights, and rescales what earlier blocks added up to.

    Args:
        place: The first row's entry of the batch, head and query.
        count: How many rows.
        first: Which key the block begins with.
        span: How many keys it has.
        rule: ``scale``, ``softcap``, ``left``, ``right`` and ``fill`` of ``Rule``.
        seen: The mask, and how many keys of each entry count (``attend_heads``).
        scores: Address of the products.
        line: Floats from row to row of them.
        sums: Address of the sums.
        wide: Floats from row to row of them.
        width: How many of them there are.
        states: As of ``begin_rows``.
    """
    (batch, head, top), (scale, softcap, left, right, fill), (mask, spans) = place, rule, seen
    for row in range(count):
        own, total = scores + 4 * line * row, sums + 4 * wide * row
        begin, end = seen_by(spans, batch, top + row, left, right)
        begin, end = min(span, max(0, begin - first)), min(span, max(0, end - first))
        added = mask_at(mask, batch, head, top + row, first + begin)
        most = score_row(own + 4 * begin, end - begin, added, fill, scale, softcap)
        weigh_row(own + 4 * begin, end - begin, most, total, width, states + 8 * row)
        hide(own, begin, end, span)


@helper
def add_values(
    values: Any, count: Any, span: Any, width: Any,
    scores: Any, line: Any, sums: Any, wide: Any, room: Any,
) -> None:  # fmt: skip
    """Add ``span`` rows of values, of ``width`` floats, by their weights to rows of sums.

    ``room`` is as of ``multiply_keys``. Values of whole panels are read where they are.
    """
    (value, value_row), (packed, edge) = values, room
    place, row, panel = value, value_row, 4 * COLUMNS
    if wide != width:
        for column in range(0, width, COLUMNS):
            target, columns = packed + 4 * span * column, min(COLUMNS, width - column)
            pack(value + 4 * column, value_row, 4, span, columns, target)
        place, row, panel = packed, 4 * COLUMNS, 4 * COLUMNS * span
    multiply_block(
        count, wide, span, scores, 4 * line, 4, place, row, panel, sums, 4 * wide, ADD, edge
    )
