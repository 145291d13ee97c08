"""How a convolution of a given shape is cut into tasks, for the kernels in ``jit``.

Of every input channel a task makes planes, one for each of the kernel's columns and each phase of
its rows: what a column of the kernel meets, window by window, with zeros for padding. All that a
tap sees is then a run of a plane, some rows on.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from tenonnx.records import record
from tenonnx_array.windows import Windows
from tenonnx_cpu.specialise import NDArray

FIELDS = (
    "batch", "groups", "rows", "channels", "height", "width", "out_height", "out_width",
    "stride_y", "stride_x", "top", "taps", "direct", "plane",
    "task_rows", "task_height", "task_width", "block", "tasks", "pitch", "work", "copy", "edge",
    "depth", "out_depth", "taps_z", "stride_z", "step_z", "front",
)  # fmt: skip
"""What a kernel finds at which place of ``Layout.numbers``, in elements:

``rows`` and ``channels`` are a group's; ``plane`` elements are a plane;
a task makes ``task_rows`` channels of ``task_height`` rows of ``task_width`` elements, summing over
``block`` input channels at a time, in ``work`` floats of memory: the product, whose rows are
``pitch`` apart, planes, from ``copy`` on rows of A and from ``edge`` on columns of B.

Every image of the result is one of ``out_depth`` of a volume, and convolves images of ``depth`` of
them, ``taps_z`` of each of the volume's channels, as channels of its own.
"""

VECTOR = 32
"""What a row of the product is a multiple of, at least as many as a tile has columns."""
COLUMNS_PER_TASK = 448
ROWS_PER_TASK = 256
DEPTH = 256
LONG = 4096
"""Channels that are summed over at a time in an image of one element: rows are read once."""
PLANES = 48 << 10
"""Floats of planes at most, so that they stay in the second-level cache."""
TASKS_PER_THREAD = 4
TILE_ROWS = 14


@record
class Layout:
    """A convolution cut into tasks.

    Attributes:
        numbers: ``FIELDS``.
        offsets: Bytes from a block's first plane to what each of its taps sees, row by row of B.
        panel: The same for a copy of the last columns.
        planes: The phase among rows, and the image's column that the first window sees, of each.
        threads: How many threads are of use.
        floats: Memory that one of them needs.
        output: The result's shape.
    """

    numbers: NDArray
    offsets: NDArray
    panel: NDArray
    planes: NDArray
    threads: int
    floats: int
    output: tuple[int, ...]


@functools.lru_cache(maxsize=1024)
def layout(shape: tuple[int, ...], rows: int, group: int, windows: Windows, threads: int) -> Layout:
    """Returns how to convolve images ``(N, C, H, W)`` or volumes with ``rows`` kernels."""
    output = (shape[0], rows, *windows.output)
    windows, volume = flattened(windows)
    _, out_depth, taps_z = volume[:3]
    batch, channels = shape[0], shape[1] * taps_z
    (height, width), (out_height, out_width) = windows.size, windows.output
    (stride_y, stride_x), (top, left) = windows.strides, windows.begins
    rows, channels = rows // group, channels // group
    direct = is_direct(windows) and taps_z == 1
    if direct:
        height, width = 1, height * width
        out_height, out_width = 1, width
    taps = taps_of(windows)
    planes = sorted({plane for plane, _ in taps})
    reach = max(line for _, line in taps)
    images = batch * group * out_depth
    part = split_tasks(images, rows, out_height, out_width, threads, direct)
    plane = (part[1] + reach) * out_width
    block = max(1, DEPTH // len(taps))
    if direct and width == 1:
        block = min(channels, LONG)
    if not direct:
        block = max(1, min(block, PLANES // (plane * len(planes))))
    block = -(-channels // -(-channels // block))
    length = block * len(taps)
    step = height * width if direct else plane * len(planes)
    within = [planes.index(place) * plane + line * out_width for place, line in taps]
    offsets = 4 * np.add.outer(np.arange(block) * step, within).ravel()
    pitch = -(-part[1] * part[2] // VECTOR) * VECTOR
    pitch += 16 * (pitch % 256 == 0)
    copied = 0 if direct else block * len(planes) * plane
    copy = part[0] * pitch + max(copied, VECTOR * length) + 4 * VECTOR
    edge = copy + TILE_ROWS * (length + 16)
    work = edge + VECTOR * (length + 16)
    tasks = images * -(-rows // part[0]) * -(-out_height // part[1]) * -(-out_width // part[2])
    numbers = (
        batch, group, rows, channels, height, width, out_height, out_width,
        stride_y, stride_x, top, len(taps), int(direct), plane,
        *part, block, tasks, pitch, work, copy, edge, *volume,
    )  # fmt: skip
    return Layout(
        fixed(numbers),
        fixed(offsets),
        fixed(np.arange(length) * 4 * VECTOR),
        fixed([(phase, column - left) for phase, column in planes]),
        min(threads, tasks),
        work,
        output,
    )


def flattened(windows: Windows) -> tuple[Windows, tuple[int, int, int, int, int, int]]:
    """Returns the windows of a volume's images, and those along its depth; an image has none."""
    if len(windows.size) == 2:
        return windows, (1, 1, 1, 1, 1, 0)
    if is_direct(windows):
        size = 1, math.prod(windows.size)
        one, none = (1, 1), (0, 0)
        return Windows(size, one, one, one, none, none, size), (1, 1, 1, 1, 1, 0)
    fields = (
        windows.size, windows.kernel, windows.strides, windows.dilations,
        windows.begins, windows.ends, windows.output,
    )  # fmt: skip
    depth, taps, stride, step, front, _, out_depth = (field[0] for field in fields)
    return Windows(*(field[1:] for field in fields)), (depth, out_depth, taps, stride, step, front)


