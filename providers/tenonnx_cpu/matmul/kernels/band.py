"""Products of a few rows of tiles: B is read in place, a panel ahead of its use."""

from __future__ import annotations

from typing import Any

from tenonnx_cpu.jit.compiling import helper
from tenonnx_cpu.matmul.kernels import COPY, DEPTH, EDGE, SUMS_AT_MOST
from tenonnx_cpu.matmul.kernels.block import PANEL_ROW_BYTES, copy_lines, multiply_piece, split
from tenonnx_cpu.matmul.kernels.pack import make_pack
from tenonnx_cpu.matmul.kernels.tile import ADD, BY_PANELS, CACHE_LINE, COLUMNS, ROWS, ZERO

# Rows up to which a panel is not worth packing.
MAX_BAND_ROWS = 4 * ROWS

pack = make_pack("f32")


@helper
def fits_band(rows: Any, a: Any, b: Any) -> Any:
    """Return whether A has few rows, and columns of A and of B are adjacent."""
    return not BY_PANELS and rows <= MAX_BAND_ROWS and a.strides[1] == 4 and b.strides[1] == 4


@helper
def multiply_band(
    rows: Any, columns: Any, depth: Any,
    a: Any, a_row: Any, b: Any, b_row: Any, b_column: Any, c: Any, c_row: Any, memory: Any,
) -> None:  # fmt: skip
    """Compute ``C = A @ B`` for a task's columns.

    Args:
        rows: Of A and C, ``MAX_BAND_ROWS`` at most.
        columns: Of B and C.
        depth: Columns of A, rows of B.
        a: Address of A, whose columns are adjacent.
        a_row: Bytes from row to row of A.
        b: Address of B.
        b_row: Bytes from row to row of B.
        b_column: Bytes from column to column of B.
        c: Address of C, whose columns are adjacent.
        c_row: Bytes from row to row of C.
        memory: Address of ``WORKSPACE`` floats.
    """
    most = (SUMS_AT_MOST // rows - 16) // DEPTH * DEPTH
    for first in range(0, depth, most):
        some = min(most, depth - first)
        # A power of two from row to row would put all of them into one set of the cache.
        copy_lines(a + 4 * first, a_row, memory + 4 * COPY, 4 * (some + 16), rows, some)
        add_band(
            rows, columns, some, b + first * b_row, b_row, b_column, c, c_row, memory,
            ADD if first else ZERO,
        )  # fmt: skip


@helper
def add_band(
    rows: Any, columns: Any, depth: Any,
    b: Any, b_row: Any, b_column: Any, c: Any, c_row: Any, memory: Any, mode: Any,
) -> None:  # fmt: skip
    """Do what ``multiply_band`` does, with a copy of A; ``mode`` is ``ZERO`` or ``ADD``."""
    edge, copy, copy_row = memory + 4 * EDGE, memory + 4 * COPY, 4 * (depth + 16)
    high, deep = split(rows, ROWS, 1), split(depth, DEPTH, 1)
    for column in range(0, columns, COLUMNS):
        span = min(COLUMNS, columns - column)
        for k in range(0, depth, deep):
            kk = min(deep, depth - k)
            panel, panel_row = b + k * b_row + column * b_column, b_row
            ahead = panel + kk * b_row
            if k + kk >= depth:
                ahead = b + (column + COLUMNS) * b_column
            # The line that a panel begins in is that which the panel before ended in.
            ahead = (ahead + CACHE_LINE - 1) // CACHE_LINE * CACHE_LINE
            if span < COLUMNS or b_column != 4:
                pack(panel, b_row, b_column, kk, span, memory)
                panel, panel_row = memory, PANEL_ROW_BYTES
            for row in range(0, rows, high):
                soon, step = ahead, b_row
                if row or (column + COLUMNS >= columns and k + kk >= depth):
                    soon, step = copy, 0
                multiply_piece(
                    min(high, rows - row), span, kk, copy + row * copy_row + 4 * k, copy_row, 4,
                    panel, panel_row, c + row * c_row + 4 * column, c_row, ADD if k else mode,
                    edge, soon, step,
                )  # fmt: skip
