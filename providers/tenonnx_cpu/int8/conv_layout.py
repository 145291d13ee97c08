"""How a convolution of bytes is cut into tasks: like others, in bytes and in fours.

Products of bytes are summed four at a time, so rows of weights and of what they multiply come in
groups of four. Before it is multiplied, a panel of columns is packed: four rows, interleaved.
"""

from __future__ import annotations

import functools

import numpy as np

from tenonnx_array.windows import Windows
from tenonnx_cpu.conv.layout import Layout, fixed, is_direct, split_tasks, taps_of

FIELDS = (
    "batch", "groups", "rows", "channels", "height", "width", "out_height", "out_width",
    "stride_y", "stride_x", "top", "taps", "plane",
    "task_rows", "task_height", "task_width", "block", "tasks", "pitch", "work", "packed",
    "panel", "copy", "edge", "in_place", "common", "reach",
)  # fmt: skip
"""What a kernel finds at which place of ``Layout.numbers``; see ``tenonnx_cpu.conv.layout``.

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
    batch, channels = shape[:2]
    (height, width), (out_height, out_width) = windows.size, windows.output
    (stride_y, stride_x), (top, left) = windows.strides, windows.begins
    output = (batch, rows, out_height, out_width)
    rows, channels = rows // group, channels // group
    if direct := is_direct(windows):
        height, width = 1, height * width
        out_height, out_width = 1, width
    taps = taps_of(windows)
    planes = sorted({plane for plane, _ in taps})
    reach = max(line for _, line in taps)
    line = 0.0 if direct else LINE * len(planes) / len(taps)
    part = split_tasks(
        batch * group, rows, out_height, out_width, threads, direct, ROWS_PER_TASK, line
    )
    if whole:
        part = rows, out_height, out_width
    span = part[2]
    plane, block, common = (part[1] + reach) * span, DEPTH // len(taps), 0
    in_place = direct and channels % 4 == 0
    if part[0] < rows and threads > 1 and span == out_width and len(taps) == 1 and not direct:
        # A vector may be written beyond a plane, when others write the next one.
        apart = _round((out_height + reach) * span) + 64
        # Channels are read in fours: up to three more than there are.
        common = (batch * group * channels + 3) * apart + SLACK
        plane, common = (apart, common) if common <= COMMON else (plane, 0)
    if not common:
        block = min(block, PLANES // (plane * len(planes)))
    block = max(1, block)
    if block < channels:
        block = max(4, -(-channels // -(-channels // block) // 4) * 4)
    depth = -(-block * len(taps) // 4) * 4
    within = [planes.index(place) * plane + line * span for place, line in taps]
    offsets = np.add.outer(np.arange(block) * plane * len(planes), within).ravel()
    offsets = np.concatenate([offsets, np.repeat(offsets[-1:], depth - offsets.size)])
    if in_place:
        offsets = np.concatenate([offsets, np.arange(depth) * width])
    columns = part[1] * part[2]
    pitch = -(-columns // COLUMNS) * COLUMNS
    pitch += 16 * (pitch % 256 == 0)
    packed = 4 * part[0] * pitch
    panel = _round(packed + (0 if common else block * len(planes) * plane) + SLACK)
    copy = panel + COLUMNS * depth
    edge = _round(copy + (part[0] * depth if channels * len(taps) % 4 else 0))
    work = edge + 4 * _round(depth)
    tasks = (
        batch * group * -(-rows // part[0]) * -(-out_height // part[1]) * -(-out_width // part[2])
    )
    numbers = (
        batch, group, rows, channels, height, width, out_height, out_width,
        stride_y, stride_x, top, len(taps), plane, *part, block, tasks, pitch, work, packed,
        panel, copy, edge, int(in_place), common, reach,
    )  # fmt: skip
    return Layout(
        fixed(numbers),
        fixed(offsets),
        fixed(np.empty(0)),
        fixed([(phase, column - left) for phase, column in planes]),
        min(threads, tasks),
        -(-work // 4),
        output,
    )


def _round(size: int) -> int:
    return -(-size // 64) * 64
