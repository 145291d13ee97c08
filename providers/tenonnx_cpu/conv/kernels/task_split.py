"""The part of a convolution's result that one task makes."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.conv.kernels import COLUMNS_PER_TASK, TILE_ROWS, VECTOR
from tenonnx_cpu.jit.compiling import Contract, Out, f64, helper, i64, kernel, size

# Columns of a tile, of which the last one of a task may be filled in part.
TILE_COLUMNS = 16

# Numbers of bands of channels that are tried.
BANDS = (1, 2, 3, 4, 6, 8, 12, 16)


@helper
def try_cut(lines: Any, span: Any, parts: Any, given: Any, part: Any, best: Any) -> Any:
    """Try tasks of some lines and columns with each number of bands; return the least time.

    Args:
        lines: Lines of a task.
        span: Columns of each.
        parts: Tasks that make a channel.
        given: The rest, as ``split_tasks`` has it: images, rows, threads, tasks wanted, the least
            number of bands, and what a line of planes takes.
        part: Gets rows, lines and columns of the best task so far.
        best: Its time.
    """
    images, rows, threads, wanted, least, cost = given
    columns = lines * span
    tiles, packing = -(-columns // TILE_COLUMNS), 2 * columns / TILE_COLUMNS + cost * (lines + 2)
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
        is_smaller = (high, lines, span) < (part[0], part[1], part[2])
        if time < best or (time == best and is_smaller):
            best, part[0], part[1], part[2] = time, high, lines, span
    return best


@kernel(
    (size, size, size, size, size, size, size, size, f64, Out(i64, 1)),
    Contract(launch="sizes are positive; part has three elements", captured=False),
)
def split_tasks(  # type: ignore[no-untyped-def] # the signature has them
    images, rows, height, width, threads, wanted, across, tallest, cost, part
):
    """Write the rows, lines and columns of a task; see ``tenonnx_cpu.conv.layout.split_tasks``."""
    given = images, rows, threads, wanted, -(-rows // tallest), cost
    part[0], part[1], part[2] = rows, height, width
    best = np.inf
    if across:
        for span in range(VECTOR, min(width, COLUMNS_PER_TASK + 1), VECTOR):
            best = try_cut(1, span, height * -(-width // span), given, part, best)
        if width <= COLUMNS_PER_TASK:
            best = try_cut(1, width, height, given, part, best)
        return
    for lines in range(1, max(1, min(height, COLUMNS_PER_TASK // width)) + 1):
        parts = -(-height // lines)
        best = try_cut(-(-height // parts), width, parts, given, part, best)
