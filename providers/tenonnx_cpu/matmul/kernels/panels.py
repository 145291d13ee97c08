"""Products of blocks whose B is packed in passing: a panel at a time, by its first tile of rows."""

from __future__ import annotations

from typing import Any

from tenonnx_cpu.jit.compiling import helper
from tenonnx_cpu.matmul.kernels import DEPTH, EDGE
from tenonnx_cpu.matmul.kernels.block import (
    CACHE_WAY,
    PANEL_ROW_BYTES,
    copy_lines,
    multiply_piece,
    split,
)
from tenonnx_cpu.matmul.kernels.pack import make_pack
from tenonnx_cpu.matmul.kernels.tile import (
    CACHE_LINE,
    COLUMNS,
    KEEP,
    PACED,
    ROWS,
    WIDE,
    multiply_tile,
)

pack = make_pack("f32")

# Floats of a copy of A, behind a panel.
COPY_FLOATS = EDGE - COLUMNS * DEPTH


@helper
def multiply_panels(
    rows: Any, columns: Any, depth: Any,
    a: Any, a_row: Any, a_column: Any, b: Any, b_row: Any, b_column: Any,
    c: Any, c_row: Any, mode: Any, ahead: Any, memory: Any,
) -> None:  # fmt: skip
    """Compute ``C = A @ B`` or ``C += A @ B``.

    Args:
        rows: Of A and C.
        columns: Of B and C.
        depth: Columns of A, rows of B, ``DEPTH`` at most.
        a: Address of A.
        a_row: Bytes from row to row of A.
        a_column: Bytes from column to column of A.
        b: Address of B.
        b_row: Bytes from row to row of B.
        b_column: Bytes from column to column of B.
        c: Address of C, whose columns are adjacent.
        c_row: Bytes from row to row of C.
        mode: ``ZERO`` or ``ADD``.
        ahead: Address of the block of B that comes next; 0 if unknown. It is brought along if
            columns are adjacent.
        memory: Address of ``WORKSPACE`` floats.
    """
    copy, copy_row = memory + PANEL_ROW_BYTES * DEPTH, 4 * (depth + 16)
    many = split(rows, max(ROWS, 4 * COPY_FLOATS // copy_row), ROWS)
    for first in range(0, rows, many):
        some = min(many, rows - first)
        left, left_row = a + first * a_row, a_row
        if a_row % CACHE_WAY == 0 and a_column == 4 and columns > COLUMNS:
            copy_lines(left, left_row, copy, copy_row, some, depth)
            left, left_row = copy, copy_row
        for column in range(0, columns, COLUMNS):
            follows = b + b_column * (column + COLUMNS)
            if column + COLUMNS >= columns:
                follows = ahead if first + some >= rows else b
            # The line that a panel begins in is that which the panel before ended in.
            follows = (follows + CACHE_LINE - 1) // CACHE_LINE * CACHE_LINE
            multiply_panel(
                some, min(COLUMNS, columns - column), depth, left, left_row, a_column,
                b + b_column * column, b_row, b_column, c + first * c_row + 4 * column, c_row, mode,
                follows, memory,
            )  # fmt: skip


@helper
def multiply_panel(
    rows: Any, span: Any, depth: Any,
    a: Any, a_row: Any, a_column: Any, b: Any, b_row: Any, b_column: Any,
    c: Any, c_row: Any, mode: Any, ahead: Any, memory: Any,
) -> None:  # fmt: skip
    """Do the same for ``COLUMNS`` or less; all but the first tile bring the next panel along."""
    edge = memory + 4 * EDGE
    high = split(rows, ROWS, 1)
    if span < COLUMNS or b_column != 4:
        pack(b, b_row, b_column, depth, span, memory)
        for row in range(0, rows, high):
            multiply_piece(
                min(high, rows - row), span, depth, a + row * a_row, a_row, a_column, memory,
                PANEL_ROW_BYTES, c + row * c_row, c_row, mode, edge, a, 0,
            )  # fmt: skip
        return
    multiply_tile(
        min(high, rows) + (KEEP if rows > high else WIDE), a, a_row, a_column, b, b_row, depth,
        c, c_row, mode, a, 0, memory,
    )  # fmt: skip
    tiles, pace = -(-rows // high) - 1, 0
    while 2 << pace <= tiles:
        pace += 1
    lines = -(-depth // (1 << pace))
    for tile in range(tiles):
        row = (tile + 1) * high
        soon, step = a, 0
        if ahead and tile * lines < depth:
            soon, step = ahead + tile * lines * b_row, b_row
        multiply_tile(
            min(high, rows - row) + PACED, a + row * a_row, a_row, a_column, memory,
            PANEL_ROW_BYTES, depth, c + row * c_row, c_row, mode, soon, step, pace,
        )  # fmt: skip
