"""Products of blocks that fit a cache, tile by tile; other kernels are made of them, too."""

from __future__ import annotations

from typing import Any

from tenonnx_cpu.jit.compiling import helper
from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.lanes import KIND, LANES
from tenonnx_cpu.jit.vectors.memory import load_float, store_float
from tenonnx_cpu.jit.vectors.shared import shared
from tenonnx_cpu.jit.vectors.vector import F32, I64, Builder, Value
from tenonnx_cpu.matmul.kernels import COPY, COPY_ROW, EDGE
from tenonnx_cpu.matmul.kernels.strip import STRIP, multiply_strip
from tenonnx_cpu.matmul.kernels.tile import (
    ADD,
    CACHE_LINE,
    COLUMNS,
    KEEP,
    NARROW,
    PANEL_ROW_LINES,
    ROWS,
    WIDE,
    ZERO,
    multiply_tile,
)

# Bytes of a row of a packed panel.
PANEL_ROW_BYTES = 4 * COLUMNS

# Bytes after which addresses come to the same set of the first-level cache again.
CACHE_WAY = 4096


@helper
def split(length: Any, piece: Any, unit: Any) -> Any:
    """Return the size of about equal pieces, none over ``piece``, in whole units but the last."""
    count = -(-length // piece)
    return -(-length // (count * unit)) * unit


@helper
def multiply_block(
    rows: Any, columns: Any, depth: Any,
    a: Any, a_row: Any, a_column: Any,
    b: Any, b_row: Any, b_panel: Any,
    c: Any, c_row: Any, mode: Any, edge: Any,
) -> None:  # fmt: skip
    """Multiply some rows of A by panels of B.

    Args:
        rows: Of A and C.
        columns: Of C. The last panel of B has ``COLUMNS`` all the same.
        depth: Columns of A, rows of B.
        a: Address of A.
        a_row: Bytes from row to row of A.
        a_column: Bytes from column to column of A.
        b: Address of the first panel.
        b_row: Bytes from row to row of a panel.
        b_panel: Bytes from panel to panel.
        c: Address of C.
        c_row: Bytes from row to row of C.
        mode: ``ZERO`` or ``ADD``.
        edge: Address of ``ROWS * COLUMNS`` floats to work in.
    """
    first = 0
    if rows == 1:
        first = columns // (STRIP * COLUMNS) * STRIP * COLUMNS
        for column in range(0, first, STRIP * COLUMNS):
            panel = b + column // COLUMNS * b_panel
            multiply_strip(a, a_column, panel, b_row, b_panel, depth, c + 4 * column, mode)
    high = split(rows, ROWS, 1)
    for row in range(0, rows, high):
        count = min(high, rows - row)
        for column in range(first, columns, COLUMNS):
            multiply_piece(
                count, min(COLUMNS, columns - column), depth, a + row * a_row, a_row, a_column,
                b + column // COLUMNS * b_panel, b_row, c + row * c_row + 4 * column, c_row, mode,
                edge, a, 0,
            )  # fmt: skip


@helper
def multiply_piece(
    count: Any, span: Any, depth: Any,
    a: Any, a_row: Any, a_column: Any, b: Any, b_row: Any,
    c: Any, c_row: Any, mode: Any, edge: Any, ahead: Any, ahead_step: Any,
) -> None:  # fmt: skip
    """Compute a tile of ``count`` rows and ``span`` columns, which may be less than a panel's."""
    if span in (COLUMNS, LANES):
        form = WIDE if span == COLUMNS else NARROW
        multiply_tile(
            count + form, a, a_row, a_column, b, b_row, depth, c, c_row, mode,
            ahead, ahead_step, 0,
        )  # fmt: skip
        return
    form = NARROW if span <= LANES else WIDE
    multiply_tile(
        count + form,
        a,
        a_row,
        a_column,
        b,
        b_row,
        depth,
        edge,
        PANEL_ROW_BYTES,
        ZERO,
        ahead,
        ahead_step,
        0,
    )
    for i in range(count):
        for j in range(span):
            x = load_float(edge + i * PANEL_ROW_BYTES + 4 * j)
            target = c + i * c_row + 4 * j
            store_float(x + load_float(target) if mode == ADD else x, target)


@helper
def multiply_ahead(
    rows: Any, columns: Any, depth: Any,
    a: Any, a_row: Any, a_column: Any,
    packed: Any, b_row: Any, fresh: Any,
    c: Any, c_row: Any, mode: Any,
    ahead: Any, ahead_step: Any, ahead_lines: Any,
) -> None:  # fmt: skip
    """Do what ``multiply_block`` does with adjacent panels, preparing what comes after it.

    A tile's rows of A are copied if they would share sets of the cache.

    Args:
        rows: See there, as for what is not listed here.
        packed: Address of the worker's memory, which begins with the panels.
        b_row: If ``fresh``, bytes from row to row of B as it lies in memory.
        fresh: Address of the panels in B: they are not packed yet, and are in passing. 0 if
            they are.
        ahead: Address of the block of B that comes next; 0 if unknown.
        ahead_step: Bytes from one run of cache lines of it to the next; there are ``depth``.
        ahead_lines: Cache lines in each.
    """
    high = split(rows, ROWS, 1)
    panels = -(-columns // COLUMNS)
    runs = -(-ahead_lines // PANEL_ROW_LINES)
    every = max(1, panels * -(-rows // high) // max(1, runs))
    shared = a_row % CACHE_WAY == 0 and a_column == 4 and panels > 1
    edge, copy = packed + 4 * EDGE, packed + 4 * COPY
    turn = 0
    for row in range(0, rows, high):
        count = min(high, rows - row)
        left, left_row = a + row * a_row, a_row
        if shared:
            left, left_row = copy, 4 * COPY_ROW
            copy_lines(a + row * a_row, a_row, left, left_row, count, depth)
        for panel in range(panels):
            soon, step = left, 0
            if ahead and turn % every == 0 and turn // every < runs:
                soon, step = ahead + PANEL_ROW_LINES * CACHE_LINE * (turn // every), ahead_step
            turn += 1
            place = c + row * c_row + PANEL_ROW_BYTES * panel
            own = packed + panel * PANEL_ROW_BYTES * depth
            span = min(COLUMNS, columns - panel * COLUMNS)
            if fresh and row == 0 and span == COLUMNS:
                multiply_tile(
                    count + KEEP, left, left_row, a_column, fresh + PANEL_ROW_BYTES * panel, b_row,
                    depth, place, c_row, mode, soon, step, own,
                )  # fmt: skip
            else:
                multiply_piece(
                    count, span, depth, left, left_row, a_column, own, PANEL_ROW_BYTES,
                    place, c_row, mode, edge, soon, step,
                )  # fmt: skip


@shared("tenonnx_copy_lines")
def copy_lines(
    b: Builder, /, source: Value, source_row: Value, target: Value, target_row: Value, rows: Value,
    columns: Value,
) -> None:  # fmt: skip
    """Copy rows of adjacent floats."""
    whole = b.sdiv(columns, I64(LANES))
    done = b.mul(whole, I64(LANES))

    def row(index: Value, carried: list[Value]) -> list[Value]:
        start, end = carried
        for kind, width, count in ((KIND, 4 * LANES, whole), (F32, 4, b.sub(columns, done))):

            def copy(position: Value, carried: list[Value]) -> list[Value]:
                v.store(b, v.load(b, kind, carried[0], 4), carried[1], 4)  # noqa: B023 - run at once
                return [b.add(place, I64(width)) for place in carried]  # noqa: B023

            start, end = v.loop(b, count, [start, end], copy)
        return [b.add(carried[0], source_row), b.add(carried[1], target_row)]

    v.loop(b, rows, [source, target], row)
