"""Products by a matrix of bfloat16 in AMX's tiles or in registers, summed in float32.

Rows of A are rounded once, and stay in the second-level cache while panels of B come by.
"""

from __future__ import annotations

from typing import Any

from tenonnx_cpu.jit.compiling import Contract, In, Out, f32, helper, i64, kernel, size, u8, u16
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors.amx import (
    AHEAD,
    CACHE_LINE,
    HAS_TILES,
    PANEL_ROW,
    TALL,
    TILE_ROW,
    begin_tiles,
    clear_tiles,
    end_tiles,
    load_tiles,
    store_tiles,
    sum_tiles,
)
from tenonnx_cpu.jit.vectors.bfloat16 import narrow_rows
from tenonnx_cpu.jit.vectors.dot16 import (
    HAS_PAIRS,
    PAIRS_PER_LINE,
    TALLEST_PAIRS,
    store_pairs,
    sum_pairs,
)
from tenonnx_cpu.jit.vectors.lanes import LANES
from tenonnx_cpu.jit.vectors.shared import shared
from tenonnx_cpu.jit.vectors.vector import I64, Builder, Value
from tenonnx_cpu.matmul.kernels import TILE_STEP
from tenonnx_cpu.matmul.kernels.block import copy_lines, split
from tenonnx_cpu.matmul.kernels.epilogue import EXTRAS, finish_rows
from tenonnx_cpu.matmul.kernels.gemm import MAX_TASK_PRODUCTS
from tenonnx_cpu.matmul.kernels.tile import ADD, COLUMNS, VECTORS, ZERO

# Words of a row of a tile: pairs of bfloat16.
WORDS = TILE_STEP // 2

# Rows of a tile at most.
TALLEST = TALL if HAS_TILES else TALLEST_PAIRS

# Of functions that sum in registers.
KEYS = [(vectors, rows) for vectors in range(1, VECTORS + 1) for rows in range(1, TALLEST + 1)]

# Bytes of rows of A, which a task reads for every panel, and of their results before they are
# finished: half of the second-level cache.
HELD = 1 << 20

# Columns that are multiplied before they are finished, and tasks of a thread.
WIDEST, TASKS_PER_THREAD = 256, 4


@shared(
    "tenonnx_narrow_tiles",
    [(vectors, tiles) for vectors in range(1, VECTORS + 1) for tiles in (1, 2)],
)
def multiply_narrow_tiles(
    b: Builder, vectors: int, tiles: int, /, a: Value, a_next: Value, a_row: Value, offsets: Value,
    panel: Value, steps: Value, deep: Value, c: Value, c_next: Value, c_row: Value, c_vector: Value,
    mode: Value, ahead: Value,
) -> None:  # fmt: skip
    """Compute one tile of ``A @ B`` or two, below one another, of so many vectors of columns.

    Args:
        a: Address that the offsets count from in the first tile's first row; ``a_next`` that in
            the second's, as ``c_next`` is. ``a_row`` is bytes from row to row, as ``c_row`` is.
        offsets: As ``sum_tiles`` takes them, as ``panel`` is.
        steps: How many times ``deep`` pairs, as tiles have been begun with.
        c: Address of the result, float32; ``c_vector`` is bytes from vector to vector.
        mode: ``ZERO`` or ``ADD``.
        ahead: Address of what comes next, or 0; ``AHEAD`` lines of it are brought along per step.
    """
    if not HAS_TILES:
        return
    lefts, places = [a, a_next][:tiles], [c, c_next][:tiles]
    with b.if_else(b.icmp_signed("==", mode, I64(ADD))) as (add, overwrite):
        with add:
            load_tiles(b, vectors, places, c_row, c_vector)
        with overwrite:
            clear_tiles(b, vectors, places)
    sum_tiles(b, "bf16", vectors, lefts, a_row, offsets, panel, steps, deep, ahead)
    store_tiles(b, vectors, places, c_row, c_vector)


