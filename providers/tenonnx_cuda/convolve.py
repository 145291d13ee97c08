"""Convolution in one and two dimensions, without writing the windows down."""

from __future__ import annotations

import math

import numpy as np

from tenonnx.operators import Array
from tenonnx_array.conv import check_weights
from tenonnx_array.windows import place
from tenonnx_cuda.chosen import Call, Site, choose, same_element
from tenonnx_cuda.sources import THREADS, pointer

TILE = 64
"""Maps, and places, of a block: as ``conv.cu`` says."""


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
        maps, places = W.shape[0] // group, math.prod(windows.output)
        y = xp.empty((X.shape[0], W.shape[0], *windows.output), X.dtype)
        if not y.size or not X.size:
            return plain(X, W, B)
        line = X.ndim == 3
        pairs = (windows.size, windows.kernel, windows.output, windows.strides,
                 windows.dilations, windows.begins)  # fmt: skip
        fill = (1, 1, 1, 1, 1, 0)
        numbers = [n for pair, one in zip(pairs, fill, strict=True)
                   for n in ((one, *pair) if line else pair)]  # fmt: skip
        arrays = [None if a is None else xp.ascontiguousarray(a) for a in (X, W, B)]
        sizes = [np.int32(n) for n in (group, W.shape[1], maps, *numbers)]
        grid = (-(-places // TILE), -(-maps // TILE), X.shape[0] * group)
        launch = site.kernel("conv", "convolve", T=element)
        launch(grid, (THREADS,), (*map(pointer, arrays), y, *sizes))
        return y

    return call
