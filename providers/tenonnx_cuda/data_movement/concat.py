"""Concat of images whose channels are last in memory, and of a cache and what is new in it."""

from __future__ import annotations

import functools
from typing import Any

from tenonnx.operators import Array
from tenonnx_cuda.capture.dynamic_length import DynamicCall
from tenonnx_cuda.capture.tracer import is_capturing
from tenonnx_cuda.conv import layouts
from tenonnx_cuda.kernel_selection import Call, Site, Target, choose
from tenonnx_cuda.kv_cache import is_cache, longer, write


@choose("Concat")
def concat(site: Site, plain: Call) -> Call | None:
    """Concat of channels, and of caches."""
    if is_cache(site.node):
        return growing(site, plain)
    axis = site.attribute("axis", 1)
    if not layouts.may_choose(site.node):
        return None
    return functools.partial(_by_channel, site.target, plain, axis)


def _by_channel(target: Target, plain: Call, axis: int, *given: Array) -> Array:
    rank = given[0].ndim
    if rank < 3 or axis % rank != 1 or not all(layouts.has_channels_last(x) for x in given):
        return plain(*given)
    return layouts.first(target.xp.concatenate([layouts.last(x) for x in given], axis=-1))


def growing(site: Site, plain: Call) -> Call:
    """Concat of a cache and its new steps, which are written behind it if there is room."""
    axis: int = site.attribute("axis", 0)
    call = functools.partial(_longer, site.target, plain, axis)
    return DynamicCall(call, {0: axis})


def _longer(
    target: Target, plain: Call, axis: int, past: Array, new: Array, *, _out: Array | None = None
) -> Any:
    axis %= past.ndim
    sizes = [(x.ndim, x.dtype, x.shape[:axis], x.shape[axis + 1 :]) for x in (past, new)]
    stays = _out is not None or is_capturing()
    if sizes[0] != sizes[1] or not past.size or not new.size or stays:
        return plain(past, new)
    before, steps = int(past.shape[axis]), int(new.shape[axis])
    (present,) = longer(target.platform, [past], axis, steps)
    write(target.platform, present, new, before, axis)
    return present