@shared("tenonnx_narrow_rows", KEYS if HAS_PAIRS else KEYS[:1])
def multiply_narrow_rows(
    b: Builder, vectors: int, rows: int, /, a: Value, a_row: Value, offsets: Value, panel: Value,
    pairs: Value, c: Value, c_row: Value, c_vector: Value, mode: Value, ahead: Value,
) -> None:  # fmt: skip
    """Compute some rows of ``A @ B``, of so many vectors of columns, with sums in registers.

    The arguments are those of ``multiply_narrow_tiles``, but ``pairs``: how many there are.
    """
    if not HAS_PAIRS:
        return
    sums = sum_pairs(b, vectors, rows, a, a_row, offsets, panel, pairs, ahead)
    store_pairs(b, vectors, sums, c, c_row, c_vector, b.icmp_signed("==", mode, I64(ADD)))


@helper
def multiply_narrow_panel(
    rows: Any, tall: Any, a: Any, a_row: Any, offsets: Any, panel: Any, steps: Any, c: Any,
    c_row: Any, columns: Any, mode: Any, edge: Any,
) -> None:  # fmt: skip
    """Multiply rows of bfloat16 by a panel.

    Args:
        rows: How many.
        tall: Rows of a tile, as tiles have been begun with, ``rows`` at most.
        a: Address of the rows.
        a_row: Bytes from row to row.
        offsets: Address of an int64 for every pair of a row: bytes to it.
        panel: Address of the panel.
        steps: How many times ``WORDS`` pairs, as tiles have been begun with.
        c: Address of the result, float32.
        c_row: Bytes from row to row.
        columns: How many are written; whole vectors if they are added.
        mode: ``ZERO``, or ``ADD`` if no tile has rows in common with another.
        edge: Address of two tiles of rows of ``PANEL_ROW``.
    """
    if HAS_TILES:
        multiply_panel_in_tiles(
            rows, tall, a, a_row, offsets, panel, steps, c, c_row, columns, mode, edge
        )
    else:
        multiply_panel_in_registers(
            rows, a, a_row, offsets, panel, steps * WORDS, c, c_row, columns, mode, edge
        )


