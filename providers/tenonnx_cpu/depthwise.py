"""How work on one channel at a time is cut into tasks: depthwise convolution and pooling."""

from __future__ import annotations

import functools

import numpy as np

from tenonnx_array.windows import Windows
from tenonnx_cpu.conv_layout import Layout, fixed

FIELDS = (
    "batch", "channels", "multiple", "task_channels", "height", "width", "out_height", "out_width",
    "stride_y", "stride_x", "top", "taps", "bands", "plane", "pitch", "task_height", "tasks",
    "work", "variant", "left",
)  # fmt: skip
"""What a kernel finds at which place of ``Layout.numbers``, in elements:

``multiple`` results come from a channel; a task works on ``task_channels`` channels of one of
``bands`` of the result, ``task_height`` rows at a time; ``plane`` elements are a phase
of a channel, rows of it ``pitch`` apart; ``work`` is the memory needed; ``variant``
is a number of ``UNROLLED_WINDOWS``, from 1 on; ``left`` is where the first window begins.
"""

UNROLLED_WINDOWS = ((3, 1), (3, 2), (5, 1), (5, 2), (7, 1))
"""Square kernels, and strides along a line, that have code of their own."""

LINE = 16
"""What a line of a plane is a multiple of: the floats of a vector."""

LARGE = 1 << 10
"""Elements of a channel of the result from which on it is cut into bands."""

PLANES = 5 << 10
"""Floats of planes at most, so that they stay in the first-level cache."""


@functools.lru_cache(maxsize=1024)
def depthwise_layout(shape: tuple[int, ...], rows: int, windows: Windows, threads: int) -> Layout:
    """Returns how to slide windows over each channel of an image ``(N, C, H, W)``."""
    batch, channels = shape[:2]
    (height, width), (out_height, out_width) = windows.size, windows.output
    (stride_y, stride_x), (top, left) = windows.strides, windows.begins
    (kernel_y, kernel_x), (step_y, step_x) = windows.kernel, windows.dilations
    taps = [
        ((y % stride_y, x % stride_x), (y // stride_y, x // stride_x))
        for y in range(0, kernel_y * step_y, step_y)
        for x in range(0, kernel_x * step_x, step_x)
    ]
    planes = sorted({phase for phase, _ in taps})
    reach_y = max(place[0] for _, place in taps)
    pitch = out_width + max(place[1] for _, place in taps)
    pitch = -(-pitch // LINE) * LINE
    square = kernel_y == kernel_x and step_y == step_x == 1
    shape_of = (kernel_x, stride_x)
    variant = 1 + UNROLLED_WINDOWS.index(shape_of) if square and shape_of in UNROLLED_WINDOWS else 0
    lines = max(1, PLANES // (pitch * len(planes)) - reach_y)
    lines = -(-out_height // -(-out_height // lines))
    multiple = rows // channels
    # A thread should find in its cache what it wrote before: of large images bands of all
    # channels, as convolutions cut them, and channels of small ones.
    together, bands = channels, 1
    if threads > 1 and out_height * out_width > LARGE:
        bands = max(1, min(2 * threads // batch, out_height // 8))
    elif threads > 1:
        together = min(channels, -(-batch * channels // threads))
        if batch * channels < 4 * threads:
            bands = min(-(-out_height // lines), -(-4 * threads // (batch * channels)))
    lines = min(lines, -(-out_height // bands))
    plane = (lines + reach_y) * pitch
    offsets = [4 * (planes.index(phase) * plane + y * pitch + x) for phase, (y, x) in taps]
    tasks = batch * -(-channels // together) * bands
    work = plane * len(planes) + 64
    numbers = (
        batch, channels, multiple, together, height, width, out_height, out_width,
        stride_y, stride_x, top, len(taps), bands, plane, pitch, lines, tasks, work, variant, -left,
    )  # fmt: skip
    return Layout(
        fixed(numbers),
        fixed(offsets),
        fixed(np.empty(0)),
        fixed([(y, x - left) for y, x in planes]),
        min(threads, tasks),
        work,
        (batch, rows, out_height, out_width),
    )
