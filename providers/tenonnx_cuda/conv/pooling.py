"""Pooling in one launch, whichever way images lie."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from tenonnx.operators import Array
from tenonnx_array.windows import place
from tenonnx_cuda.conv import layouts
from tenonnx_cuda.conv.implicit import numbers_of, window_of
from tenonnx_cuda.kernel_selection import Call, Site, Target, choose, same_element
from tenonnx_cuda.sources import LARGEST_GRID, THREADS_PER_BLOCK, blocks

CHANNELS: Final = 8
# Channels of a block where they are first, and last, as ``pool.cu`` says of whole images.
BLOCK_CHANNELS: Final = 32

WINDOW_ATTRIBUTES: Final = ("strides", "dilations", "pads")


@choose("MaxPool", "AveragePool")
def pool(site: Site, plain: Call) -> Call | None:
    """MaxPool and AveragePool along one axis or two."""
    maximum = site.node.op_type == "MaxPool"
    if len(site.node.outputs) > 1:
        return None
    geometry: dict[str, Any] = {
        name: tuple(value)
        for name in WINDOW_ATTRIBUTES
        if (value := site.attribute(name, None)) is not None
    }
    geometry["kernel"] = tuple(site.attribute("kernel_shape", ()))
    geometry["auto_pad"] = site.attribute("auto_pad", "NOTSET")
    geometry["ceil_mode"] = site.attribute("ceil_mode", 0)
    pads = bool(site.attribute("count_include_pad", 0)) and not maximum
    free = layouts.may_choose(site.node)
    return functools.partial(_pooled, site.target, plain, geometry, maximum, pads, free)


def _pooled(
    target: Target,
    plain: Call,
    geometry: Mapping[str, Any],
    maximum: bool,
    pads: bool,
    free: bool,
    X: Array,
) -> Any:
    element = same_element(X)
    if element is None or X.ndim not in (3, 4):
        return plain(X)
    windows = place(X.shape[2:], **geometry)
    shape = (*X.shape[:2], *windows.output)
    if not X.size or not math.prod(shape):
        return plain(X)
    last = free and layouts.has_channels_last(X) is True
    x = layouts.with_channels(target.xp, X, at_end=last)
    y = layouts.empty(target.xp, shape, X.dtype, at_end=last)
    height, width, *numbers = numbers_of(windows)
    edges = windows.begins, windows.ends
    seen = [(*(0,) * (2 - len(e)), *(e if pads else (0,) * len(e))) for e in edges]
    sizes = (np.int64(y.size), np.int32(X.shape[1]), height, width, *numbers[:2])
    steps = (*map(np.int32, window_of(windows)), *numbers[2:])
    bounds = [np.int32(n) for pair in seen for n in pair]
    macros = {"T": element, "LAST": int(last), "MAXIMUM": int(maximum)}
    launch = target.kernel("conv/pool", "pool", **macros)
    launch(blocks(y.size), (THREADS_PER_BLOCK,), (x, y, *sizes, *steps, *bounds))
    return (y,) if maximum else y


@choose("GlobalAveragePool", "GlobalMaxPool")
def pool_whole(site: Site, plain: Call) -> Call:
    """GlobalAveragePool and GlobalMaxPool."""
    maximum = int(site.node.op_type == "GlobalMaxPool")
    return functools.partial(_pooled_whole, site.target, plain, maximum)


def _pooled_whole(target: Target, plain: Call, maximum: int, X: Array) -> Array:
    element = same_element(X)
    if element is None or X.ndim < 3 or not X.size:
        return plain(X)
    batch, channels = X.shape[:2]
    last = layouts.has_channels_last(X) is True and batch <= LARGEST_GRID
    x = layouts.with_channels(target.xp, X, at_end=last)
    y = target.xp.empty((batch, channels, *(1,) * (X.ndim - 2)), X.dtype)
    grid = (-(-channels // BLOCK_CHANNELS), batch) if last else (-(-batch * channels // CHANNELS),)
    launch = target.kernel("conv/pool", "pool_whole", T=element, LAST=int(last), MAXIMUM=maximum)
    sizes = (channels, batch, X.size // (batch * channels))
    launch(grid, (THREADS_PER_BLOCK,), (x, y, *map(np.int32, sizes)))
    return y
