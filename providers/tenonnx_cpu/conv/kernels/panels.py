"""A strip of a convolution panel by panel: the first tile of channels copies a panel of B for all.

Where the second-level cache is small it has the weights then, and no rows of B, which lie far apart
in an image: each is in a page and a few sets of the first-level cache that others share.
"""

from __future__ import annotations

from typing import Any

from tenonnx_cpu.conv.kernels.edge import multiply_edge
from tenonnx_cpu.conv.kernels.finish import activate_lines
from tenonnx_cpu.conv.kernels.planes import pack_columns
from tenonnx_cpu.conv.kernels.result import ResultRows, right_of, target_of
from tenonnx_cpu.conv.kernels.tile import KEEP, LISTED, MAX_DOT_COLUMNS, PACED, multiply_taps
from tenonnx_cpu.jit.compiling import helper
from tenonnx_cpu.jit.vectors.lanes import LANES
from tenonnx_cpu.matmul.kernels.block import CACHE_WAY, copy_lines, split
from tenonnx_cpu.matmul.kernels.tile import COLUMNS, ROWS, VECTORS

# A pace at which nothing more is brought along.
STILL = 63


@helper
def multiply_panels(
    rows: Any, depth: Any, columns: Any, a: Any, b: Any, offsets: Any, c: Any, mode: Any, last: Any,
    result: Any, room: Any, soon: Any,
) -> None:  # fmt: skip
    """Do what ``tenonnx_cpu.conv.kernels.strip.multiply_strip`` does."""
    left, high = a, split(rows, ROWS, 1)
    if a.apart % CACHE_WAY == 0 and columns > COLUMNS:
        left = ResultRows(room.copy, 4 * depth + 64)
        copy_lines(a.start, a.apart, left.start, left.apart, rows, depth)
    dots = columns % COLUMNS if columns % COLUMNS <= MAX_DOT_COLUMNS else 0
    for column in range(0, columns - dots, COLUMNS):
        span, here = min(COLUMNS, columns - column), b + 4 * column
        if span <= LANES:
            for row in range(0, rows, high):
                target = target_of(row, c, mode, last, result)
                multiply_cells(
                    VECTORS // 2, min(high, rows - row), LISTED, row, left, here, offsets, depth,
                    target, column, room.panel, STILL, span if last else COLUMNS,
                )  # fmt: skip
            continue
        follows = here + 4 * COLUMNS if column + COLUMNS < columns - dots else soon.start
        multiply_panel(
            rows, high, span if last else COLUMNS, depth, left, here, offsets, c, mode, last,
            result, room.panel, follows, column,
        )  # fmt: skip
    if dots:
        column, pitch = columns - dots, 4 * depth + 64
        pack_columns(b + 4 * column, offsets, depth, dots, room.edge, pitch)
        for row in range(0, rows, high):
            target = target_of(row, c, mode, last, result)
            own = ResultRows(left.start + row * left.apart, left.apart)
            count = min(high, rows - row)
            multiply_edge(count, dots, own, ResultRows(room.edge, pitch), depth, target, column)
    if last:
        start = result.y + 4 * result.place
        activate_lines(start, 4 * result.apart, rows, columns, result.finish)


@helper
def multiply_panel(
    rows: Any, high: Any, span: Any, depth: Any, left: Any, b: Any, offsets: Any, c: Any, mode: Any,
    last: Any, result: Any, panel: Any, follows: Any, column: Any,
) -> None:  # fmt: skip
    """Multiply rows of A, ``high`` at a time, by a panel, and bring the one that follows along.

    Args are those of ``multiply_strip``, and:
        span: Columns that are written.
        b: Address of the panel's first column that the offsets count from.
        panel: Address of a copy.
        follows: Address of the first column of the panel that comes next; 0 if none does.
        column: Of the panel in the strip.
    """
    tiles, pace = -(-rows // high) - 1, 0
    while 2 << pace <= tiles:
        pace += 1
    lines = -(-depth // (1 << pace))
    multiply_cells(
        VECTORS, high, KEEP, 0, left, b, offsets, depth, target_of(0, c, mode, last, result),
        column, panel, 0, span,
    )  # fmt: skip
    for tile in range(tiles):
        row, told = (tile + 1) * high, tile * lines
        more = follows != 0 and told < depth
        multiply_cells(
            VECTORS, min(high, rows - row), PACED, row, left, panel,
            offsets + (8 * told if more else 0), depth, target_of(row, c, mode, last, result),
            column, follows if more else panel, pace if more else STILL, span,
        )  # fmt: skip


@helper
def multiply_cells(
    vectors: Any, count: Any, form: Any, row: Any, left: Any, right: Any, offsets: Any, depth: Any,
    target: Any, column: Any, ahead: Any, ahead_row: Any, span: Any,
) -> None:  # fmt: skip
    """Compute a tile, from a row of A and a column of the strip on; see ``multiply_taps``."""
    multiply_taps(
        vectors, count, form, left.start + row * left.apart, left.apart, right, offsets, depth,
        right_of(target.before, column), target.before.apart,
        right_of(target.rows, column), target.rows.apart,
        right_of(target.added, column), target.added.apart, target.scale, target.shift,
        ahead, ahead_row, span, target.low, target.high,
    )  # fmt: skip
