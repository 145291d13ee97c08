"""Convolution as an implicit product, by a kernel of the provider's own."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from tenonnx.operators import Array
from tenonnx_array.conv import convolve
from tenonnx_array.windows import Windows
from tenonnx_cuda.conv.task import ConvTask, finish
from tenonnx_cuda.sources import LARGEST_GRID, SOURCE_TYPES, THREADS_PER_BLOCK

TILE_SIDE: Final = 64
# Maps, and places, of a block, and how much of a sum it takes at a time: as ``conv.cu`` says.
STEP_DEPTH: Final = 32

# Blocks that keep a device busy: with fewer tiles than that, their sums are shared out.
BUSY_BLOCKS: Final = 264

# The least part of a sum that a block has.
MIN_SLICE_DEPTH: Final = 4 * STEP_DEPTH


def numbers_of(windows: Windows) -> list[np.int32]:
    """Return the kernels' arguments of windows along one axis or two: sizes, steps, padding."""
    line = len(windows.size) == 1
    pairs = (windows.size, windows.output, windows.strides, windows.dilations, windows.begins)
    return [np.int32(n) for pair, one in zip(pairs, (1, 1, 1, 1, 0), strict=True)
            for n in ((one, *pair) if line else pair)]  # fmt: skip


def window_of(windows: Windows) -> tuple[int, int]:
    """Return height and width of a kernel."""
    return (1, windows.kernel[0]) if len(windows.kernel) == 1 else windows.kernel  # type: ignore[return-value]  # two


def implicit(task: ConvTask) -> Array | None:
    """Return the product; of a 1x1 kernel cuBLAS's, which needs no windows for it."""
    if task.transposed or task.x.ndim == 5 or len(task.x) * task.group > LARGEST_GRID:
        return None
    xp = task.target.xp
    x, w = (xp.ascontiguousarray(a) for a in (task.x, task.w))
    b, z = (None if a is None else xp.ascontiguousarray(a) for a in (task.b, task.z))
    if math.prod(task.windows.kernel) == 1:
        y = sums = convolve(xp, x, w, task.windows, task.group)
    else:
        sums = partial_sums(task, x, w)
        y = xp.empty(task.shape, x.dtype)
    if sums is not y or b is not None or z is not None or task.ending.activation:
        finish(task.target, sums, y, b, z, task.ending)
    return y


def partial_sums(task: ConvTask, x: Array, w: Array) -> Array:
    """Return sums [slices, batch, maps, places] of contiguous arrays, which are to be added up."""
    target, element = task.target, SOURCE_TYPES[x.dtype]
    maps, places = w.shape[0] // task.group, math.prod(task.windows.output)
    depth = w.size // w.shape[0]
    tiles = -(-places // TILE_SIDE)
    blocks_of = tiles * -(-maps // TILE_SIDE) * x.shape[0] * task.group
    slices = max(1, min(-(-BUSY_BLOCKS // blocks_of), depth // MIN_SLICE_DEPTH))
    length = -(-depth // (slices * STEP_DEPTH)) * STEP_DEPTH
    slices = -(-depth // length)
    tensor = target.has_tensor_cores and (element != "f32" or target.tf32)
    height, width = window_of(task.windows)
    macros: dict[str, Any] = {"T": element, "KH": height, "KW": width, "TENSOR": int(tensor)}
    partial = target.xp.empty((slices, x.shape[0], w.shape[0], places), np.float32)
    sizes = [np.int32(n) for n in (task.group, w.shape[1], maps, slices, length)]
    grid = (tiles * slices, -(-maps // TILE_SIDE), x.shape[0] * task.group)
    launch = target.kernel("conv/conv", "convolve", **macros)
    launch(grid, (THREADS_PER_BLOCK,), (x, w, partial, *sizes, *numbers_of(task.windows)))
    return partial
