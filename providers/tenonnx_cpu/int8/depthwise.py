"""How a convolution of every channel of bytes by itself is cut into tasks."""

from __future__ import annotations

import functools

import numpy as np

from tenonnx_array.windows import Windows
from tenonnx_cpu.conv.layout import Layout, fixed, numbers_of, places_of
from tenonnx_cpu.specialise import NDArray

FIELDS = (
    "channels", "multiple", "together", "height", "width", "out_height", "out_width",
    "stride_y", "stride_x", "top", "left", "lines", "pitch", "plane", "entries", "tasks", "work",
    "several",
)  # fmt: skip
"""What the kernel calls ``Layout.numbers``.

``multiple`` results come from a channel, a task works on ``together`` channels, ``several`` at a
time; of a channel it makes a plane of ``lines`` lines, ``pitch`` bytes each, with padding. A window
is summed by four neighbours of a line at a time, its ``entries``; ``offsets`` says where.
"""

SLACK = 64
PLANES = 16 << 10
"""Bytes of planes at a time, so that they stay in the first-level cache."""

STRIDES = (1, 2)
"""Strides along a line that the kernel has code for."""


def fits_depthwise(windows: Windows) -> bool:
    """Says whether the kernel slides windows like these."""
    if windows.strides[1] not in STRIDES or windows.dilations[1] != 1:
        return False
    sides = zip(windows.begins, windows.kernel, windows.dilations, strict=True)
    return all(0 <= begin <= (count - 1) * step for begin, count, step in sides)


def weight_words(weights: NDArray, zeros: NDArray) -> NDArray:
    """Returns weights in fours, less their zero points: int32, ``(rows, entries)``.

    Differences that a byte does not hold become several entries, whose sum they are.
    """
    rows, height, width = weights.shape[0], *_plane(weights.shape)
    exact = weights.reshape(rows, height, width).astype(np.int32)
    exact = exact - zeros.reshape(-1, 1, 1).astype(np.int32)
    exact = np.pad(exact, ((0, 0), (0, 0), (0, -width % 4)))
    words: list[NDArray] = []
    while not words or exact.any():
        near = np.clip(exact, -128, 127).astype(np.int8)
        words.append(near.reshape(rows, -1).view(np.int32))
        exact -= near
    return np.ascontiguousarray(np.concatenate(words, axis=1))


def _plane(shape: tuple[int, ...]) -> tuple[int, int]:
    return (1, shape[2]) if len(shape) == 3 else (shape[2], shape[3])


@functools.lru_cache(maxsize=1024)
def byte_depthwise_layout(
    shape: tuple[int, ...], rows: int, windows: Windows, entries: int, threads: int
) -> Layout:
    """Returns how to slide windows over each channel of an image ``(N, C, H, W)`` of bytes."""
    batch, channels = shape[:2]
    (out_height, out_width), (stride_y, stride_x) = windows.output, windows.strides
    (kernel_y, kernel_x), (step_y, _) = windows.kernel, windows.dilations
    fours = -(-kernel_x // 4)
    lines = (out_height - 1) * stride_y + (kernel_y - 1) * step_y + 1
    pitch = (out_width - 1) * stride_x + 4 * fours
    offsets = [y * step_y * pitch + 4 * n for y in range(kernel_y) for n in range(fours)]
    plane = -(-(lines * pitch + 2 * SLACK) // SLACK) * SLACK
    together = channels if threads == 1 else max(1, batch * channels // (4 * threads))
    together = min(together, channels)
    tasks = batch * -(-channels // together)
    several = max(1, min(together, PLANES // plane))
    work = several * plane + -(-4 * (out_height * out_width + SLACK) // SLACK) * SLACK
    numbers = numbers_of(
        FIELDS, channels=channels, multiple=rows // channels, together=together,
        **places_of(windows), left=windows.begins[1], lines=lines, pitch=pitch, plane=plane,
        entries=entries, tasks=tasks, work=work, several=several,
    )  # fmt: skip
    return Layout(
        numbers,
        min(threads, tasks),
        -(-work // 4),
        (batch, rows, out_height, out_width),
        fixed(offsets * (entries // len(offsets))),
    )
