"""Products of bytes in AMX's tiles: the same sums as ``multiply_bytes``, and the same results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from tenonnx_cpu.int8.kernels import tile_words
from tenonnx_cpu.int8.kernels.finishing import finish_sums, own_numbers
from tenonnx_cpu.jit.compiling import helper
from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.amx import (
    HAS_TILES,
    PANEL_ROW,
    TALL,
    TILE_ROW,
    begin_tiles,
    clear_tiles,
    height_of,
    store_tiles,
    sum_tiles,
)
from tenonnx_cpu.jit.vectors.dot8 import SUMS
from tenonnx_cpu.jit.vectors.lanes import LANES
from tenonnx_cpu.jit.vectors.shared import shared
from tenonnx_cpu.jit.vectors.tiles import side_by_side
from tenonnx_cpu.jit.vectors.vector import F32, I32, I64, Builder, Value
from tenonnx_cpu.matmul.kernels.tile import COLUMNS, VECTORS


@shared(
    "tenonnx_byte_tiles",
    [(vectors, tiles) for vectors in range(1, VECTORS + 1) for tiles in (1, 2)],
    last=(F32, F32, I32),
)
def multiply_byte_tiles(
    b: Builder, vectors: int, tiles: int, /, a: Value, a_next: Value, a_row: Value, offsets: Value,
    panel: Value, steps: Value, deep: Value, tall: Value, totals: Value, totals_next: Value,
    numbers: Value, c: Value, c_next: Value, c_row: Value, columns: Value, form: Value, low: Value,
    high: Value, zero: Value,
) -> None:  # fmt: skip
    """Compute one tile of ``A @ B`` or two, and what becomes of it, as ``multiply_bytes`` does.

    Args:
        a: Address that the offsets count from in the first tile's first row of A; ``a_next`` that
            in the second's, as ``totals_next`` and ``c_next`` are.
        steps: How many times ``deep`` fours.
        deep: As tiles have been begun with, as ``tall`` is.
    """
    if not HAS_TILES:
        return
    memory = b.alloca(ir.ArrayType(I32, tiles * TALL * COLUMNS))
    memory.align = 64
    first = b.ptrtoint(memory, I64)
    places = [first, b.add(first, I64(4 * TALL * COLUMNS))][:tiles]
    clear_tiles(b, vectors, places)
    sum_tiles(b, "bytes", vectors, [a, a_next][:tiles], a_row, offsets, panel, steps, deep)
    store_tiles(b, vectors, places, I64(PANEL_ROW), I64(TILE_ROW))
    for place, total, target in zip(places, (totals, totals_next), (c, c_next), strict=False):
        result = [target, c_row, columns, form, low, high, zero]
        _finish_tile(b, vectors, tall, place, total, numbers, result)


def _finish_tile(
    b: Builder,
    vectors: int,
    tall: Value,
    sums: Value,
    totals: Value,
    numbers: Value,
    result: Sequence[Value],
) -> None:
    """Write what becomes of a tile's sums, rows of ``PANEL_ROW`` bytes; see ``finish_sums``."""
    starts, zeros = (
        [own_numbers(b, numbers, place, n, SUMS) for n in range(vectors)] for place in (0, 1)
    )

    def finish(row: Value, carried: list[Value]) -> list[Value]:
        line = b.add(sums, b.mul(row, I64(PANEL_ROW)))
        total = v.splat(b, v.load(b, I32, b.add(totals, b.mul(row, I64(4))), 4), LANES)
        own = side_by_side(b, SUMS, line, vectors)
        whole = [
            b.add(x, b.sub(start, b.mul(zero, total)))
            for x, start, zero in zip(own, starts, zeros, strict=True)
        ]
        c, c_row, *rest = result
        finish_sums(b, whole, vectors, numbers, [b.add(c, b.mul(c_row, row)), c_row, *rest])
        return []

    v.loop(b, tall, [], finish)


words_of = helper(tile_words)


@helper
def begin_products(rows: Any, fours: Any) -> Any:
    """Begin tiles for rows of so many fours, if they are of use; return their rows and fours.

    No rows if they are not. ``end_tiles`` ends them.
    """
    deep = words_of(fours)
    tall = height_of(rows) if deep > 0 else 0
    if tall > 0:
        begin_tiles(tall, deep)
    return tall, deep


@helper
def multiply_in_tiles(
    lines: Any, width: Any, tiles: Any, seen: Any, offsets: Any, panel: Any, fours: Any,
    totals: Any, totals_line: Any, numbers: Any, made: Any, columns: Any, limits: Any,
) -> None:  # fmt: skip
    """Multiply some lines of places by a panel; tiles have been begun.

    A line's last tile ends where the line does: what it has in common with the one before is
    computed twice.

    Args:
        lines: How many.
        width: Places of each.
        tiles: What ``begin_products`` returned for their width.
        seen: Address that offsets count from at the first place; bytes from line to line and from
            place to place.
        offsets: As ``multiply_bytes`` takes them, as ``panel`` and ``numbers``.
        fours: How many.
        totals: Address of an int32 for every place.
        totals_line: Bytes from line to line; if 0, all lines have the same.
        made: The same of the results as ``seen``.
        columns: How many are written.
        limits: The form, the least and the greatest result, and the zero point.
    """
    tall, deep = tiles
    source, source_line, source_place = seen
    target, target_line, target_place = made
    form, low, high, zero = limits
    each = -(-width // tall)
    count = lines * each
    for tile in range(0, count, 2):
        other = min(tile + 1, count - 1)
        line, place = tile // each, min(tile % each * tall, width - tall)
        line_next, place_next = other // each, min(other % each * tall, width - tall)
        own, own_next = totals, totals
        if totals_line:
            own += line * totals_line + 4 * place
            own_next += line_next * totals_line + 4 * place_next
        multiply_byte_tiles(
            -(-columns // LANES), other - tile + 1,
            source + line * source_line + place * source_place,
            source + line_next * source_line + place_next * source_place, source_place,
            offsets, panel, fours // deep, deep, tall, own, own_next, numbers,
            target + line * target_line + place * target_place,
            target + line_next * target_line + place_next * target_place, target_place,
            columns, form, low, high, zero,
        )  # fmt: skip
