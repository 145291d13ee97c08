"""DeformConv: images read between their elements, at places that offsets move."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.conv.kernels import DEFORM_FIELDS, DEFORMED_POINTS
from tenonnx_cpu.jit.compiling import Contract, In, Out, helper, i64, kernel, size, u8
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors.named import named
from tenonnx_cpu.jit.vectors.views import elements, on_stack

# Elements that are read at a time.
CORNERS = 4 * DEFORMED_POINTS

deform_sizes = named("DeformSizes", DEFORM_FIELDS)


@helper
def read_corners(
    down: Any, across: Any, factors: Any, first: Any, tap: Any, sizes: Any, corners: Any,
    weights: Any, dtype: Any,
) -> None:  # fmt: skip
    """Find the four elements around some points of a tap, and their weights.

    Args:
        down: The points' offsets along the lines of the image.
        across: Those along its columns.
        factors: What samples are multiplied by; one number for all, or one for each.
        first: The first point.
        tap: The tap.
        sizes: What the kernel's numbers name.
        corners: Elements' places in a channel, ``DEFORMED_POINTS`` of each corner.
        weights: As many.
        dtype: The elements'.
    """
    top = tap // sizes.taps_x * sizes.dilation_y - sizes.pad_y
    left = tap % sizes.taps_x * sizes.dilation_x - sizes.pad_x
    height, width = sizes.height, sizes.width
    for i in range(down.size):
        line, column = (first + i) // sizes.columns, (first + i) % sizes.columns
        y = down[i] + dtype(line * sizes.stride_y + top)
        x = across[i] + dtype(column * sizes.stride_x + left)
        y = min(max(y, dtype(-1)), dtype(height)) if y == y else dtype(-1)
        x = min(max(x, dtype(-1)), dtype(width)) if x == x else dtype(-1)
        above, before = np.floor(y), np.floor(x)
        factor = factors[i] if sizes.masked else dtype(1)
        for corner in range(4):
            row, place = i64(above) + corner // 2, i64(before) + corner % 2
            share = dtype(1) - abs(y - dtype(row))
            share *= dtype(1) - abs(x - dtype(place))
            inside = (row >= 0) & (row < height) & (place >= 0) & (place < width)
            weights[corner * DEFORMED_POINTS + i] = share * factor if inside else dtype(0)
            at = min(max(row, 0), height - 1) * width + min(max(place, 0), width - 1)
            corners[corner * DEFORMED_POINTS + i] = at


@helper
def sample_windows(
    x: Any, offset: Any, mask: Any, y: Any, sizes: Any, task: Any, dtype: Any
) -> None:
    """Sample a tap of all windows, in all channels that share its offsets, of one type."""
    corners, weights = on_stack(CORNERS, np.int64), on_stack(CORNERS, dtype)
    size = weights.itemsize
    group, tap = task // sizes.taps, task % sizes.taps
    points, area = sizes.points, sizes.height * sizes.width
    for first in range(0, points, DEFORMED_POINTS):
        count = min(DEFORMED_POINTS, points - first)
        start = offset + size * (2 * task * points + first)
        place = mask + (size * (task * points + first) if sizes.masked else 0)
        down, across = (
            elements(start, count, dtype), elements(start + size * points, count, dtype)
        )  # fmt: skip
        factors = elements(place, count, dtype)
        read_corners(down, across, factors, first, tap, sizes, corners, weights, dtype)
        for channel in range(group * sizes.channels, (group + 1) * sizes.channels):
            plane = elements(x + size * channel * area, area, dtype)
            to = y + size * ((channel * sizes.taps + tap) * points + first)
            out = elements(to, count, dtype)
            for i in range(count):
                total = dtype(0)
                for corner in range(4):
                    n = corner * DEFORMED_POINTS + i
                    total += plane[corners[n]] * weights[n]
                out[i] = total


@parallel
def sample_tap(arguments: Any, task: Any, worker: Any) -> None:
    """Sample a tap of all windows."""
    x, offset, mask, y, sizes, itemsize = arguments
    if itemsize == 8:
        sample_windows(x, offset, mask, y, sizes, task, np.float64)
    else:
        sample_windows(x, offset, mask, y, sizes, task, np.float32)


@kernel(
    (In(u8, 1), In(u8, 1), In(u8, 1), Out(u8, 1), In(i64, 1), size, size),
    Contract(
        launch="offsets are of the windows, and these of the images; all are of one type",
        captured=False,
    ),
)
def sample_taps(x, offset, mask, y, numbers, itemsize, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Sample images where windows' taps are moved to, zero outside.

    Args:
        x: The images' bytes.
        offset: Of each image, group of channels and tap how far it is moved in every window along
            lines, then along columns.
        mask: What samples are multiplied by, one for each of these; not read if there is none.
        y: The samples, (images, channels, taps, windows).
        numbers: As ``tenonnx_cpu.conv.kernels.DEFORM_FIELDS`` says.
        itemsize: 4 for float32, 8 for float64.
        threads: How many threads to use.
    """
    sizes = deform_sizes(numbers)
    arguments = (
        x.ctypes.data, offset.ctypes.data, mask.ctypes.data, y.ctypes.data, sizes, itemsize
    )  # fmt: skip
    sample_tap(arguments, sizes.groups * sizes.taps, threads)
