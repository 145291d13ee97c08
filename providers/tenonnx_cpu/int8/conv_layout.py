"""Tasks of a convolution of bytes, whose products have places as rows.

Products of bytes are summed four at a time. What a place sees is some runs of adjacent bytes, of a
line of windows if they are not dilated, else of one tap, and each run is some fours; weights beyond
its end are zeros. Images of unsigned bytes with channels last are read where they are, others
copied, a task's lines at a time: channels last, padded, and unsigned.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_array.windows import Windows
from tenonnx_cpu.conv.kernels import TASKS_PER_THREAD
from tenonnx_cpu.conv.layout import (
    ConvLayout,
    TaskPart,
    fixed,
    flattened,
    is_line,
    numbers_of,
    split_tasks,
)
from tenonnx_cpu.int8.kernels import BYTE_CONV_FIELDS, TALLEST
from tenonnx_cpu.jit.code.cpu import cpu

# Channels side by side in packed weights.
PANEL_CHANNELS = 2 * cpu().lanes

# Bytes of a copy for windows of every channel by itself, so that they stay near the processor.
MAX_BAND_BYTES = 48 << 10

# Bytes behind a copy that are read.
SLACK = 64


@cacheable
@dataclass(frozen=True)
class ByteLayout:
    """The layout of an image's bytes.

    Attributes:
        shape: ``(N, C, H, W)``.
        last: Whether its channels are last, or first.
        signed: Whether they must be made unsigned.
    """

    shape: tuple[int, ...]
    last: bool
    signed: bool


@functools.lru_cache(maxsize=1024)
def bytes_layout(
    form: ByteLayout, rows: int, group: int, windows: Windows, threads: int
) -> ConvLayout:
    """Return how to convolve an image with ``rows`` kernels."""
    output, adjacent = (form.shape[0], rows, *windows.output), is_adjacent(windows)
    windows, _ = flattened(windows)
    rows, channels, images = rows // group, form.shape[1] // group, form.shape[0] * group
    part = split_tasks(images, rows, windows.output, threads, across=is_line(windows))
    part = part._replace(rows=-(-part.rows // PANEL_CHANNELS) * PANEL_CHANNELS)
    run = channels * (windows.kernel[1] if adjacent else 1)
    copied = group > 1 or form.signed or not form.last or run % 4 > 0
    copied = copied or windows.is_padded or any(windows.begins)
    wide = channels if copied else form.shape[1]
    line = _seen(windows, part)[1] * wide if copied else windows.size[1] * wide
    starts = _taps(windows, line, wide)[:, : 1 if adjacent else None].ravel()
    offsets = np.add.outer(starts, np.arange(0, run, 4)).ravel()
    depth = channels * windows.kernel[0] * windows.kernel[1]
    own = {
        "groups": group, "rows": rows, "run": run, "fours": offsets.size, "depth": depth,
        "copied": int(copied), "line": line,
    }  # fmt: skip
    tasks = images * part.number_in(rows, windows.output)
    return _cut(form, windows, part, tasks, threads, output, own, offsets)


@functools.lru_cache(maxsize=1024)
def byte_depthwise_layout(
    form: ByteLayout, windows: Windows, fours: int, threads: int
) -> ConvLayout:
    """Return how to convolve every channel of an image by itself, with ``fours`` of weights."""
    batch, channels = form.shape[:2]
    height, width = windows.output
    pieces = -(-TASKS_PER_THREAD * threads // batch) if threads > 1 else 1
    stride_y, stride_x = windows.strides
    if is_line(windows):
        part = TaskPart(
            1, 1, max(1, min(-(-width // pieces), MAX_BAND_BYTES // (channels * stride_x)))
        )
    else:
        most = MAX_BAND_BYTES // (windows.size[1] * channels * stride_y)
        part = TaskPart(1, max(1, min(-(-height // pieces), most)), width)
    line = _seen(windows, part)[1] * channels
    offsets = _taps(windows, line, channels).ravel()
    offsets = np.append(offsets, np.repeat(offsets[-1:], -offsets.size % 4))
    own = {
        "groups": 1, "rows": 1, "run": 0, "fours": fours, "depth": 0, "copied": 1, "line": line,
    }  # fmt: skip
    output, tasks = (batch, channels, height, width), batch * part.number_in(1, windows.output)
    offsets = np.tile(offsets, 4 * fours // offsets.size)
    return _cut(form, windows, part, tasks, threads, output, own, offsets)


def is_adjacent(windows: Windows) -> bool:
    """Return whether a window's columns are side by side."""
    return windows.dilations[-1] == 1 or windows.kernel[-1] == 1


def _seen(windows: Windows, part: TaskPart) -> tuple[int, int]:
    """Return how many lines and columns of an image a part's windows see."""
    axes = zip(part[1:], windows.strides, windows.kernel, windows.dilations, strict=True)
    lines, columns = ((n - 1) * stride + (taps - 1) * step + 1 for n, stride, taps, step in axes)
    return lines, columns


def _taps(windows: Windows, line: int, wide: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int_]]:
    """Return where a kernel's taps are, line by line."""
    (kernel_y, kernel_x), (step_y, step_x) = windows.kernel, windows.dilations
    return np.add.outer(np.arange(kernel_y) * step_y * line, np.arange(kernel_x) * step_x * wide)


def _cut(
    form: ByteLayout,
    windows: Windows,
    part: TaskPart,
    tasks: int,
    threads: int,
    output: tuple[int, ...],
    own: dict[str, int],
    offsets: np.ndarray[tuple[int, ...], np.dtype[np.int_]],
) -> ConvLayout:
    """Return the layout of tasks that make such a part each."""
    whole = form.shape[1]
    (height, width), (taps_y, taps_x) = windows.size, _seen(windows, TaskPart(1, 1, 1))
    channels = whole // own["groups"]
    from_channel, from_place = (1, whole) if form.last else (height * width, 1)
    # Numbers of a panel's channels come first, then what places see in all.
    band = _round(4 * 4 * PANEL_CHANNELS + 4 * max(TALLEST, part.height * part.width))
    work = band + own["copied"] * _round(_seen(windows, part)[0] * own["line"] + SLACK)
    numbers = numbers_of(
        BYTE_CONV_FIELDS, **own, channels=channels, height=height, width=width,
        out_height=windows.output[0], out_width=windows.output[1], stride_y=windows.strides[0],
        stride_x=windows.strides[1], top=windows.begins[0], left=windows.begins[1], taps_y=taps_y,
        taps_x=taps_x, image=whole * height * width, from_line=width * from_place,
        from_place=from_place, from_channel=from_channel,
        pixel=windows.strides[1] * (channels if own["copied"] else whole), task_rows=part.rows,
        task_height=part.height, task_width=part.width, band=band, work=work, tasks=tasks,
    )  # fmt: skip
    return ConvLayout(numbers, min(threads, tasks), -(-work // 4), output, fixed(offsets))


def _round(size: int) -> int:
    return -(-size // 64) * 64
