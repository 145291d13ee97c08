"""Convolution in one and two dimensions, without writing the windows down."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from tenonnx.operators import Array
from tenonnx_array.conv import check_weights
from tenonnx_array.windows import Windows, place
from tenonnx_cuda.chosen import Call, Site, choose, same_element
from tenonnx_cuda.sources import THREADS, blocks, pointer

TILE: Final = 64
DEPTH: Final = 32
"""Maps, and places, of a block, and how much of a sum it takes at a time: as ``conv.cu`` says."""

BLOCKS: Final = 264
"""Blocks that keep a device busy: with fewer tiles than that, their sums are shared out."""

LEAST: Final = 4 * DEPTH
"""Of a sum, what a block has at least."""


@choose("Conv")
def conv(site: Site, plain: Call) -> Call:
    """Conv; a 1x1 kernel is left to cuBLAS, which needs no windows for it."""
    xp, group = site.xp, site.attribute("group", 1)
    geometry = {
        name: None if (value := site.attribute(name, None)) is None else tuple(value)
        for name in ("strides", "dilations", "pads")
    }
    auto_pad = site.attribute("auto_pad", "NOTSET")

    def call(X: Array, W: Array, B: Array | None = None) -> Array:
        element = same_element(X, W, B)
        if element is None or X.ndim not in (3, 4) or math.prod(W.shape[2:]) == 1 or not W.size:
            return plain(X, W, B)
        check_weights(X, W, group, None)
        windows = place(X.shape[2:], W.shape[2:], auto_pad=auto_pad, **geometry)
        y = xp.empty((X.shape[0], W.shape[0], *windows.output), X.dtype)
        if not y.size or not X.size:
            return plain(X, W, B)
        x, w, b = (None if a is None else xp.ascontiguousarray(a) for a in (X, W, B))
        convolve(site, element, x, w, b, y, windows, group)
        return y

    return call


def convolve(
    site: Site,
    element: str,
    x: Array,
    w: Array,
    b: Array | None,
    y: Array,
    windows: Windows,
    group: int,
) -> None:
    """Writes a convolution of contiguous arrays to y."""
    line = x.ndim == 3
    pairs = (windows.size, windows.output, windows.strides, windows.dilations, windows.begins)
    numbers = [n for pair, one in zip(pairs, (1, 1, 1, 1, 0), strict=True)
               for n in ((one, *pair) if line else pair)]  # fmt: skip
    maps, places = w.shape[0] // group, math.prod(windows.output)
    depth = w.size // w.shape[0]
    tiles = -(-places // TILE)
    blocks_of = tiles * -(-maps // TILE) * x.shape[0] * group
    slices = max(1, min(-(-BLOCKS // blocks_of), depth // LEAST))
    length = -(-depth // (slices * DEPTH)) * DEPTH
    slices = -(-depth // length)
    tensor = site.has_tensor_cores and (element != "f32" or site.tf32)
    window = (1, *windows.kernel) if line else tuple(windows.kernel)
    macros = {"T": element, "KH": window[0], "KW": window[1], "TENSOR": int(tensor)}
    partial = site.xp.empty((slices, y.size), np.float32)
    sizes = [np.int32(n) for n in (group, w.shape[1], maps, slices, length, *numbers)]
    grid = (tiles * slices, -(-maps // TILE), x.shape[0] * group)
    site.kernel("conv", "convolve", **macros)(grid, (THREADS,), (x, w, partial, *sizes))
    counts = (np.int32(slices), np.int64(y.size), np.int32(w.shape[0]), np.int32(places))
    finish = site.kernel("conv", "finish", **macros)
    finish(blocks(y.size), (THREADS,), (partial, pointer(b), y, *counts))
