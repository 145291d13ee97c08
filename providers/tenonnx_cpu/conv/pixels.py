"""Tasks of a convolution, whose products have places as rows and channels as columns.

Channels of the result are the lanes of vectors, so that a few places fill as much of a tile as
many, and a result may have its channels last. What places see is read where it is, number by
number: of images with channels first or last. Only padded images are copied, a band at a time.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

from tenonnx.provider import HOST
from tenonnx_array.windows import Windows
from tenonnx_cpu.conv.kernels import PIXELS_FIELDS
from tenonnx_cpu.conv.layout import (
    ConvLayout,
    fixed,
    flattened,
    is_direct,
    is_line,
    numbers_of,
    split_tasks,
)
from tenonnx_cpu.conv.padding_taps import named_taps
from tenonnx_cpu.jit.code.cpu import cpu
from tenonnx_cpu.kernel_selection import NDArray

if TYPE_CHECKING:
    from tenonnx.weights.weight import Weight

# Channels side by side in packed weights.
PANEL_CHANNELS = 2 * cpu().lanes


def packed(
    weight: Weight, panel: int, taps: tuple[slice, ...] = (), channels_last: bool = False
) -> NDArray:
    """Return weights ``(K, C, *)`` as panels of channels, flat, kept by their registry.

    A panel has a row for each number that a place sees, in the order in which its image has them;
    the last one has zeros for channels that there are not.

    Args:
        weight: The weights.
        panel: Channels of a panel.
        taps: Which of the kernel's taps there are; all if none are named.
        channels_last: Whether images have their channels last.
    """

    def pack() -> NDArray:
        w = weight.on(HOST)
        w = w[(..., *taps[2 - w.ndim :])]
        if channels_last:
            w = w.transpose(0, *range(2, w.ndim), 1)
        panels = -(-len(w) // panel)
        made = np.zeros((panels * panel, w[0].size), np.float32)
        made[: len(w)] = w.reshape(len(w), -1)
        made = made.reshape(panels, panel, -1)
        return np.ascontiguousarray(made.transpose(0, 2, 1))

    order = "last" if channels_last else "first"
    made = weight.derive(f"conv-panels:{panel}:{order}:{named_taps(taps)}", pack)
    return made.on(HOST).reshape(-1)  # type: ignore[no-any-return]  # the host's are numpy's


@functools.lru_cache(maxsize=1024)
def pixels_layout(
    shape: tuple[int, ...],
    rows: int,
    windows: Windows,
    threads: int,
    from_last: bool,
    to_last: bool,
) -> ConvLayout:
    """Return how to convolve images ``(N, C, H, W)`` with ``rows`` kernels.

    Args:
        shape: Of the images.
        rows: Channels of the result.
        windows: What places see.
        threads: How many to use at most.
        from_last: Whether images have their channels last.
        to_last: Whether the result has.
    """
    batch, channels = shape[:2]
    output = (batch, rows, *windows.output)
    windows, _ = flattened(windows)
    copied = not is_direct(windows) and windows.is_padded
    (height, width), (out_height, out_width) = windows.size, windows.output
    (stride_y, stride_x), (kernel_y, kernel_x) = windows.strides, windows.kernel
    (step_y, step_x), (top, left) = windows.dilations, windows.begins
    wide = channels if from_last else 1
    part = split_tasks(batch, rows, windows.output, threads, across=is_line(windows))
    across = -(-part.rows // PANEL_CHANNELS) * PANEL_CHANNELS
    seen = (part.height - 1) * stride_y + (kernel_y - 1) * step_y + 1
    padded = (left + width + max(0, windows.ends[1])) * wide if copied else width * wide
    plane = (seen if copied else height) * padded
    planes = channels // wide
    down = step_y * padded if kernel_y > 1 else 0
    apart = 1 if from_last else plane
    offsets = _offsets(kernel_y, kernel_x, down, step_x * wide, channels, apart, from_last)
    sums = planes * plane + 64 if copied else 0
    work = -(-(sums + (0 if to_last else PANEL_CHANNELS * (part.width + 16))) // 16) * 16
    tasks = batch * -(-out_height // part.height) * -(-out_width // part.width) * -(-rows // across)
    numbers = numbers_of(
        PIXELS_FIELDS, rows=rows, planes=planes, height=height, line=width * wide,
        out_height=out_height, out_width=out_width, stride_y=stride_y, pixel=stride_x * wide,
        top=top, left=left * wide, padded=padded, taps_y=(kernel_y - 1) * step_y + 1, plane=plane,
        copied=int(copied), depth=channels * kernel_y * kernel_x, last=int(to_last),
        task_rows=across, task_height=part.height, task_width=part.width, sums=sums, work=work,
        tasks=tasks,
    )  # fmt: skip
    return ConvLayout(numbers, min(threads, tasks), work, output, offsets)


@functools.lru_cache(maxsize=256)
def _offsets(
    kernel_y: int, kernel_x: int, down: int, across: int, channels: int, apart: int, last: bool
) -> NDArray:
    """Return bytes from the first number that a place sees to each of them.

    Taps are ``down`` and ``across`` floats apart, channels ``apart``; ``last`` if these are side by
    side.
    """
    taps = np.add.outer(np.arange(kernel_y) * down, np.arange(kernel_x) * across)
    steps = np.arange(channels) * apart
    within = np.add.outer(taps, steps) if last else np.add.outer(steps, taps)
    return fixed(4 * within.ravel())
