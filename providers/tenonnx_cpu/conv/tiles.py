"""Tasks of a convolution in tiles of bfloat16, whose products have places as rows.

All images are rounded first, with their channels last. The words of a tile's row are side by side:
pairs of one tap's channels, or of a line of taps where there are few channels. Where channels do
not fill such words, images have some of zeros more.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

from tenonnx.provider import HOST
from tenonnx_array.windows import Windows
from tenonnx_cpu.conv.kernels import TASKS_PER_THREAD, TILE_PLACES, TILES_FIELDS
from tenonnx_cpu.conv.layout import (
    ConvLayout,
    TaskPart,
    fixed,
    flattened,
    is_line,
    numbers_of,
)
from tenonnx_cpu.int8.kernels import LEAST_WORDS, tile_words
from tenonnx_cpu.kernel_selection import NDArray
from tenonnx_cpu.matmul.bfloat16 import bfloat16_panels
from tenonnx_cpu.matmul.kernels import TILE_COLUMNS

if TYPE_CHECKING:
    from tenonnx.weights.weight import Weight

# Channels from which on each tap has words of its own.
MIN_CHANNELS_PER_WORD = 16

# Bytes from place to place whose multiples put the rows of a tile into few sets of the cache.
SHARED = 1024

# Bytes of a line of the cache.
CACHE_LINE_BYTES = 64

# Bytes of images that a task reads for every panel: half of the second-level cache.
HELD = 1 << 20

# Numbers that are rounded at a time.
MAX_ROUNDED_NUMBERS = 1 << 14


def padded_channels(
    channels: int, kernel: tuple[int, ...], dilations: tuple[int, ...]
) -> tuple[int, int]:
    """Return how many channels the copies have, and how many taps are side by side."""
    apart = channels >= MIN_CHANNELS_PER_WORD or dilations[-1] != 1
    taps = 1 if apart else kernel[-1]
    least = LEAST_WORDS if channels < MIN_CHANNELS_PER_WORD else MIN_CHANNELS_PER_WORD // 2
    padded = channels + channels % 2
    while tile_words(taps * padded // 2) < least:
        padded += 2
    return padded, taps


def tile_weights(weight: Weight, kernel: tuple[int, ...], dilations: tuple[int, ...]) -> NDArray:
    """Return weights ``(K, C, *)`` as panels of channels, kept by their registry.

    They are the bits of pairs of bfloat16, flat and as float32.
    """
    shape = weight.shape
    channels, _ = padded_channels(shape[1], kernel, dilations)

    def pack() -> NDArray:
        w = weight.on(HOST)
        made = np.zeros((len(w), *w.shape[2:], channels), np.float32)
        made[..., : w.shape[1]] = np.moveaxis(w, 1, -1)
        return bfloat16_panels(made.reshape(len(w), -1).T, 2)

    made = weight.derive(f"conv-bfloat16-panels:{TILE_COLUMNS}:{channels}", pack)
    return made.on(HOST).reshape(-1).view(np.float32)  # type: ignore[no-any-return]  # the host's are numpy's


@functools.lru_cache(maxsize=1024)
def tiles_layout(
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
    own, taps = padded_channels(channels, windows.kernel, windows.dilations)
    (height, width), (out_height, out_width) = windows.size, windows.output
    (stride_y, stride_x), (kernel_y, kernel_x) = windows.strides, windows.kernel
    pixel = 2 * own
    pixel += CACHE_LINE_BYTES if taps == 1 and pixel % SHARED == 0 else 0
    lines, columns = (
        (out - 1) * stride + (kernel - 1) * step + 1
        for out, stride, kernel, step in zip(
            windows.output, windows.strides, windows.kernel, windows.dilations, strict=True
        )
    )
    line = -(-columns * pixel // CACHE_LINE_BYTES) * CACHE_LINE_BYTES
    image = lines * line
    down = np.arange(kernel_y) * windows.dilations[0] * line
    across = np.arange(0, kernel_x, taps) * windows.dilations[1] * pixel
    within = np.arange(0, 2 * taps * own, 4)
    offsets = np.add.outer(np.add.outer(down, across), within).ravel()
    part = _cut(batch, rows, windows, image, 4 * rows * offsets.size, threads)
    piece = max(1, min(columns, MAX_ROUNDED_NUMBERS // own))
    pieces = -(-columns // piece)
    copy, work = (batch * image + CACHE_LINE_BYTES) // 4, 2 * CACHE_LINE_BYTES // 4 * TILE_PLACES
    tasks = batch * part.number_in(rows, windows.output)
    numbers = numbers_of(
        TILES_FIELDS, rows=rows, channels=channels, height=height, width=width,
        out_height=out_height, out_width=out_width, stride_y=stride_y, top=windows.begins[0],
        left=windows.begins[1], from_last=int(from_last), last=int(to_last), lines=lines,
        columns=columns, pixel=pixel, line=line, image=image, piece=piece, pieces=pieces,
        rounding=batch * lines * pieces, step=stride_x * pixel,
        deep=tile_words(taps * own // 2), words=offsets.size, taps_y=kernel_y,
        apart_y=windows.dilations[0], task_rows=part.rows,
        task_height=part.height, task_width=part.width, copy=copy, work=work, tasks=tasks,
    )  # fmt: skip
    threads = min(threads, max(tasks, batch * lines * pieces))
    floats = -(-(work + -(-copy // threads)) // 16) * 16
    return ConvLayout(numbers, threads, floats, output, fixed(offsets))


def _cut(
    batch: int, rows: int, windows: Windows, image: int, weights: int, threads: int
) -> TaskPart:
    """Return a task's part: that of the ways to have enough tasks which reads the fewest bytes.

    Each task reads its part of an image for each of its panels, and its weights for each line.
    """
    height, width = windows.output
    length = width if is_line(windows) else height
    wanted = -(-TASKS_PER_THREAD * threads // batch) if threads > 1 else 1
    panels = -(-rows // TILE_COLUMNS)
    best = None
    for parts in {min(panels, number) for number in (1, 2, 3, 4, 6, 8, 12, 16, wanted)}:
        bands = max(-(-wanted // parts), -(-image // HELD))
        bands = min(bands, -(-length // TILE_PLACES) if is_line(windows) else length)
        lacking = max(0, wanted - bands * parts)
        cost = lacking, bands * weights + parts * image, parts
        if best is None or cost < best[0]:
            best = cost, bands, parts
    assert best is not None, "there is one part at least"
    _, bands, parts = best
    high = -(-panels // parts) * TILE_COLUMNS
    span = -(-length // bands)
    return TaskPart(high, 1, span) if is_line(windows) else TaskPart(high, span, width)
