"""Convolution in one and two dimensions, without writing the windows down."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

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


ACTIVATIONS: Final[dict[str, tuple[Any, ...]]] = {
    "": (0,),
    "Relu": (1,),
    "LeakyRelu": (2, 0.01),
    "Clip": (3,),
    "HardSigmoid": (4, 0.2, 0.5),
    "HardSwish": (5,),
    "Sigmoid": (6,),
    "Tanh": (7,),
}
"""What ``conv.cu`` calls activations, and the defaults of their parameters."""


@dataclass(frozen=True)
class Ending:
    """What becomes of a convolution's results.

    Attributes:
        activation: Its number.
        alpha: Its parameters.
        beta: Likewise.
    """

    activation: int = 0
    alpha: float = 0.0
    beta: float = 0.0


@choose("Conv")
def conv(site: Site, plain: Call) -> Call:
    """Conv; a 1x1 kernel is left to cuBLAS, which needs no windows for it."""
    return convolution(site, plain, Ending())


@choose("FusedConv", domain="com.microsoft")
def fused_conv(site: Site, plain: Call) -> Call | None:
    """FusedConv: a sum and an activation are added where the slices of a convolution are."""
    name = site.attribute("activation", "")
    if name not in ACTIVATIONS:
        return None
    activation, *defaults = ACTIVATIONS[name]
    given = [*site.attribute("activation_params", ()), *[None] * 2]
    numbers = [d if g is None else g for g, d in zip(given, (*defaults, 0.0, 0.0), strict=False)]
    return convolution(site, plain, Ending(activation, *numbers[:2]))


def convolution(site: Site, plain: Call, ending: Ending) -> Call:
    """Returns a call of X, W, B and what is added."""
    xp, group = site.xp, site.attribute("group", 1)
    geometry = {
        name: None if (value := site.attribute(name, None)) is None else tuple(value)
        for name in ("strides", "dilations", "pads")
    }
    auto_pad = site.attribute("auto_pad", "NOTSET")

    def call(X: Array, W: Array, B: Array | None = None, *more: Array | None) -> Array:
        element = same_element(X, W, B, *more)
        if element is None or X.ndim not in (3, 4) or math.prod(W.shape[2:]) == 1 or not W.size:
            return plain(X, W, B, *more)
        check_weights(X, W, group, None)
        windows = place(X.shape[2:], W.shape[2:], auto_pad=auto_pad, **geometry)
        y = xp.empty((X.shape[0], W.shape[0], *windows.output), X.dtype)
        fits = all(z is None or z.shape == y.shape for z in more)
        if not y.size or not X.size or not fits:
            return plain(X, W, B, *more)
        given = (X, W, B, *(more or (None,)))
        x, w, b, z = (None if a is None else xp.ascontiguousarray(a) for a in given)
        convolve(site, element, (x, w, b, z), y, windows, group, ending)
        return y

    return call


def convolve(
    site: Site,
    element: str,
    given: tuple[Any, ...],
    y: Array,
    windows: Windows,
    group: int,
    ending: Ending,
) -> None:
    """Writes a convolution of contiguous arrays (x, w, bias, what is added) to y."""
    x, w, b, z = given
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
    macros = {"T": element, "KH": window[0], "KW": window[1], "TENSOR": int(tensor),
              "ACTIVATION": ending.activation}  # fmt: skip
    partial = site.xp.empty((slices, y.size), np.float32)
    sizes = [np.int32(n) for n in (group, w.shape[1], maps, slices, length, *numbers)]
    grid = (tiles * slices, -(-maps // TILE), x.shape[0] * group)
    site.kernel("conv", "convolve", **macros)(grid, (THREADS,), (x, w, partial, *sizes))
    counts = (np.int32(slices), np.int64(y.size), np.int32(w.shape[0]), np.int32(places))
    finish = site.kernel("conv", "finish", **macros)
    arrays = (partial, pointer(b), pointer(z), y)
    factors = (np.float32(ending.alpha), np.float32(ending.beta))
    finish(blocks(y.size), (THREADS,), (*arrays, *counts, *factors))
