"""Some queries of a head against a block of keys in tiles of bfloat16, summed in float32.

The same as ``blocks``: queries are rounded once, keys and values as they are packed, and weights
where they lie.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tenonnx_cpu.attention import kernels as sizes
from tenonnx_cpu.attention.kernels import KEYS, QUERIES
from tenonnx_cpu.attention.kernels.scores import (
    F,
    mask_at,
    raise_top,
    score_row,
    seen_by,
    weigh_nothing,
)
from tenonnx_cpu.int8.kernels.band import fill_bytes
from tenonnx_cpu.jit.compiling import helper
from tenonnx_cpu.jit.vectors.amx import CACHE_LINE, HAS_TILES, begin_tiles
from tenonnx_cpu.jit.vectors.bfloat16 import (
    narrow_exponentials,
    narrow_pairs,
    narrow_row,
    narrow_words,
)
from tenonnx_cpu.jit.vectors.lanes import LANES
from tenonnx_cpu.jit.vectors.memory import load_float, store_float, store_int
from tenonnx_cpu.jit.vectors.reductions import greatest_at
from tenonnx_cpu.jit.vectors.views import floats
from tenonnx_cpu.matmul.kernels import TILE_STEP
from tenonnx_cpu.matmul.kernels.bfloat16 import TALLEST, WORDS, multiply_narrow_panel
from tenonnx_cpu.matmul.kernels.tile import ADD, COLUMNS, ZERO

if QUERIES % TALLEST:
    raise AssertionError(f"{QUERIES} queries are not whole tiles of {TALLEST}: rows have no room")

# Numbers of a head from which on they fill half of a tile's rows; panels have room then.
LEAST_WIDTH = 16

narrow_line = helper(sizes.narrow_line)


class Tiles(NamedTuple):
    """A task's queries in tiles.

    Attributes:
        tall: Rows of a tile; 0 if tiles are not used.
        rows: Those of all tiles: the last ones may be of no query.
        queries: Address of the queries as bfloat16.
        offsets: Address of an int64 for every pair of a row: bytes to it.
        panel: Address of a panel of keys or of values.
    """

    tall: Any
    rows: Any
    queries: Any
    offsets: Any
    panel: Any


@helper
def begin_attention(queries: Any, count: Any, width: Any, packed: Any, room: Any) -> Any:
    """Round queries, and begin tiles, which ``end_tiles`` ends.

    Args:
        queries: Their address, and bytes from one to the next.
        count: How many.
        width: Floats of each.
        packed: Address of room for panels of float32, of which those of bfloat16 take half.
        room: Address of ``QUERIES`` times ``narrow_line`` bytes, and of what ``offsets`` need.
    """
    packed = -(-packed // CACHE_LINE) * CACHE_LINE
    room = -(-room // CACHE_LINE) * CACHE_LINE
    source, apart = queries
    padded, line = -(-width // TILE_STEP) * TILE_STEP, narrow_line(width)
    for row in range(count):
        narrow_row(source + row * apart, width, room + row * line, padded)
    offsets = room + QUERIES * line
    for pair in range(max(padded, KEYS) // 2):
        store_int(4 * pair, offsets + 8 * pair)
    number = -(-count // TALLEST)
    tall = -(-count // number)
    begin_tiles(tall, WORDS)
    return Tiles(tall, number * tall if HAS_TILES else count, room, offsets, packed)


@helper
def multiply_keys_in_tiles(
    tiles: Any, keys: Any, span: Any, width: Any, scores: Any, line: Any
) -> None:
    """Write the products of queries and ``span`` keys; see ``multiply_keys``."""
    (key, key_row), panel = keys, tiles.panel
    padded = -(-width // TILE_STEP) * TILE_STEP
    for column in range(0, span, COLUMNS):
        for half in range(0, COLUMNS, LANES):
            rows = max(0, min(LANES, span - column - half))
            source = key + min(column + half, span - 1) * key_row
            narrow_words(source, key_row, rows, width, panel + 4 * half, padded // TILE_STEP)
        multiply_narrow_panel(
            tiles.rows, tiles.tall, tiles.queries, narrow_line(width), tiles.offsets, panel,
            padded // TILE_STEP, scores + 4 * column, 4 * line, COLUMNS, ZERO, panel,
        )  # fmt: skip


@helper
def weigh_keys_in_tiles(
    place: Any, count: Any, first: Any, span: Any, rule: Any, seen: Any,
    scores: Any, line: Any, sums: Any, wide: Any, width: Any, states: Any,
) -> None:  # fmt: skip
    """Make products weights of bfloat16 where they lie; see ``weigh_keys``."""
    (batch, head, top), (scale, softcap, left, right, fill), (mask, spans) = place, rule, seen
    padded = -(-span // TILE_STEP) * TILE_STEP
    for row in range(count):
        own, state = scores + 4 * line * row, states + 8 * row
        begin, end = seen_by(spans, batch, top + row, left, right)
        begin, end = min(span, max(0, begin - first)), min(span, max(0, end - first))
        start, some = own + 4 * begin, end - begin
        added, factor = mask_at(mask, batch, head, top + row, first + begin), F(1)
        if softcap or added or not scale > 0:
            most = score_row(start, some, added, fill, scale, softcap)
        else:
            most, factor = greatest_at(start, some) * scale, scale
        most = raise_top(most, sums + 4 * wide * row, width, state)
        if most == -np.inf:
            store_float(load_float(state + 4) + weigh_nothing(floats(start, some)), state + 4)
        else:
            narrow_exponentials(start, own + 2 * begin, some, state + 4, factor, most)
        fill_bytes(own, 2 * begin, np.uint8(0))
        fill_bytes(own + 2 * end, 2 * (padded - end), np.uint8(0))


@helper
def add_values_in_tiles(
    tiles: Any, values: Any, span: Any, width: Any,
    scores: Any, line: Any, sums: Any, wide: Any,
) -> None:  # fmt: skip
    """Add ``span`` rows of values by their weights to rows of sums; see ``add_values``."""
    (value, value_row), panel = values, tiles.panel
    padded = -(-span // TILE_STEP) * TILE_STEP
    for column in range(0, wide, COLUMNS):
        some = min(COLUMNS, wide - column)
        narrow_pairs(
            value + 4 * column, value_row, span, min(some, width - column), panel, padded // 2
        )
        multiply_narrow_panel(
            tiles.rows, tiles.tall, scores, 4 * line, tiles.offsets, panel, padded // TILE_STEP,
            sums + 4 * column, 4 * wide, some, ADD, panel,
        )  # fmt: skip
