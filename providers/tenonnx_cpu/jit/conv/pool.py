"""Pooling: maxima and means over windows that slide along each channel, and over whole channels."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.jit.compiling import In, Out, f32, helper, i64, kernel, size
from tenonnx_cpu.jit.conv.planes import pack_planes
from tenonnx_cpu.jit.conv.slide import slide_maxima, slide_sums
from tenonnx_cpu.jit.conv.stencil import DIRECT, slide_maxima_directly
from tenonnx_cpu.jit.threads.pool import parallel


@parallel
def pool_channels(arguments: Any, task: Any, worker: Any) -> None:
    """Pools some channels, or some lines of one; see ``tenonnx_cpu.conv.depthwise``."""
    x, y, weights, rows, columns, layout, offsets, planes, memory = arguments
    channels, together, bands, lines = layout[1], layout[3], layout[12], layout[15]
    packed = memory.ctypes.data + 4 * layout[17] * worker
    groups = -(-channels // together)
    item, part = task // (groups * bands), task % (groups * bands)
    band, first = part // groups, part % groups * together
    high = -(-layout[6] // bands)
    end = min(layout[6], (band + 1) * high)
    fill = np.float32(0) if weights.size else np.float32(-np.inf)
    for channel in range(first, min(channels, first + together)):
        for top in range(band * high, end, lines):
            bottom = min(end, top + lines)
            image = item * channels + channel
            source = x.ctypes.data + 4 * image * layout[4] * layout[5]
            start = (image * layout[6] + top) * layout[7]
            if DIRECT and layout[18] and not weights.size:
                slide_maxima_directly(
                    layout[18], source, layout[4], layout[5], top * layout[8] - layout[10],
                    layout[19], y.ctypes.data + 4 * start, layout[7], bottom - top,
                )  # fmt: skip
                continue
            pack_planes(
                source, 1, top, bottom, layout[4:11], planes, layout[14], layout[13],
                layout[13] // layout[14] - (lines - (bottom - top)), fill, packed,
            )  # fmt: skip
            if not weights.size:
                slide_maxima(
                    packed, 4 * layout[14], offsets.ctypes.data, layout[11],
                    y.ctypes.data + 4 * start, layout[7], bottom - top, layout[18],
                )  # fmt: skip
                continue
            slide_sums(
                packed, 4 * layout[14], offsets.ctypes.data, weights.ctypes.data, layout[11],
                y.ctypes.data + 4 * start, 0, layout[7], bottom - top, layout[18],
                np.float32(1), np.float32(0), np.float32(-np.inf), np.float32(np.inf),
            )  # fmt: skip
            for line in range(bottom - top):
                divide(y[start + line * layout[7] :][: layout[7]], columns, rows[top + line])


@helper
def divide(line: Any, columns: Any, row: Any) -> None:
    """Divides sums by how many elements they are of, which is a product."""
    for i in range(line.size):
        line[i] /= columns[i] * row


@kernel((
    In(f32, 1), Out(f32, 1), In(f32, 1), In(f32, 1), In(f32, 1), In(i64, 1), In(i64, 1),
    In(i64, 2), Out(f32, 1), size,
))  # fmt: skip
def pool_f32(x, y, weights, rows, columns, layout, offsets, planes, memory, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Pools over windows, cut into tasks by ``tenonnx_cpu.conv.depthwise``.

    Args:
        x: The image.
        y: The result.
        weights: Ones, one per tap, for means; empty for maxima.
        rows: Elements that count for a window of each line, along the columns.
        columns: Elements that count for a window of each column, along a line.
        layout: See ``tenonnx_cpu.conv.depthwise``; so are ``offsets`` and ``planes``.
        offsets: Likewise.
        planes: Likewise.
        memory: Floats to work in.
        threads: How many threads to use.
    """
    arguments = (x, y, weights, rows, columns, layout, offsets, planes, memory)
    pool_channels(arguments, layout[16], threads)


ROWS_PER_TASK = 64


@parallel
def average_rows(arguments: Any, task: Any, worker: Any) -> None:
    """Takes the means of ``ROWS_PER_TASK`` rows."""
    x, y = arguments
    for row in range(task * ROWS_PER_TASK, min(y.size, (task + 1) * ROWS_PER_TASK)):
        y[row] = average(x[row])


@helper
def average(row: Any) -> Any:
    """Returns the mean of a row."""
    total = np.float32(0)
    for i in range(row.size):
        total += row[i]
    return total / np.float32(row.size)


@kernel((In(f32, 2), Out(f32, 1), size))
def average_f32(x, y, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Computes the mean of each row."""
    average_rows((x, y), -(-y.size // ROWS_PER_TASK), threads)
