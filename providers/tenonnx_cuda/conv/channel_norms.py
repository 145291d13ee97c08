"""Normalization of images in one launch: by channel, and of channels in groups."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from tenonnx.operators import Array
from tenonnx_cuda.conv import layouts
from tenonnx_cuda.kernel_selection import Call, Site, Target, choose, same_element
from tenonnx_cuda.sources import LARGEST_GRID, THREADS_PER_BLOCK, blocks

# Of a block that has a group of many elements.
MANY_THREADS = 1024

# A thread of a block counts the elements of a group by an int.
MAX_GROUP_ELEMENTS = 2**31 - MANY_THREADS

STASH_FLOAT32 = 1


@choose("BatchNormalization")
def batch_normalization(site: Site, plain: Call) -> Call | None:
    """BatchNormalization by the statistics that it is given."""
    epsilon = np.float32(site.attribute("epsilon", 1e-5))
    if site.version < 9 or site.attribute("training_mode", 0) or len(site.node.outputs) > 1:
        return None
    free = layouts.may_choose(site.node)
    return functools.partial(_by_channel, site.target, plain, free, epsilon)


def _by_channel(
    target: Target, plain: Call, free: bool, epsilon: np.float32, x: Array, *parameters: Array
) -> tuple[Array, ...]:
    element = same_element(x, *parameters)
    if element is None or x.ndim < 2 or not x.size or len(parameters) != 4:
        return plain(x, *parameters)  # type: ignore[no-any-return]  # a kernel of the library
    last = free and x.ndim > 2 and layouts.has_channels_last(x) is True
    x = layouts.with_channels(target.xp, x, at_end=last)
    y = layouts.empty(target.xp, x.shape, x.dtype, at_end=last)
    given = map(target.xp.ascontiguousarray, parameters)
    numbers = (np.int64(x.size), np.int32(x.shape[1]), np.int32(math.prod(x.shape[2:])))
    launch = target.kernel("conv/channel_norms", "batch_norm", T=element, LAST=int(last))
    launch(blocks(x.size), (THREADS_PER_BLOCK,), (x, *given, y, *numbers, epsilon))
    return (y,)


@choose("InstanceNormalization")
def instance_normalization(site: Site, plain: Call) -> Call | None:
    """InstanceNormalization: each channel is a group."""
    return None if site.version < 6 else GroupNorm.of(site, plain, None, shares=False)


@choose("GroupNormalization")
def group_normalization(site: Site, plain: Call) -> Call | None:
    """GroupNormalization, whose scales were the groups' before version 21."""
    groups = site.attribute("num_groups", 1)
    if site.attribute("stash_type", STASH_FLOAT32) != STASH_FLOAT32:
        return None
    return GroupNorm.of(site, plain, groups, shares=site.version < 21)


@dataclass(frozen=True)
class GroupNorm:
    """A call that normalizes images (batch, channels, ...) in groups of channels.

    Attributes:
        target: The device.
        plain: Takes what the kernel does not.
        groups: How many there are; ``None`` for one of each channel.
        shares: Whether a group has one factor and one summand, rather than one for each channel.
        epsilon: Added to the variance.
        free: Whether the result may have its channels last.
    """

    target: Target
    plain: Call
    groups: int | None
    shares: bool
    epsilon: np.float32
    free: bool

    @classmethod
    def of(cls, site: Site, plain: Call, groups: int | None, *, shares: bool) -> GroupNorm:
        """Return the call of a node."""
        epsilon, free = np.float32(site.attribute("epsilon", 1e-5)), layouts.may_choose(site.node)
        return cls(site.target, plain, groups, shares, epsilon, free)

    def __call__(self, x: Array, scale: Array, bias: Array) -> Array:
        """Return the images normalized, by as many factors and summands."""
        y = self._grouped(x, scale, bias)
        return self.plain(x, scale, bias) if y is None else y

    def _grouped(self, x: Array, scale: Array, bias: Array) -> Array | None:
        channels = x.shape[1]
        groups = channels if self.groups is None else self.groups
        shared = channels // groups if self.shares else 1
        element = same_element(x, scale, bias)
        if element is None or x.ndim < 3 or not x.size or channels % groups:
            return None
        size, places = channels // groups, math.prod(x.shape[2:])
        fits = size * places <= MAX_GROUP_ELEMENTS and x.shape[0] <= LARGEST_GRID
        if not fits or not scale.size == bias.size == channels // shared:
            return None
        last = self.free and layouts.has_channels_last(x) is True
        x = layouts.with_channels(self.target.xp, x, at_end=last)
        y = layouts.empty(self.target.xp, x.shape, x.dtype, at_end=last)
        given = map(self.target.xp.ascontiguousarray, (scale, bias))
        numbers = (*map(np.int32, (size, shared, places)), self.epsilon)
        threads = MANY_THREADS if size * places >= 4 * MANY_THREADS else THREADS_PER_BLOCK
        launch = self.target.kernel("conv/channel_norms", "group_norm", T=element, LAST=int(last))
        launch((groups, x.shape[0]), (threads,), (x, *given, y, *numbers))
        return y
