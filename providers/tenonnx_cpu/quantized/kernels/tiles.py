"""Products of bytes by quantized matrices in AMX's tiles: the same as ``multiply_codes``."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from tenonnx_cpu.jit.compiling import helper
from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.amx import (
    HAS_TILES,
    PANEL_ROW,
    TALL,
    TILE_ROW,
    clear_tiles,
    store_tiles,
    sum_tiles,
)
from tenonnx_cpu.jit.vectors.dot8 import SUMS
from tenonnx_cpu.jit.vectors.lanes import KIND, LANES
from tenonnx_cpu.jit.vectors.shared import shared
from tenonnx_cpu.jit.vectors.tiles import number, side_by_side
from tenonnx_cpu.jit.vectors.vector import F32, I32, I64, Builder, Value
from tenonnx_cpu.matmul.kernels.tile import ADD, COLUMNS, VECTORS

# Words of a group at most: groups have 128 bytes or less.
MOST_WORDS = 32


def _room(b: Builder, element: ir.Type, count: int) -> Value:
    memory = b.alloca(ir.ArrayType(element, count))
    memory.align = 64
    return b.ptrtoint(memory, I64)


@shared("tenonnx_q_tiles", [(tiles,) for tiles in (1, 2)])
def multiply_code_tiles(
    b: Builder, tiles: int, /, x: Value, x_next: Value, x_row: Value, x_scales: Value,
    scales_next: Value, scale_row: Value, codes: Value, scales: Value, starts: Value, count: Value,
    steps: Value, deep: Value, tall: Value, skip: Value, c: Value, c_next: Value, c_row: Value,
    mode: Value,
) -> None:  # fmt: skip
    """Compute ``C = X @ W`` or ``C += X @ W`` for one or two tiles of rows and ``COLUMNS``.

    Args:
        x: As ``multiply_codes`` takes it, as are those not listed here; ``x_next`` is the second
            tile's, as ``scales_next`` and ``c_next`` are.
        steps: How many times ``deep`` fours a group has.
        deep: As tiles have been begun with, as ``tall`` is.
        skip: Rows of the last tile that are computed elsewhere, and not written.
    """
    if not HAS_TILES:
        return
    rows = tiles * TALL
    sums, totals = _room(b, I32, rows * COLUMNS), _room(b, F32, rows * COLUMNS)
    places = [b.add(sums, I64(4 * TALL * COLUMNS * n)) for n in range(tiles)]
    offsets = _room(b, I64, MOST_WORDS)
    v.store(b, v.vector(I64, MOST_WORDS)([4 * n for n in range(MOST_WORDS)]), offsets, 64)
    skips = [I64(0), skip] if tiles == 2 else [skip]
    lefts, own_scales = [x, x_next][:tiles], [x_scales, scales_next][:tiles]
    size = b.mul(b.mul(steps, deep), I64(4))

    def each_row(n: int, write: Any) -> None:
        """Write what becomes of the rows of a tile that are written."""

        def step(index: Value, carried: list[Value]) -> list[Value]:
            write(n, b.add(index, skips[n]))
            return []

        v.loop(b, b.sub(tall, skips[n]), [], step)

    def line(start: Value, n: int, row: Value) -> Value:
        return b.add(start, b.mul(b.add(row, I64(TALL * n)), I64(PANEL_ROW)))

    def clear(n: int, row: Value) -> None:
        for vector in range(VECTORS):
            place = b.add(line(totals, n, row), I64(4 * LANES * vector))
            v.store(b, v.constant(KIND, 0.0), place, 4)

    def group(index: Value, carried: list[Value]) -> list[Value]:
        panel = b.add(codes, b.mul(index, b.mul(size, I64(COLUMNS))))
        now = [b.add(left, b.mul(index, size)) for left in lefts]
        clear_tiles(b, VECTORS, places)
        sum_tiles(b, "bytes", VECTORS, now, x_row, offsets, panel, steps, deep)
        store_tiles(b, VECTORS, places, I64(PANEL_ROW), I64(TILE_ROW))
        at = b.mul(index, I64(4 * COLUMNS))
        first = side_by_side(b, SUMS, b.add(starts, at), VECTORS)
        of_columns = side_by_side(b, KIND, b.add(scales, at), VECTORS)

        def scale(n: int, row: Value) -> None:
            start = b.add(own_scales[n], b.mul(row, scale_row))
            of_row = number(b, b.add(start, b.mul(index, I64(4))))
            place = line(totals, n, row)
            before = side_by_side(b, KIND, place, VECTORS)
            for m, total in enumerate(side_by_side(b, SUMS, line(sums, n, row), VECTORS)):
                real = b.sitofp(b.add(total, first[m]), KIND)
                made = v.fma(b, real, b.fmul(of_columns[m], of_row), before[m])
                v.store(b, made, b.add(place, I64(4 * LANES * m)), 4)

        for n in range(tiles):
            each_row(n, scale)
        return []

    def finish(n: int, row: Value) -> None:
        target = b.add((c, c_next)[n], b.mul(row, c_row))
        for m, total in enumerate(side_by_side(b, KIND, line(totals, n, row), VECTORS)):
            place = b.add(target, I64(4 * LANES * m))
            old = b.select(adds, v.load(b, KIND, place, 4), v.constant(KIND, 0.0))
            v.store(b, b.select(adds, b.fadd(old, total), total), place, 4)

    adds = b.icmp_signed("==", mode, I64(ADD))
    for n in range(tiles):
        each_row(n, clear)
    v.loop(b, count, [], group)
    for n in range(tiles):
        each_row(n, finish)


@helper
def multiply_codes_in_tiles(
    rows: Any, tiles: Any, x: Any, x_row: Any, x_scales: Any, scale_row: Any, codes: Any,
    scales: Any, starts: Any, count: Any, fours: Any, c: Any, c_row: Any, mode: Any,
) -> None:  # fmt: skip
    """Multiply some rows by a panel; see ``multiply_codes``. Tiles have been begun."""
    tall, deep = tiles
    for row in range(0, rows, 2 * tall):
        both = min(2, -(-(rows - row) // tall))
        own = min(row, rows - tall)
        other = min(row + tall, rows - tall)
        skip = row + tall - other if both == 2 else row - own
        multiply_code_tiles(
            both, x + own * x_row, x + other * x_row, x_row, x_scales + own * scale_row,
            x_scales + other * scale_row, scale_row, codes, scales, starts, count, fours // deep,
            deep, tall, skip, c + own * c_row, c + other * c_row, c_row, mode,
        )  # fmt: skip