@helper
def multiply_panel_in_tiles(
    rows: Any, tall: Any, a: Any, a_row: Any, offsets: Any, panel: Any, steps: Any, c: Any,
    c_row: Any, columns: Any, mode: Any, edge: Any,
) -> None:  # fmt: skip
    """Multiply rows by a panel in AMX's tiles; see ``multiply_narrow_panel``.

    The last tile ends where the rows do: what it has in common with the one before is computed
    twice.
    """
    vectors = -(-columns // LANES)
    ahead = panel + steps * WORDS * PANEL_ROW
    ahead_step = steps * (AHEAD * CACHE_LINE)
    for row in range(0, rows, 2 * tall):
        one, two = min(row, rows - tall), min(row + tall, rows - tall)
        both = 2 if row + tall < rows else 1
        target, target_next, target_row = c + one * c_row, c + two * c_row, c_row
        if columns % LANES:
            target, target_next, target_row = edge, edge + TALLEST * PANEL_ROW, PANEL_ROW
        multiply_narrow_tiles(
            vectors, both, a + one * a_row, a + two * a_row, a_row, offsets, panel, steps,
            WORDS, target, target_next, target_row, TILE_ROW, mode, ahead,
        )  # fmt: skip
        if columns % LANES:
            copy_lines(target, PANEL_ROW, c + one * c_row, c_row, tall, columns)
            if both == 2:
                copy_lines(target_next, PANEL_ROW, c + two * c_row, c_row, tall, columns)
        ahead += ahead_step
        if ahead >= panel + 2 * steps * WORDS * PANEL_ROW:
            ahead, ahead_step = 0, 0


@helper
def multiply_panel_in_registers(
    rows: Any, a: Any, a_row: Any, offsets: Any, panel: Any, pairs: Any, c: Any, c_row: Any,
    columns: Any, mode: Any, edge: Any,
) -> None:  # fmt: skip
    """Multiply rows by a panel of so many pairs in registers; see ``multiply_narrow_panel``.

    Tiles are of about equal heights. The first ones bring the next panel along.
    """
    tiles = tiles_of(rows)
    ahead, size = panel + pairs * PANEL_ROW, pairs * PANEL_ROW
    for tile in range(tiles):
        first, last = tile_begin(tile, tiles, rows), tile_begin(tile + 1, tiles, rows)
        target, target_row = c + first * c_row, c_row
        if columns % LANES:
            target, target_row = edge, PANEL_ROW
        multiply_narrow_rows(
            -(-columns // LANES), last - first, a + first * a_row, a_row, offsets, panel, pairs,
            target, target_row, TILE_ROW, mode, ahead,
        )  # fmt: skip
        if columns % LANES:
            copy_lines(edge, PANEL_ROW, c + first * c_row, c_row, last - first, columns)
        ahead += pairs * (CACHE_LINE // PAIRS_PER_LINE)
        if ahead >= panel + 2 * size:
            ahead = panel


@helper
def tiles_of(rows: Any) -> Any:
    """Return how many tiles in registers so many rows take."""
    return -(-rows // TALLEST_PAIRS)


@helper
def tile_begin(tile: Any, tiles: Any, rows: Any) -> Any:
    """Return the first row of a tile in registers; all have about as many."""
    return tile * rows // tiles


@helper
def tile_task_shape(rows: Any, columns: Any, depth: Any, threads: Any) -> Any:
    """Return the rows and columns of the result that a task computes."""
    high = split(rows, max(2 * TALLEST, HELD // (2 * depth + 4 * WIDEST)), 2 * TALLEST)
    bands = -(-rows // high)
    wanted = -(-TASKS_PER_THREAD * threads // bands) if threads > 1 else 1
    width = split(columns, max(2 * COLUMNS, min(WIDEST, columns // wanted)), COLUMNS)
    return min(high, max(2 * TALLEST, MAX_TASK_PRODUCTS // (depth * width))), width


@parallel
def multiply_narrow_block(arguments: Any, task: Any, worker: Any) -> None:
    """Compute a block of the product."""
    rows, line, panels, c, offsets, extras, shape, memory, share = arguments
    count, columns = c.shape
    across = -(-columns // shape[1])
    top, left = task // across * shape[0], task % across * shape[1]
    high, right = min(shape[0], count - top), min(columns, left + shape[1])
    steps = offsets.size // WORDS
    tall = -(-high // -(-high // TALLEST))
    edge = memory.ctypes.data + 4 * share * worker
    begin_tiles(tall, WORDS)
    for column in range(left, right, COLUMNS):
        multiply_narrow_panel(
            high, tall, rows.ctypes.data + top * line, line, offsets.ctypes.data,
            panels.ctypes.data + column * 4 * offsets.size, steps,
            c.ctypes.data + 4 * (top * columns + column), 4 * columns,
            min(COLUMNS, right - column), ZERO, edge,
        )  # fmt: skip
    end_tiles()
    finish_rows(c, top, top + high, left, right, extras)


@kernel(
    (
        In(f32, 2, "A"), In(u16, 1), Out(f32, 2), In(i64, 1), EXTRAS, Out(u8, 1), Out(f32, 1),
        size, size,
    ),
    Contract(
        plan="panels have A's columns, and columns of C",
        launch="A's columns are the panels' rows; a bias has a number per column, a residual the "
        "result's shape",
    ),
)  # fmt: skip
def gemm_tiles(a, panels, c, offsets, extras, rows, memory, share, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Compute ``C = finish(A @ B)`` for B as ``bfloat16_panels`` has it.

    Args:
        a: A, of any strides.
        panels: B.
        c: The result.
        offsets: Bytes to each pair of a row of A, of which there are whole tiles.
        extras: See ``EXTRAS``.
        rows: Room for A as bfloat16, whole lines of the cache for each row.
        memory: ``share`` floats for every thread.
        share: A row of A, and two tiles.
        threads: How many threads to use.
    """
    line = rows.size // a.shape[0]
    narrow_rows(a, rows, 2 * offsets.size, line, memory, share, threads)
    shape = tile_task_shape(c.shape[0], c.shape[1], 2 * offsets.size, threads)
    tasks = -(-c.shape[0] // shape[0]) * -(-c.shape[1] // shape[1])
    arguments = (rows, line, panels, c, offsets, extras, shape, memory, share)
    multiply_narrow_block(arguments, tasks, threads)
