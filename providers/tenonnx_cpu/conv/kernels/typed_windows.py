"""Windows over lines, images and volumes of any type: their maxima, and sums put back.

A tap at a time, in the kernel's row-major order, a line of the result staying in the cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.conv.kernels import TYPED_WINDOWS_FIELDS
from tenonnx_cpu.jit.compiling import Contract, In, Out, helper, i64, inlined, kernel, size, u8
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors.named import named
from tenonnx_cpu.jit.vectors.views import elements

window_sizes = named("TypedWindowSizes", TYPED_WINDOWS_FIELDS)

TYPED_WINDOWS = Contract(
    plan="kernel_shape, strides, dilations and pads have the rank, and products of two of them fit",
    launch="windows are those of the image; it has elements",
)


@inlined
def hits(tap: Any, sizes: Any) -> Any:
    """Find the windows along a line whose tap falls on it: from which to which, and where."""
    first = tap * sizes.dilation_x - sizes.begin_x
    low = max(0, -(first // sizes.stride_x))
    high = min(sizes.out_width, (sizes.width - 1 - first) // sizes.stride_x + 1)
    return low, high - low, first + low * sizes.stride_x


@inlined
def keep_greatest(best: Any, given: Any, stride: Any) -> None:
    """Keep the greater of two, or NaN; ``stride`` is a constant in one of two calls."""
    for i in range(best.size):
        x = given[i * stride]
        best[i] = x if (x > best[i]) | (x != x) else best[i]


@helper
def maxima_of_line(x: Any, y: Any, sizes: Any, line: Any, dtype: Any) -> None:
    """Write a line of maxima; x and y are addresses."""
    row, above = line % sizes.out_height, line // sizes.out_height
    piece, image = above % sizes.out_depth, above // sizes.out_depth
    out = elements(y + sizes.itemsize * line * sizes.out_width, sizes.out_width, dtype)
    for i in range(out.size):
        out[i] = dtype(-np.inf)
    for z in range(sizes.taps_z):
        deep = piece * sizes.stride_z - sizes.begin_z + z * sizes.dilation_z
        if not 0 <= deep < sizes.depth:
            continue
        for down in range(sizes.taps_y):
            high = row * sizes.stride_y - sizes.begin_y + down * sizes.dilation_y
            if not 0 <= high < sizes.height:
                continue
            source = ((image * sizes.depth + deep) * sizes.height + high) * sizes.width
            for across in range(sizes.taps_x):
                low, count, place = hits(across, sizes)
                if count <= 0:
                    continue
                best = elements(out.ctypes.data + sizes.itemsize * low, count, dtype)
                span = (count - 1) * sizes.stride_x + 1
                given = elements(x + sizes.itemsize * (source + place), span, dtype)
                if sizes.stride_x == 1:
                    keep_greatest(best, given, 1)
                else:
                    keep_greatest(best, given, sizes.stride_x)


@parallel
def maxima_of_lines(arguments: Any, task: Any, worker: Any) -> None:
    """Write a task's lines of maxima."""
    x, y, sizes = arguments
    for line in range(task * sizes.grain, min(sizes.lines, (task + 1) * sizes.grain)):
        maxima_of_line(x, y, sizes, line, np.float64)


@kernel((In(u8, 1), Out(u8, 1), In(i64, 1), size), TYPED_WINDOWS)
def typed_maxima(x, y, numbers, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Write the greatest element of each window, or NaN if it has one.

    Args:
        x: The images' bytes, of float64.
        y: The results'.
        numbers: As ``tenonnx_cpu.conv.kernels.TYPED_WINDOWS_FIELDS`` says.
        threads: How many threads to use.
    """
    sizes = window_sizes(numbers)
    maxima_of_lines((x.ctypes.data, y.ctypes.data, sizes), sizes.tasks, threads)


@inlined
def add_apart(out: Any, given: Any, stride: Any) -> None:
    """Add to elements so far apart; ``stride`` is a constant in one of two calls."""
    for i in range(given.size):
        out[i * stride] += given[i]


@helper
def sums_of_line(columns: Any, y: Any, sizes: Any, line: Any, dtype: Any) -> None:
    """Write a line of an image: the sums of all that windows have for its elements."""
    row, above = line % sizes.height, line // sizes.height
    piece, image = above % sizes.depth, above // sizes.depth
    start = y + sizes.itemsize * line * sizes.width
    out = elements(start, sizes.width, dtype)
    for i in range(out.size):
        out[i] = dtype(0)
    for z in range(sizes.taps_z):
        deep = piece + sizes.begin_z - z * sizes.dilation_z
        if deep < 0 or deep % sizes.stride_z or deep // sizes.stride_z >= sizes.out_depth:
            continue
        for down in range(sizes.taps_y):
            high = row + sizes.begin_y - down * sizes.dilation_y
            if high < 0 or high % sizes.stride_y or high // sizes.stride_y >= sizes.out_height:
                continue
            for across in range(sizes.taps_x):
                low, count, place = hits(across, sizes)
                if count <= 0:
                    continue
                source = ((image * sizes.taps_z + z) * sizes.taps_y + down) * sizes.taps_x + across
                source = source * sizes.out_depth + deep // sizes.stride_z
                source = source * sizes.out_height + high // sizes.stride_y
                at = columns + sizes.itemsize * (source * sizes.out_width + low)
                given = elements(at, count, dtype)
                span = (count - 1) * sizes.stride_x + 1
                part = elements(start + sizes.itemsize * place, span, dtype)
                if sizes.stride_x == 1:
                    add_apart(part, given, 1)
                else:
                    add_apart(part, given, sizes.stride_x)


@parallel
def sums_of_lines(arguments: Any, task: Any, worker: Any) -> None:
    """Write a task's lines of sums."""
    x, y, sizes = arguments
    for line in range(task * sizes.grain, min(sizes.lines, (task + 1) * sizes.grain)):
        if sizes.floats and sizes.itemsize == 4:
            sums_of_line(x, y, sizes, line, np.float32)
        elif sizes.floats:
            sums_of_line(x, y, sizes, line, np.float64)
        elif sizes.itemsize == 4:
            sums_of_line(x, y, sizes, line, np.int32)
        else:
            sums_of_line(x, y, sizes, line, np.int64)


@kernel((In(u8, 1), Out(u8, 1), In(i64, 1), size), TYPED_WINDOWS)
def typed_sums(columns, y, numbers, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Add up what windows have for each element of images, tap after tap.

    Args:
        columns: The bytes of (images, *taps, *windows).
        y: The images'.
        numbers: As ``tenonnx_cpu.conv.kernels.TYPED_WINDOWS_FIELDS`` says.
        threads: How many threads to use.
    """
    sizes = window_sizes(numbers)
    sums_of_lines((columns.ctypes.data, y.ctypes.data, sizes), sizes.tasks, threads)
