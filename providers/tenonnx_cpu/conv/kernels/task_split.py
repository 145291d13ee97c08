"""The part of a convolution's result that one task makes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tenonnx_cpu.conv.kernels import (
    COLUMNS_PER_TASK,
    ROWS_PER_TASK,
    TASKS_PER_THREAD,
    TILE_ROWS,
    VECTOR,
)
from tenonnx_cpu.jit.compiling import Contract, Out, helper, i64, kernel, size

# Columns of a tile, of which the last one of a task may be filled in part.
TILE_COLUMNS = 16

# Numbers of bands of channels that are tried.
BANDS = (1, 2, 3, 4, 6, 8, 12, 16)


class TaskSize(NamedTuple):
    """A task's part of the result: numbers of channels, lines and columns."""

    rows: Any
    height: Any
    width: Any


@helper
def try_cut(lines: Any, span: Any, parts: Any, given: Any, best: Any) -> Any:
    """Try tasks of some lines and columns with each number of bands; return the best part.

    Args:
        lines: Lines of a task.
        span: Columns of each.
        parts: Tasks that make a channel.
        given: The rest, as ``task_part`` has it: images, rows, threads, tasks wanted, and the
            least number of bands.
        best: The best part so far: its time, and its rows, lines and columns.
    """
    images, rows, threads, wanted, least = given
    columns = lines * span
    tiles, packing = -(-columns // TILE_COLUMNS), 2 * columns / TILE_COLUMNS
    for number in range(len(BANDS) + 1):
        bands = max(least, wanted if number == len(BANDS) else BANDS[number])
        high = -(-rows // bands)
        if high < TILE_ROWS and bands != least:
            continue
        tasks = images * -(-rows // high) * parts
        rounds = tasks / threads
        if tasks < 2 * wanted:
            rounds = max(rounds, -(-tasks // threads))
        time = rounds * (tiles * high + packing + 8 * -(-high // TILE_ROWS))
        # Among equals the smallest one, so that the order of trial does not matter.
        if (time, high, lines, span) < best:
            best = time, high, lines, span
    return best


@helper
def task_part(images: Any, rows: Any, height: Any, width: Any, threads: Any, across: Any) -> Any:
    """Return the rows, lines and columns of a task; see ``tenonnx_cpu.conv.layout.split_tasks``."""
    wanted = TASKS_PER_THREAD * threads if threads > 1 else 1
    given = images, rows, threads, wanted, -(-rows // ROWS_PER_TASK)
    best = np.inf, rows, height, width
    if across:
        for span in range(VECTOR, min(width, COLUMNS_PER_TASK + 1), VECTOR):
            best = try_cut(1, span, height * -(-width // span), given, best)
        if width <= COLUMNS_PER_TASK:
            best = try_cut(1, width, height, given, best)
    else:
        for lines in range(1, max(1, min(height, COLUMNS_PER_TASK // width)) + 1):
            parts = -(-height // lines)
            best = try_cut(-(-height // parts), width, parts, given, best)
    return TaskSize(best[1], best[2], best[3])


@kernel(
    (size, size, size, size, size, size, Out(i64, 1)),
    Contract(launch="sizes are positive; part has three elements", captured=False),
)
def split_tasks(  # type: ignore[no-untyped-def] # the signature has them
    images, rows, height, width, threads, across, part
):
    """Write the rows, lines and columns of a task; see ``tenonnx_cpu.conv.layout.split_tasks``."""
    part[0], part[1], part[2] = task_part(images, rows, height, width, threads, across)
