"""Pooling: maxima and means over windows that slide along each channel, and over whole channels."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.conv.kernels import DEPTHWISE_FIELDS
from tenonnx_cpu.conv.kernels.planes import pack_planes
from tenonnx_cpu.conv.kernels.signature import WINDOWS
from tenonnx_cpu.conv.kernels.slide import slide_maxima, slide_sums
from tenonnx_cpu.conv.kernels.stencil import DIRECT, slide_maxima_directly
from tenonnx_cpu.conv.kernels.tasks import channels_of
from tenonnx_cpu.jit.compiling import In, Out, f32, helper, i64, kernel, size
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors.named import named

depthwise_sizes = named("DepthwiseSizes", DEPTHWISE_FIELDS)


@parallel
def pool_channels(arguments: Any, task: Any, worker: Any) -> None:
    """Pool some channels, or some lines of one; see ``tenonnx_cpu.conv.depthwise``."""
    x, y, weights, rows, columns, sizes, offsets, planes, memory = arguments
    packed = memory.ctypes.data + 4 * sizes.work * worker
    width = sizes.out_width
    item, first, last, begin, end = channels_of(task, sizes)
    for channel in range(first, last):
        image = item * sizes.channels + channel
        source = x.ctypes.data + 4 * image * sizes.height * sizes.width
        start = (image * sizes.out_height + begin) * width
        made = y.ctypes.data + 4 * start
        pool_lines(source, begin, end, made, weights, sizes, offsets, planes, packed)
        if weights.size:
            for line in range(begin, end):
                divide(y[start + (line - begin) * width :][:width], columns, rows[line])


@helper
def pool_lines(
    source: Any, begin: Any, end: Any, made: Any, weights: Any, sizes: Any, offsets: Any,
    planes: Any, packed: Any,
) -> None:  # fmt: skip
    """Write maxima, or sums, of what the windows of some lines see of a channel.

    Args:
        source: Address of the channel.
        begin: The first line of windows.
        end: The one after the last.
        made: Address of the result's.
        weights: As of ``pool_f32``.
        sizes: What its numbers name.
        offsets: As of ``pool_f32``.
        planes: As of ``pool_f32``.
        packed: Address of memory to work in.
    """
    width = sizes.out_width
    fill = np.float32(0) if weights.size else np.float32(-np.inf)
    for top in range(begin, end, sizes.task_height):
        lines = min(end - top, sizes.task_height)
        here = made + 4 * (top - begin) * width
        if DIRECT and sizes.variant and not weights.size:
            slide_maxima_directly(
                sizes.variant, source, sizes.height, sizes.width,
                top * sizes.stride_y - sizes.top, sizes.left, here, width, lines,
            )  # fmt: skip
            continue
        pack_planes(source, 1, top, lines + sizes.reach, 0, sizes, planes, fill, packed)
        if weights.size:
            slide_sums(
                sizes.unrolled, packed, 4 * sizes.line, offsets.ctypes.data, weights.ctypes.data,
                sizes.taps, here, 0, width, lines,
                np.float32(1), np.float32(0), np.float32(-np.inf), np.float32(np.inf),
            )  # fmt: skip
        else:
            slide_maxima(
                sizes.unrolled, packed, 4 * sizes.line, offsets.ctypes.data, sizes.taps, here,
                width, lines,
            )  # fmt: skip


@helper
def divide(line: Any, columns: Any, row: Any) -> None:
    """Divide sums by their number of elements, which is a product."""
    for i in range(line.size):
        line[i] /= columns[i] * row


@kernel(
    (
        In(f32, 1), Out(f32, 1), In(f32, 1), In(f32, 1), In(f32, 1), In(i64, 1), In(i64, 1),
        In(i64, 2), Out(f32, 1), size,
    ),
    WINDOWS,
)  # fmt: skip
def pool_f32(x, y, weights, rows, columns, numbers, offsets, planes, memory, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Pool over windows, cut into tasks by ``tenonnx_cpu.conv.depthwise``.

    Args:
        x: The image.
        y: The result.
        weights: Ones, one per tap, for means; empty for maxima.
        rows: Elements that count for a window of each line, along the columns.
        columns: Elements that count for a window of each column, along a line.
        numbers: See ``tenonnx_cpu.conv.depthwise``.
        offsets: See ``tenonnx_cpu.conv.depthwise``.
        planes: See ``tenonnx_cpu.conv.depthwise``.
        memory: Floats to work in.
        threads: How many threads to use.
    """
    sizes = depthwise_sizes(numbers)
    arguments = (x, y, weights, rows, columns, sizes, offsets, planes, memory)
    pool_channels(arguments, sizes.tasks, threads)


ROWS_PER_TASK = 64


@parallel
def average_rows(arguments: Any, task: Any, worker: Any) -> None:
    """Take the means of ``ROWS_PER_TASK`` rows."""
    x, y = arguments
    for row in range(task * ROWS_PER_TASK, min(y.size, (task + 1) * ROWS_PER_TASK)):
        y[row] = average(x[row])


@helper
def average(row: Any) -> Any:
    """Return the mean of a row."""
    whole = 0.0
    for i in range(row.size):
        whole += np.float64(row[i])
    return np.float32(whole / np.float64(row.size))


@kernel((In(f32, 2), Out(f32, 1), size), WINDOWS)
def average_f32(x, y, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Compute the mean of each row."""
    average_rows((x, y), -(-y.size // ROWS_PER_TASK), threads)
