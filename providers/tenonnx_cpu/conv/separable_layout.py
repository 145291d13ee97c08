"""How a depthwise convolution between two of 1 x 1 is cut into bands of lines of the result."""

from __future__ import annotations

import functools

import numpy as np

from tenonnx_array.windows import Windows
from tenonnx_cpu.conv.depthwise import variant_of
from tenonnx_cpu.conv.layout import DEPTH, TILE_ROWS, VECTOR, Layout, fixed, numbers_of

FIELDS = (
    "channels", "hidden", "rows", "height", "width", "out_height", "out_width", "stride", "kernel",
    "top", "left", "variant", "parts", "task_height", "band", "tasks", "wide", "narrow", "expands",
    "block", "second", "sums", "panel", "copy", "edge", "work", "kind", "second_kind", "third_kind",
)  # fmt: skip
"""What the kernel calls ``Layout.numbers``, in elements:

An image is cut into ``parts`` of ``task_height`` lines of the result, ``band`` of them at a time.
Of ``hidden`` channels there are ``wide`` elements each before, and ``narrow`` after the depthwise
convolution, the latter from ``second`` on in the ``work`` floats of a thread; then come ``sums``
of ``block`` of them at a time, a ``panel`` of the image, a ``copy`` of weights and columns at an
``edge``. Each convolution has a ``kind`` of activation.
"""

BAND = 120 << 10
"""Floats of a band, so that it stays in the second-level cache."""


@functools.lru_cache(maxsize=256)
def separable_layout(
    shape: tuple[int, ...],
    hidden: int,
    rows: int,
    windows: Windows,
    expands: bool,
    kinds: tuple[int, ...],
    threads: int,
) -> Layout:
    """Returns how to cut images ``(N, C, H, W)`` into bands.

    Args:
        shape: Of the images.
        hidden: Channels that are convolved by themselves.
        rows: Channels of the result.
        windows: Where those are convolved.
        expands: Whether they come of a convolution of 1 x 1.
        kinds: Each convolution's activation.
        threads: How many to use at most.
    """
    batch, channels = shape[:2]
    (height, width), (out_height, out_width) = windows.size, windows.output
    stride, kernel = windows.strides[0], windows.kernel[0]
    parts = min(out_height, -(-threads // batch)) if threads > 1 else 1
    task_height = -(-out_height // parts)
    parts = -(-out_height // task_height)

    def sizes(band: int) -> tuple[int, int]:
        before = ((band - 1) * stride + kernel) * width if expands else 0
        # Channels that are a power of two apart would share few sets of the cache.
        wide, narrow = (-(-n // VECTOR) * VECTOR + 16 for n in (before, band * out_width))
        return wide, narrow

    def taken(band: int) -> int:
        wide, narrow = sizes(band)
        return hidden * (wide + narrow) + rows * narrow

    band = max((n for n in range(1, task_height + 1) if taken(n) <= BAND), default=1)
    band = -(-task_height // -(-task_height // band))
    wide, narrow = sizes(band)
    block = -(-hidden // -(-hidden // DEPTH))
    depth = max(block, channels * expands)
    second = hidden * wide + VECTOR
    sums = second + hidden * narrow + VECTOR
    panel = sums + rows * narrow + VECTOR
    copy = panel + VECTOR * channels + VECTOR
    edge = copy + TILE_ROWS * (depth + 16)
    work = -(-(edge + VECTOR * (depth + 16)) // 16) * 16
    top, left = windows.begins
    numbers = numbers_of(
        FIELDS, channels=channels, hidden=hidden, rows=rows, height=height, width=width,
        out_height=out_height, out_width=out_width, stride=stride, kernel=kernel, top=top,
        left=left, variant=variant_of(windows), parts=parts, task_height=task_height, band=band,
        tasks=batch * parts, wide=wide, narrow=narrow, expands=int(expands), block=block,
        second=second, sums=sums, panel=panel, copy=copy, edge=edge, work=work,
        kind=kinds[0], second_kind=kinds[1], third_kind=kinds[2],
    )  # fmt: skip
    offsets = np.concatenate(
        [
            np.arange(channels) * 4 * height * width,
            np.arange(channels) * 4 * VECTOR,
            np.arange(block) * 4 * narrow,
        ]
    )
    output = (batch, rows, out_height, out_width)
    return Layout(numbers, min(threads, batch * parts), work, output, fixed(offsets))
