"""Windows over elements that have no kernel of images: Col2Im, and MaxPool of float64."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_array.allocation import check_allocation
from tenonnx_array.windows import Windows, placement
from tenonnx_cpu.buffers import F64, contiguous, empty, frozen
from tenonnx_cpu.capture.capturable import where_constant
from tenonnx_cpu.capture.launch import Launch
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.jit.threads.sharing import shared_out
from tenonnx_cpu.kernel_selection import Call, NDArray, Site, specialize

MAX_WINDOWS = JitKernel("conv.typed_windows", "typed_maxima")
FOLD_WINDOWS = JitKernel("conv.typed_windows", "typed_sums")

# Elements that windows see which are worth a second thread.
MIN_SEEN_ELEMENTS_PER_THREAD = 1 << 15

# The number that lengths, distances and padding stay below, so that products of two fit in 64 bits.
MAX_WINDOW_NUMBER = 1 << 31


def maxima(x: NDArray, windows: Windows, threads: int) -> Launch | None:
    """Return a launch of the maxima of windows over x (N, C, ...); ``None`` if no kernel does."""
    run, images = MAX_WINDOWS.run, math.prod(x.shape[:2])
    if run is None or x.dtype != F64:
        return None
    made = _cut(windows, images, windows.output, x.dtype, threads)
    if made is None:
        return None
    y = empty((*x.shape[:2], *windows.output), x.dtype)
    return Launch(run, (_bytes(x), _bytes(y), *made), y)


def _bytes(x: NDArray) -> NDArray:
    return contiguous(x).reshape(-1).view(np.uint8)


def _cut(
    windows: Windows, images: int, results: tuple[int, ...], dtype: np.dtype[Any], threads: int
) -> tuple[NDArray, int] | None:
    """Return the kernel's numbers, and how many threads are of use; ``None`` for large numbers.

    Args:
        windows: The windows.
        images: The number of images of one channel.
        results: The shape of the result of an image.
        dtype: The elements' dtype.
        threads: How many to use at most.
    """
    fields = (
        (windows.size, 1), (windows.output, 1), (windows.kernel, 1), (windows.strides, 1),
        (windows.dilations, 1), (windows.begins, 0),
    )  # fmt: skip
    along = [n for axes, one in fields for n in (one,) * (3 - len(axes)) + axes]
    if max(along) >= MAX_WINDOW_NUMBER:
        return None
    lines = images * math.prod(results[:-1])
    seen = images * math.prod(windows.output) * math.prod(windows.kernel)
    grain, team = shared_out(lines, seen, MIN_SEEN_ELEMENTS_PER_THREAD, threads)
    numbers = *along, dtype.itemsize, dtype.kind == "f", lines, grain, -(-lines // grain)
    return frozen(np.array(numbers, np.int64)), team


@cacheable
@dataclass(frozen=True)
class Folding:
    """Blocks put back into images.

    Attributes:
        strides: The distances of blocks, if the node says them.
        dilations: The distances of a block's elements.
        pads: The padding of images.
        threads: How many to use at most.
        plain: numpy's kernel.
    """

    strides: tuple[int, ...] | None
    dilations: tuple[int, ...] | None
    pads: tuple[int, ...] | None
    threads: int
    plain: Call

    def __call__(self, x: NDArray, image: NDArray, block: NDArray) -> Any:
        """Return a launch, or the result."""
        run, size, kernel = FOLD_WINDOWS.run, tuple(image.tolist()), tuple(block.tolist())
        fits = x.dtype.kind in "iuf" and x.itemsize in (4, 8) and x.ndim == 3 and x.size
        flat = image.ndim == block.ndim == 1
        if run is None or not fits or not flat or not 1 <= len(size) == len(kernel) <= 3:
            return self.plain(x, image, block)
        try:
            windows = placement(kernel, self.strides, self.dilations, self.pads).at(size)
        except ValueError:
            return self.plain(x, image, block)
        taps = math.prod(kernel)
        if x.shape[2] != math.prod(windows.output) or x.shape[1] % taps or 0 in size:
            return self.plain(x, image, block)
        shape = len(x), x.shape[1] // taps, *size
        check_allocation(np, shape, x.dtype)
        made = _cut(windows, math.prod(shape[:2]), size, x.dtype, self.threads)
        if made is None:
            return self.plain(x, image, block)
        y = empty(shape, x.dtype)
        return Launch(run, (_bytes(x), _bytes(y), *made), y)


@specialize("Col2Im")
def specialize_col2im(site: Site, plain: Call) -> Call:
    """Take numbers of 4 or 8 bytes, and lines, images and volumes."""
    FOLD_WINDOWS.request()
    names = "strides", "dilations", "pads"
    given = (site.attribute(name, None) for name in names)
    strides, dilations, pads = (None if each is None else tuple(each) for each in given)
    call = Folding(strides, dilations, pads, site.threads, plain)
    return where_constant(site, (1, 2), call)