def is_direct(windows: Windows) -> bool:
    """Says whether every window is one element, and all are in order."""
    return math.prod((*windows.kernel, *windows.strides)) == 1 and not windows.is_padded


def taps_of(windows: Windows) -> list[tuple[tuple[int, int], int]]:
    """Returns the plane of each tap of the kernel, and the row of it that the tap begins at."""
    stride = windows.strides[0]
    (kernel_y, kernel_x), (step_y, step_x) = windows.kernel, windows.dilations
    return [
        ((y % stride, x), y // stride)
        for y in range(0, kernel_y * step_y, step_y)
        for x in range(0, kernel_x * step_x, step_x)
    ]


def split_tasks(
    images: int,
    rows: int,
    height: int,
    width: int,
    threads: int,
    direct: bool,
    tallest: int = ROWS_PER_TASK,
    line: float = 0.0,
) -> tuple[int, int, int]:
    """Returns how many rows, lines and columns of the result a task makes.

    It makes ``tallest`` rows at most; ``line`` is what a line of planes takes, in units of what a
    row of a tile does.

    Of all ways to cut, that with the least work for the thread that has most of it: rows and
    columns beyond whole tiles are wasted, and every task takes time of its own.
    """
    wanted = TASKS_PER_THREAD * threads if threads > 1 else 1
    best: tuple[float, tuple[int, int, int]] = (math.inf, (rows, height, width))
    least = -(-rows // tallest)
    for bands in {least, *(max(least, n) for n in (1, 2, 3, 4, 6, 8, 12, 16, wanted))}:
        high = -(-rows // bands)
        if high < TILE_ROWS and bands > least:
            continue
        for lines, span in _cuts(height, width, direct):
            columns = lines * span
            strips = -(-height // lines) * -(-width // span)
            tasks = images * -(-rows // high) * strips
            rounds = max(tasks / threads, -(-tasks // threads) if tasks < 2 * wanted else 0)
            tiles = -(-high // TILE_ROWS)
            packing = 2 * columns / 16 + line * (lines + 2)
            cost = rounds * (-(-columns // 16) * high + packing + 8 * tiles)
            best = min(best, (cost, (high, lines, span)))
    return best[1]


def _cuts(height: int, width: int, direct: bool) -> list[tuple[int, int]]:
    if direct:
        spans = (n for n in range(VECTOR, COLUMNS_PER_TASK + 1, VECTOR) if n < width)
        return [(1, n) for n in spans] + [(1, width)] * (width <= COLUMNS_PER_TASK)
    lines = range(1, max(1, min(height, COLUMNS_PER_TASK // width)) + 1)
    return [(-(-height // -(-height // n)), width) for n in lines]


def fixed(values: Any) -> NDArray:
    """Returns whole numbers as kernels take them, which nobody may change."""
    array = np.ascontiguousarray(values, np.int64)
    array.flags.writeable = False
    return array
