"""A strip of a convolution: some of its channels for columns of the image that lie at hand."""

from __future__ import annotations

from typing import Any

from tenonnx_cpu.conv.kernels import FEW
from tenonnx_cpu.conv.kernels.edge import multiply_edge
from tenonnx_cpu.conv.kernels.finish import activate_lines
from tenonnx_cpu.conv.kernels.panels import multiply_panels
from tenonnx_cpu.conv.kernels.planes import pack_columns, pack_panel
from tenonnx_cpu.conv.kernels.result import Result, ResultRows, Runs, right_of, target_of
from tenonnx_cpu.conv.kernels.rows import copy_row
from tenonnx_cpu.conv.kernels.tile import LISTED, MAX_DOT_COLUMNS, RUNS, multiply_taps
from tenonnx_cpu.jit.compiling import helper
from tenonnx_cpu.jit.vectors.lanes import LANES
from tenonnx_cpu.matmul.kernels.block import CACHE_WAY
from tenonnx_cpu.matmul.kernels.tile import BY_PANELS, COLUMNS, ROWS, VECTORS

# Lines of the cache of each row that `ahead` means: a tile tells as many lines as it is deep.
TOLD = 16


@helper
def multiply_strip(
    rows: Any, depth: Any, columns: Any, a: Any, b: Any, offsets: Any, c: Any, mode: Any, last: Any,
    result: Any, room: Any, soon: Any, runs: Any,
) -> None:  # fmt: skip
    """Multiply rows of A by columns of B; write ``activate(C * scale + shift + residual)``.

    Args:
        rows: Of A and C.
        depth: Columns of A, rows of B.
        columns: Of B and C.
        a: Rows, whose columns are adjacent.
        b: Address that the offsets count from.
        offsets: Address of where the rows of B are.
        c: Rows that have room for whole panels. If C is complete with this, nothing is written
            there.
        mode: ``ZERO`` or ``ADD``.
        last: Whether C is complete with this.
        result: Where it goes then.
        room: To work in.
        soon: As many rows of B that come next, which memory is told; at address 0 if there are
            none. Other threads may have made them, and no cache of this one has them then.
        runs: Which columns of A are meant, where B lies in runs; ``soon`` is nothing then.
    """
    if BY_PANELS and rows > FEW:
        multiply_panels(rows, depth, columns, a, b, offsets, c, mode, last, result, room, soon)
        return
    tiles = -(-rows // ROWS)
    dots = columns % LANES if columns % LANES <= MAX_DOT_COLUMNS else 0
    pitch = 4 * runs.length + 64
    pack_columns(b + 4 * (columns - dots), offsets, depth, dots, room.edge, pitch)
    told = 0 if soon.start else depth
    for tile in range(tiles):
        # A tile of two rows would wait for its own sums.
        row = tile * rows // tiles
        count = (tile + 1) * rows // tiles - row
        left = ResultRows(a.start + row * a.apart, a.apart)
        beyond = left.start + count * a.apart if row + count < rows else a.start + 4 * depth
        if a.apart % CACHE_WAY == 0 and columns > dots:
            # Rows so far apart would share few places in the cache, where they are to stay.
            for i in range(count):
                copy_row(left.start + i * a.apart, room.copy + i * pitch, runs.length)
            left = ResultRows(room.copy, pitch)
        target = target_of(row, c, mode, last, result)
        # Shorter rows follow one another: what a tile tells is all of them.
        ahead = ResultRows(beyond, max(a.apart, 64 * TOLD))
        told = multiply_columns(
            count, columns - dots, depth, left, b, offsets, target, last, ahead, soon, told, runs
        )
        if dots:
            multiply_edge(
                count, dots, left, ResultRows(room.edge, pitch), depth, target, columns - dots
            )
        if last:
            start = result.y + 4 * (result.place + row * result.apart)
            activate_lines(start, 4 * result.apart, count, columns, result.finish)


@helper
def multiply_columns(
    rows: Any, columns: Any, depth: Any, left: Any, b: Any, offsets: Any, target: Any, last: Any,
    beyond: Any, soon: Any, told: Any, runs: Any,
) -> Any:  # fmt: skip
    """Multiply the rows of a tile by columns of B, and tell memory what comes next.

    What is not told here is as of ``multiply_strip``.

    Args:
        left: The rows of A.
        target: What they read and write besides.
        beyond: The rows of A that come next.
        told: How many rows of B that come next memory knows.

    Returns:
        How many it knows then.
    """
    for column in range(0, columns, COLUMNS):
        ahead = beyond
        if runs.each:
            ahead = ResultRows(runs.each, runs.hole)
        elif column and told < depth:
            ahead = ResultRows(soon.start + told * soon.apart, soon.apart)
            told += depth // TOLD
        span = columns - column
        multiply_taps(
            VECTORS // 2 if span <= LANES else VECTORS, rows, RUNS if runs.each else LISTED,
            left.start, left.apart, b + 4 * column, offsets, depth,
            right_of(target.before, column), target.before.apart,
            right_of(target.rows, column), target.rows.apart,
            right_of(target.added, column), target.added.apart, target.scale, target.shift,
            ahead.start, ahead.apart, span if last else COLUMNS, target.low, target.high,
        )  # fmt: skip
    return told


@helper
def multiply_image(
    rows: Any, depth: Any, columns: Any, a: Any, b: Any, area: Any, offsets: Any, panel: Any,
    packed: Any, c: Any, mode: Any, last: Any, result: Any, room: Any,
) -> None:  # fmt: skip
    """Multiply as ``multiply_strip`` does, by channels of an image where they are.

    The last columns may lie beyond the image's last element: they are copied.

    What is not told here is as of ``multiply_strip``.

    Args:
        b: Address of the first column in the first channel.
        area: Bytes from channel to channel.
        offsets: Where channels are.
        panel: Where rows are of a panel that is copied.
        packed: Address of one.
    """
    whole, none = columns // COLUMNS * COLUMNS, Runs(0, 0, depth)
    if whole:
        soon = ResultRows(0 if last else b + depth * area, area)
        multiply_strip(rows, depth, whole, a, b, offsets, c, mode, last, result, room, soon, none)
    if whole < columns:
        pack_panel(b + 4 * whole, area, depth, columns - whole, packed)
        rest = Result(result.y, result.place + whole, result.apart, result.channel, result.finish)
        multiply_strip(
            rows, depth, columns - whole, a, packed, panel,
            ResultRows(c.start + 4 * whole, c.apart), mode, last, rest, room,
            ResultRows(0, 0), none,
        )  # fmt: skip
