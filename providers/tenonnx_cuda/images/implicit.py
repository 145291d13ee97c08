"""Convolution as an implicit product, by a kernel of the provider's own."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from tenonnx.operators import Array
from tenonnx_array.windows import Windows
from tenonnx_cuda.chosen import Site
from tenonnx_cuda.sources import THREADS

TILE: Final = 64
DEPTH: Final = 32
"""Maps, and places, of a block, and how much of a sum it takes at a time: as ``conv.cu`` says."""

BLOCKS: Final = 264
"""Blocks that keep a device busy: with fewer tiles than that, their sums are shared out."""

LEAST: Final = 4 * DEPTH
"""Of a sum, what a block has at least."""


def numbers_of(windows: Windows) -> list[np.int32]:
    """Returns the kernels' arguments of windows along one axis or two: sizes, steps, padding."""
    line = len(windows.size) == 1
    pairs = (windows.size, windows.output, windows.strides, windows.dilations, windows.begins)
    return [np.int32(n) for pair, one in zip(pairs, (1, 1, 1, 1, 0), strict=True)
            for n in ((one, *pair) if line else pair)]  # fmt: skip


def window_of(windows: Windows) -> tuple[int, int]:
    """Returns height and width of a kernel."""
    return (1, windows.kernel[0]) if len(windows.kernel) == 1 else windows.kernel  # type: ignore[return-value]  # two


def convolve(site: Site, element: str, x: Array, w: Array, windows: Windows, group: int) -> Array:
    """Returns sums [slices, batch, maps, places] of contiguous arrays, which are to be added up."""
    maps, places = w.shape[0] // group, math.prod(windows.output)
    depth = w.size // w.shape[0]
    tiles = -(-places // TILE)
    blocks_of = tiles * -(-maps // TILE) * x.shape[0] * group
    slices = max(1, min(-(-BLOCKS // blocks_of), depth // LEAST))
    length = -(-depth // (slices * DEPTH)) * DEPTH
    slices = -(-depth // length)
    tensor = site.has_tensor_cores and (element != "f32" or site.tf32)
    height, width = window_of(windows)
    macros: dict[str, Any] = {"T": element, "KH": height, "KW": width, "TENSOR": int(tensor)}
    partial = site.xp.empty((slices, x.shape[0], w.shape[0], places), np.float32)
    sizes = [np.int32(n) for n in (group, w.shape[1], maps, slices, length)]
    grid = (tiles * slices, -(-maps // TILE), x.shape[0] * group)
    launch = site.kernel("conv", "convolve", **macros)
    launch(grid, (THREADS,), (x, w, partial, *sizes, *numbers_of(windows)))
    return partial
