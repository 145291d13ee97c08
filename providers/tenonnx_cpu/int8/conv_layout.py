"""How a convolution of bytes is cut into tasks: like others, in bytes and in fours.

Products of bytes are summed four at a time, so rows of weights and of what they multiply come in
groups of four. Before it is multiplied, a panel of columns is packed: four rows, interleaved.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from tenonnx_array.windows import Windows
from tenonnx_cpu.conv.layout import (
    Layout,
    Part,
    fixed,
    flattened,
    is_direct,
    is_line,
    numbers_of,
    places_of,
    seen_by,
    split_tasks,
)

FIELDS = (
    "batch", "groups", "rows", "channels", "height", "width", "out_height", "out_width",
    "stride_y", "stride_x", "top", "taps", "plane", "line",
    "task_rows", "task_height", "task_width", "block", "tasks", "pitch", "work", "packed",
    "panel", "copy", "edge", "in_place", "common", "reach",
)  # fmt: skip
"""What a kernel calls ``Layout.numbers``; see ``tenonnx_cpu.conv.layout``.

``pitch`` is in sums, which are int32; ``work`` is in bytes, and so is where planes, a panel, a
copy of the weights and the last columns begin in it. ``in_place`` says whether the image itself
is its plane; the second half of ``offsets`` is where its channels are, then. Where tasks of several
threads see the same planes, ``common`` bytes are those of all channels, packed before. A window
begins in one line of a plane and ends ``reach`` lines below.
"""

DEPTH = 1024
COMMON = 8 << 20
"""Bytes of planes at most that tasks have in common."""
PLANES = 192 << 10
"""Bytes of planes at most, so that they stay in the second-level cache."""
ROWS_PER_TASK = 2048
LINE = 24
"""What a line of a plane takes to be packed, where a row of a tile takes 1 for a tap."""
COLUMNS = 32
SLACK = 256


@functools.lru_cache(maxsize=1024)
def bytes_layout(
    shape: tuple[int, ...],
    rows: int,
    group: int,
    windows: Windows,
    threads: int,
    whole: bool = False,
) -> Layout:
    """Returns how to convolve an image ``(N, C, H, W)`` of bytes with ``rows`` kernels.

    A task makes all lines of a channel if it must make the ``whole``.
    """
    output = (shape[0], rows, *windows.output)
    windows, _ = flattened(windows)
    rows, channels, images = rows // group, shape[1] // group, shape[0] * group
    direct = is_direct(windows)
    planes, taps = seen_by(windows, is_line(windows))
    part = Part(rows, *windows.output)
    if not whole:
        part = split_tasks(
            images, rows, windows.output, threads, across=is_line(windows), tallest=ROWS_PER_TASK,
            cost=0.0 if direct else LINE * len(planes) / len(taps),
        )  # fmt: skip
    line, reach = part.width + max(tap.column for tap in taps), max(tap.line for tap in taps)
    plane, common = (part.height + reach) * line, 0
    in_place = direct and channels % 4 == 0
    if part.rows < rows and threads > 1 and len(taps) == 1 and not is_line(windows):
        # A vector may be written beyond a plane, when others write the next one.
        apart = _round((windows.output[0] + reach) * line) + 64
        # Channels are read in fours: up to three more than there are.
        common = (images * channels + 3) * apart + SLACK
        plane, common = (apart, common) if common <= COMMON else (plane, 0)
    block = _block(channels, len(taps), 0 if common else plane * len(planes))
    depth = -(-block * len(taps) // 4) * 4
    within = [tap.plane * plane + tap.line * line + tap.column for tap in taps]
    offsets = np.add.outer(np.arange(block) * plane * len(planes), within).ravel()
    offsets = np.concatenate([offsets, np.repeat(offsets[-1:], depth - offsets.size)])
    if in_place:
        offsets = np.concatenate([offsets, np.arange(depth) * math.prod(windows.size)])
    pitch = -(-part.height * part.width // COLUMNS) * COLUMNS
    pitch += 16 * (pitch % 256 == 0)
    packed = 4 * part.rows * pitch
    panel = _round(packed + (0 if common else block * len(planes) * plane) + SLACK)
    copy = panel + COLUMNS * depth
    edge = _round(copy + (part.rows * depth if channels * len(taps) % 4 else 0))
    work = edge + 4 * _round(depth)
    tasks = images * part.number_in(rows, windows.output)
    numbers = numbers_of(
        FIELDS, batch=shape[0], groups=group, rows=rows, channels=channels, **places_of(windows),
        taps=len(taps), plane=plane, line=line, reach=reach,
        task_rows=part.rows, task_height=part.height, task_width=part.width,
        block=block, tasks=tasks, pitch=pitch, work=work, packed=packed, panel=panel, copy=copy,
        edge=edge, in_place=int(in_place), common=common,
    )  # fmt: skip
    return Layout(
        numbers,
        min(threads, tasks),
        -(-work // 4),
        output,
        offsets=fixed(offsets),
        planes=fixed(planes),
    )


def _block(channels: int, taps: int, planes: int) -> int:
    """Returns how many channels to sum over at a time, whose planes take so many bytes each."""
    block = DEPTH // taps
    if planes:
        block = min(block, PLANES // planes)
    block = max(1, block)
    if block < channels:
        block = max(4, -(-channels // -(-channels // block) // 4) * 4)
    return block


def _round(size: int) -> int:
    return -(-size // 64) * 64
