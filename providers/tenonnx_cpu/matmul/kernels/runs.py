"""Products of few tiles of rows: B is read in place, in long runs, ahead of its use.

A panel's rows lie far apart, where hardware brings nothing along. Some whole rows of B at a time
are brought into the second-level cache instead, and sums wait in the result for the next ones.
"""

from __future__ import annotations

from typing import Any

from tenonnx_cpu.jit.code.cpu import cpu
from tenonnx_cpu.jit.compiling import helper
from tenonnx_cpu.matmul.kernels import DEPTH, EDGE
from tenonnx_cpu.matmul.kernels.block import (
    CACHE_WAY,
    PANEL_ROW_BYTES,
    copy_lines,
    multiply_piece,
    split,
)
from tenonnx_cpu.matmul.kernels.pack import copy_some
from tenonnx_cpu.matmul.kernels.tile import (
    ADD,
    BY_PANELS,
    CACHE_LINE,
    COLUMNS,
    PACED,
    ROWS,
    ZERO,
    multiply_tile,
)

# Whether rows of B are read in long runs. With AVX-512 that takes .7 of the time of panels on a
# Sapphire Rapids, whose second-level cache has 2 MiB, and 1.1 to 1.3 on a Zen 4, with 1 MiB.
HAS_RUNS = BY_PANELS or cpu().has_wide_cache

# Rows up to which a panel is not worth packing.
MAX_RUN_ROWS = (3 if BY_PANELS else 4) * ROWS

# Elements of B that are read at a time: two such fit the second-level cache, of which processors
# with AVX2 may have half a megabyte.
CHUNK = 3 << 14 if BY_PANELS else 1 << 16

# Columns at a time, of which a chunk has rows enough that sums are not read too often. AVX2 has no
# more: their packed panels are as fast.
MAX_RUN_COLUMNS = 1024 if BY_PANELS else 2048


@helper
def fits_runs(rows: Any, columns: Any, a: Any, b: Any) -> Any:
    """Return whether A has few rows, and rows of B can be read in place by tiles.

    These begin a cache line alike. With AVX2, where a tile has fewer rows, they must not all come
    to one set of the cache.
    """
    if not HAS_RUNS or rows > MAX_RUN_ROWS or (BY_PANELS and columns > MAX_RUN_COLUMNS):
        return False
    if BY_PANELS and b.strides[0] % CACHE_WAY == 0:
        return False
    return a.strides[1] == 4 and b.strides[1] == 4 and b.strides[0] % CACHE_LINE == 0


@helper
def multiply_runs(
    rows: Any, columns: Any, depth: Any,
    a: Any, a_row: Any, b: Any, b_row: Any, c: Any, c_row: Any, memory: Any,
) -> None:  # fmt: skip
    """Compute ``C = A @ B`` for a task's columns.

    Args:
        rows: Of A and C, ``MAX_RUN_ROWS`` at most.
        columns: Of B and C.
        depth: Columns of A, rows of B.
        a: Address of A, whose columns are adjacent.
        a_row: Bytes from row to row of A.
        b: Address of B, whose columns are adjacent.
        b_row: Bytes from row to row of B.
        c: Address of C, whose columns are adjacent.
        c_row: Bytes from row to row of C.
        memory: Address of ``WORKSPACE`` floats.
    """
    width = split(columns, MAX_RUN_COLUMNS, COLUMNS)
    for column in range(0, columns, width):
        some = min(width, columns - column)
        right = column + width < columns
        deep = split(depth, min(DEPTH, CHUNK // some), 1)
        copy, copy_row = memory + PANEL_ROW_BYTES * DEPTH, 4 * (deep + 16)
        for k in range(0, depth, deep):
            kk = min(deep, depth - k)
            copy_lines(a + 4 * k, a_row, copy, copy_row, rows, kk)
            source = b + k * b_row + 4 * column
            ahead = source + kk * b_row
            if k + kk >= depth:
                ahead = b + 4 * (column + width) if right else 0
            multiply_run(
                rows, some, kk, copy, copy_row, source, b_row, c + 4 * column, c_row,
                ADD if k else ZERO, ahead, memory,
            )  # fmt: skip


@helper
def multiply_run(
    rows: Any, columns: Any, depth: Any,
    a: Any, a_row: Any, b: Any, b_row: Any, c: Any, c_row: Any, mode: Any,
    ahead: Any, memory: Any,
) -> None:  # fmt: skip
    """Do the same for some rows of B, and bring those ``ahead`` along, line by line."""
    edge, high, pace = memory + 4 * EDGE, split(rows, ROWS, 1), 0
    while (2 << pace) * high <= rows + high - 1:
        pace += 1
    share, line, run = -(-depth // (1 << pace)), 0, -(-4 * columns // PANEL_ROW_BYTES)
    column = 0
    while column < columns:
        panel = b + 4 * column
        span = min(COLUMNS - panel % CACHE_LINE // 4, columns - column)
        if span < COLUMNS:
            copy_some(panel, b_row, depth, span, memory)
        for row in range(0, rows, high):
            count, left, place = (
                min(high, rows - row),
                a + row * a_row,
                c + row * c_row + 4 * column,
            )
            soon, step = left, 0
            if span < COLUMNS:
                multiply_piece(
                    count, span, depth, left, a_row, 4, memory, PANEL_ROW_BYTES, place, c_row, mode,
                    edge, soon, step,
                )  # fmt: skip
                continue
            if ahead and line < run * depth:
                soon = ahead + line // run * b_row + line % run * PANEL_ROW_BYTES
                step = PANEL_ROW_BYTES
                line += share
            multiply_tile(
                count + PACED, left, a_row, 4, panel, b_row, depth, place, c_row, mode,
                soon, step, pace,
            )  # fmt: skip
        column += span
