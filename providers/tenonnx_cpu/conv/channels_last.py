"""Operators on images that have their channels last, by calls for images that have them first.

Nothing is moved: an image is seen otherwise, as a view. The memory of a result has its channels
first, as the next such operator's kernel wants it, so that only the first one of a row of them
copies its image.
"""

from __future__ import annotations

import functools
from typing import Any

from tenonnx.by_name import cacheable
from tenonnx_cpu.kernel_selection import Call, NDArray


@cacheable
def channels_first(x: NDArray) -> NDArray:
    """Return an image ``(N, D1, ..., C)`` as ``(N, C, D1, ...)``."""
    return x.transpose(0, -1, *range(1, x.ndim - 1))


@cacheable
def channels_last(x: NDArray) -> NDArray:
    """Return an image ``(N, C, D1, ...)`` as ``(N, D1, ..., C)``."""
    return x.transpose(0, *range(2, x.ndim), 1)


def is_last(x: NDArray) -> bool:
    """Return whether an image ``(N, C, H, W)`` lies in memory as ``(N, H, W, C)`` and no other."""
    if x.ndim != 4 or x.flags.c_contiguous:
        return False
    return x.transpose(0, 2, 3, 1).flags.c_contiguous


def memory_order(x: NDArray) -> list[int]:
    """Return an array's axes in the order in which they lie in memory."""
    return sorted(range(x.ndim), key=lambda axis: -x.strides[axis])


def taking_last(call: Call, *images: int) -> Call:
    """Return a call on images with channels last; ``images`` are their places."""
    return functools.partial(_turned, call, channels_first, channels_last, images)


def taking_first(call: Call, *images: int) -> Call:
    """Return a call on images with channels first, by one on those that have them last."""
    return functools.partial(_turned, call, channels_last, channels_first, images)


@cacheable
def _turned(call: Call, before: Call, after: Call, images: tuple[int, ...], *given: Any) -> Any:
    arrays = list(given)
    for place in images:
        if place < len(arrays) and arrays[place] is not None:
            arrays[place] = before(arrays[place])
    return after(call(*arrays))
