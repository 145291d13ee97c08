"""Normalization of images in one launch: by channel, and of channels in groups."""

from __future__ import annotations

import math

import numpy as np

from tenonnx.operators import Array
from tenonnx_cuda.conv import layouts
from tenonnx_cuda.kernel_selection import Call, Site, choose, same_element
from tenonnx_cuda.sources import LARGEST_GRID, THREADS, blocks

MANY_THREADS = 1024
"""Of a block that has a group of many elements."""

LARGEST = 2**31 - MANY_THREADS
"""Elements of a group, which a thread of a block counts by an int."""

FLOAT32 = 1


@choose("BatchNormalization")
def batch_normalization(site: Site, plain: Call) -> Call | None:
    """BatchNormalization by the statistics that it is given."""
    epsilon = np.float32(site.attribute("epsilon", 1e-5))
    if site.version < 9 or site.attribute("training_mode", 0) or len(site.node.outputs) > 1:
        return None
    free = layouts.may_choose(site.node)

    def call(x: Array, *parameters: Array) -> tuple[Array, ...]:
        element = same_element(x, *parameters)
        if element is None or x.ndim < 2 or not x.size or len(parameters) != 4:
            return plain(x, *parameters)  # type: ignore[no-any-return]  # a kernel of the library
        last = free and x.ndim > 2 and layouts.lies(x) is True
        x = layouts.laid(site.xp, x, at_end=last)
        y = layouts.empty(site.xp, x.shape, x.dtype, at_end=last)
        given = map(site.xp.ascontiguousarray, parameters)
        numbers = (np.int64(x.size), np.int32(x.shape[1]), np.int32(math.prod(x.shape[2:])))
        launch = site.kernel("conv/channel_norms", "batch_norm", T=element, LAST=int(last))
        launch(blocks(x.size), (THREADS,), (x, *given, y, *numbers, epsilon))
        return (y,)

    return call


@choose("InstanceNormalization")
def instance_normalization(site: Site, plain: Call) -> Call | None:
    """InstanceNormalization: each channel is a group."""
    if site.version < 6:
        return None

    def call(x: Array, scale: Array, bias: Array) -> Array:
        y = grouped(site, x, scale, bias, x.shape[1], 1)
        return plain(x, scale, bias) if y is None else y

    return call


@choose("GroupNormalization")
def group_normalization(site: Site, plain: Call) -> Call | None:
    """GroupNormalization, whose scales were the groups' before version 21."""
    groups = site.attribute("num_groups", 1)
    if site.attribute("stash_type", FLOAT32) != FLOAT32:
        return None

    def call(x: Array, scale: Array, bias: Array) -> Array:
        size = x.shape[1] // groups
        y = grouped(site, x, scale, bias, groups, size if site.version < 21 else 1)
        return plain(x, scale, bias) if y is None else y

    return call


def grouped(
    site: Site, x: Array, scale: Array, bias: Array, groups: int, shared: int
) -> Array | None:
    """Returns images normalized in groups of channels; ``None`` where the kernel does not fit.

    Args:
        site: The node.
        x: [batch, channels, ...].
        scale: A factor for each ``shared`` channels.
        bias: A summand for each ``shared`` channels.
        groups: How many.
        shared: Channels that have a factor in common.
    """
    element, channels = same_element(x, scale, bias), x.shape[1]
    if element is None or x.ndim < 3 or not x.size or channels % groups:
        return None
    size, places = channels // groups, math.prod(x.shape[2:])
    fits = size * places <= LARGEST and x.shape[0] <= LARGEST_GRID
    if not fits or not scale.size == bias.size == channels // shared:
        return None
    last = layouts.may_choose(site.node) and layouts.lies(x) is True
    x = layouts.laid(site.xp, x, at_end=last)
    y = layouts.empty(site.xp, x.shape, x.dtype, at_end=last)
    given = map(site.xp.ascontiguousarray, (scale, bias))
    numbers = (*map(np.int32, (size, shared, places)), np.float32(site.attribute("epsilon", 1e-5)))
    threads = MANY_THREADS if size * places >= 4 * MANY_THREADS else THREADS
    launch = site.kernel("conv/channel_norms", "group_norm", T=element, LAST=int(last))
    launch((groups, x.shape[0]), (threads,), (x, *given, y, *numbers))
    return y
