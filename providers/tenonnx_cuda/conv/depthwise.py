"""Convolution of each channel by itself, by a kernel of the provider's own."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from tenonnx.operators import Array
from tenonnx_cuda.conv import layouts
from tenonnx_cuda.conv.implicit import numbers_of, window_of
from tenonnx_cuda.conv.task import ConvTask
from tenonnx_cuda.elementwise.formulas import function_of
from tenonnx_cuda.sources import LARGEST_GRID, SOURCE_TYPES, THREADS_PER_BLOCK, is_aligned, pointer

VECTOR_CHANNELS: Final = 4
# Maps that a thread of ``depthwise.cu`` has at once, and places one after another.
THREAD_PLACES: Final = 4

# Of its windows, so that their weights fit in a block's shared memory.
LARGEST_WINDOW: Final = 64


def depthwise(task: ConvTask) -> Array | None:
    """Return what the kernel computes; ``None`` for what it does not take."""
    xp, x, w, b, z, shape = task.target.xp, task.x, task.w, task.b, task.z, task.shape
    alone = w.shape[1] == 1 and task.group == x.shape[1]
    small = math.prod(task.windows.kernel) <= LARGEST_WINDOW and max(shape[:2]) <= LARGEST_GRID
    if task.transposed or not alone or not small or x.ndim == 5:
        return None
    last = task.free and layouts.has_channels_last(x) is True
    y = layouts.empty(xp, shape, x.dtype, at_end=last)
    x = layouts.with_channels(xp, x, at_end=last)
    z = None if z is None else layouts.with_channels(xp, z, at_end=last)
    w, b = (None if a is None else xp.ascontiguousarray(a) for a in (w, b))
    times, maps = shape[1] // x.shape[1], shape[1]
    even = (
        times == 1 and maps % VECTOR_CHANNELS == 0 and is_aligned(x, *(() if z is None else (z,)))
    )
    vector = VECTOR_CHANNELS if last and even else 1
    height, width = window_of(task.windows)
    launch = task.target.kernel(
        "conv/depthwise", "depthwise", T=SOURCE_TYPES[x.dtype], KH=height, KW=width, TIMES=times,
        LAST=int(last), VECTOR=vector, ACTIVATED=function_of(task.ending.activation),
    )  # fmt: skip
    chunk, places = (
        (32 * vector, 8 * THREAD_PLACES) if last else (1, THREADS_PER_BLOCK * THREAD_PLACES)
    )
    grid = (-(-math.prod(shape[2:]) // places), -(-maps // chunk), shape[0])
    numbers = (np.int32(maps), *numbers_of(task.windows), *task.ending.factors)
    launch(grid, (THREADS_PER_BLOCK,), (x, w, pointer(b), pointer(z), y, *numbers))
    return y
