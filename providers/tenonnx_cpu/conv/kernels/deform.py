"""DeformConv: images read between their elements, at places that offsets move."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.conv.kernels import DEFORM_FIELDS, DEFORMED_POINTS
from tenonnx_cpu.jit.compiling import Contract, In, Out, f32, helper, i64, kernel, size
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors.named import named
from tenonnx_cpu.jit.vectors.views import floats, on_stack

F = np.float32

# Elements that are read at a time.
CORNERS = 4 * DEFORMED_POINTS

deform_sizes = named("DeformSizes", DEFORM_FIELDS)


@helper
def read_corners(
    down: Any, across: Any, factors: Any, first: Any, tap: Any, sizes: Any, corners: Any,
    weights: Any,
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
    """
    top = tap // sizes.taps_x * sizes.dilation_y - sizes.pad_y
    left = tap % sizes.taps_x * sizes.dilation_x - sizes.pad_x
    height, width = sizes.height, sizes.width
    for i in range(down.size):
        line, column = (first + i) // sizes.columns, (first + i) % sizes.columns
        y = down[i] + F(line * sizes.stride_y + top)
        x = across[i] + F(column * sizes.stride_x + left)
        y = min(max(y, F(-1)), F(height)) if y == y else F(-1)
        x = min(max(x, F(-1)), F(width)) if x == x else F(-1)
        above, before = np.floor(y), np.floor(x)
        factor = factors[i] if sizes.masked else F(1)
        for corner in range(4):
            row, place = i64(above) + corner // 2, i64(before) + corner % 2
            share = F(1) - abs(y - F(row))
            share *= F(1) - abs(x - F(place))
            inside = (row >= 0) & (row < height) & (place >= 0) & (place < width)
            weights[corner * DEFORMED_POINTS + i] = share * factor if inside else F(0)
            at = min(max(row, 0), height - 1) * width + min(max(place, 0), width - 1)
            corners[corner * DEFORMED_POINTS + i] = at


@parallel
def sample_tap(arguments: Any, task: Any, worker: Any) -> None:
    """Sample a tap of all windows, in all channels that share its offsets."""
    x, offset, mask, y, sizes = arguments
    corners = on_stack(CORNERS, np.int64)
    weights = on_stack(CORNERS, np.float32)
    group, tap = task // sizes.taps, task % sizes.taps
    points, elements = sizes.points, sizes.height * sizes.width
    for first in range(0, points, DEFORMED_POINTS):
        count = min(DEFORMED_POINTS, points - first)
        start = offset + 4 * (2 * task * points + first)
        factors = floats(mask + (4 * (task * points + first) if sizes.masked else 0), count)
        read_corners(
            floats(start, count), floats(start + 4 * points, count), factors, first, tap, sizes,
            corners, weights,
        )  # fmt: skip
        for channel in range(group * sizes.channels, (group + 1) * sizes.channels):
            plane = floats(x + 4 * channel * elements, elements)
            out = floats(y + 4 * ((channel * sizes.taps + tap) * points + first), count)
            for i in range(count):
                total = F(0)
                for corner in range(4):
                    n = corner * DEFORMED_POINTS + i
                    total += plane[corners[n]] * weights[n]
                out[i] = total


@kernel(
    (In(f32, 1), In(f32, 1), In(f32, 1), Out(f32, 1), In(i64, 1), size),
    Contract(launch="offsets are of the windows, and these of the images", captured=False),
)
def sample_taps(x, offset, mask, y, numbers, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Sample images where windows' taps are moved to, zero outside.

    Args:
        x: The images.
        offset: Of each image, group of channels and tap how far it is moved in every window along
            lines, then along columns.
        mask: What samples are multiplied by, one for each of these; not read if there is none.
        y: The samples, (images, channels, taps, windows).
        numbers: As ``tenonnx_cpu.conv.kernels.DEFORM_FIELDS`` says.
        threads: How many threads to use.
    """
    sizes = deform_sizes(numbers)
    arguments = (x.ctypes.data, offset.ctypes.data, mask.ctypes.data, y.ctypes.data, sizes)
    sample_tap(arguments, sizes.groups * sizes.taps, threads)
