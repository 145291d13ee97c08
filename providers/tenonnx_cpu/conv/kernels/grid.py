"""GridSample: images read between their elements, at places that a grid names."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.conv.kernels import GRID_FIELDS, GRID_POINTS, MAX_GRID_TAPS
from tenonnx_cpu.jit.compiling import (
    Contract,
    In,
    Out,
    helper,
    i64,
    inlined,
    kernel,
    size,
    u8,
)
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors.named import named
from tenonnx_cpu.jit.vectors.rounding import rounded
from tenonnx_cpu.jit.vectors.views import elements, on_stack

F = np.float32

grid_sizes = named("GridSizes", GRID_FIELDS)

CUBIC_TAPS = 4

# Bytes of an element's place and weight at most.
GRID_TAP_BYTES = 16

# The parameter of the kernel of cubic interpolation.
CUBIC_PARAMETER = np.float64(-0.75)


@rounded
def scaled(x: Any, factor: Any, low: Any) -> Any:
    """Return where a number from -1 to 1 is along an axis, in its own type."""
    return (x + F(1)) * factor + low


@inlined
def cubic_weight(distance: Any) -> Any:
    """Return the weight of an element at a distance of less than 2."""
    d = abs(distance)
    near = ((CUBIC_PARAMETER + 2) * d - (CUBIC_PARAMETER + 3)) * d * d + 1
    far = CUBIC_PARAMETER * (((d - 5) * d + 8) * d - 4)
    return near if d <= 1 else far


@helper
def read_side(place: Any, length: Any, sizes: Any, offsets: Any, weights: Any, dtype: Any) -> None:
    """Find what is read along one axis: as many places as there are offsets, and weights.

    Args:
        place: A number from -1 to 1.
        length: The axis'.
        sizes: What the kernel's numbers name.
        offsets: The elements' places.
        weights: Their weights; 0 outside, if nothing is there.
        dtype: The place's.
    """
    half = length / 2.0 - (0.5 if sizes.aligned else 0.0)
    low = 0.0 if sizes.aligned else -0.5
    taps = sizes.taps
    # The nearest element is that of a place in its own type; weights have more digits.
    if taps == 1:
        at = np.float64(scaled(place, dtype(half), dtype(low)))
    else:
        at = (np.float64(place) + 1.0) * half + low
    if not at >= -3.0:  # NaN is outside, too
        at = np.float64(-3)
    at = min(at, length + 2.0)
    if sizes.border and taps != CUBIC_TAPS:
        at = min(max(at, 0.0), length - 1.0)
    first = np.rint(at) if taps == 1 else np.floor(at) - (1.0 if taps == CUBIC_TAPS else 0.0)
    for tap in range(taps):
        where = first + tap
        if taps == CUBIC_TAPS:
            weight = cubic_weight(at - where)
        else:
            weight = max(1.0 - abs(at - where), 0.0) if taps > 1 else 1.0
        if not sizes.border and ((where < 0.0) | (where >= length)):
            weight = 0.0
        weights[tap] = weight
        offsets[tap] = i64(min(max(where, 0.0), length - 1.0))


@helper
def read_points(grid: Any, count: Any, sizes: Any, offsets: Any, weights: Any, dtype: Any) -> None:
    """Find what is read at some points, ``sizes.reads`` elements each.

    Args:
        grid: The address of their places.
        count: How many there are.
        sizes: What the kernel's numbers name.
        offsets: The elements' places, those of a point ``GRID_POINTS`` apart.
        weights: Their weights, likewise.
        dtype: That of places and weights.
    """
    places = elements(grid, count * sizes.rank, dtype)
    sides, shares = on_stack(12, np.int64), on_stack(12, np.float64)
    taps, rank = sizes.taps, sizes.rank
    planes = taps if rank == 3 else 1
    sides[0], shares[0] = 0, 1.0
    for point in range(count):
        own = places[point * rank : (point + 1) * rank]
        if rank == 3:
            read_side(own[2], sizes.depth, sizes, sides[0:4], shares[0:4], dtype)
        read_side(own[1], sizes.height, sizes, sides[4:8], shares[4:8], dtype)
        read_side(own[0], sizes.width, sizes, sides[8:12], shares[8:12], dtype)
        n = point
        for plane in range(planes):
            for line in range(taps):
                start = (sides[plane] * sizes.height + sides[4 + line]) * sizes.width
                share = shares[plane] * shares[4 + line]
                for column in range(taps):
                    offsets[n] = start + sides[8 + column]
                    weights[n] = dtype(share * shares[8 + column])
                    n += GRID_POINTS


@helper
def sample_some(x: Any, grid: Any, y: Any, own: Any, sizes: Any, task: Any, dtype: Any) -> None:
    """Sample some points of an image of one type, in all channels."""
    room = GRID_POINTS * MAX_GRID_TAPS
    offsets, weights = elements(own, room, np.int64), elements(own + 8 * room, room, dtype)
    size = weights.itemsize
    image, first = task // sizes.blocks, task % sizes.blocks * GRID_POINTS
    count = min(GRID_POINTS, sizes.points - first)
    start = grid + size * sizes.rank * (image * sizes.points + first)
    read_points(start, count, sizes, offsets, weights, dtype)
    for channel in range(image * sizes.channels, (image + 1) * sizes.channels):
        plane = elements(x + size * channel * sizes.elements, sizes.elements, dtype)
        out = elements(y + size * (channel * sizes.points + first), count, dtype)
        if sizes.taps == 1:
            for i in range(count):
                out[i] = plane[offsets[i]] if weights[i] != dtype(0) else dtype(0)
            continue
        for i in range(count):
            out[i] = dtype(0)
        for read in range(sizes.reads):
            begin = read * GRID_POINTS
            where, share = offsets[begin : begin + count], weights[begin : begin + count]
            for i in range(count):
                out[i] += plane[where[i]] * share[i]


@parallel
def sample_points(arguments: Any, task: Any, worker: Any) -> None:
    """Sample some points of an image."""
    x, grid, y, memory, sizes, itemsize = arguments
    own = memory + worker * GRID_POINTS * MAX_GRID_TAPS * GRID_TAP_BYTES
    if itemsize == 8:
        sample_some(x, grid, y, own, sizes, task, np.float64)
    else:
        sample_some(x, grid, y, own, sizes, task, np.float32)


@kernel(
    (In(u8, 1), In(u8, 1), Out(u8, 1), Out(u8, 1), In(i64, 1), size, size),
    Contract(launch="the grid is for the images, and the result for both; all are of one type"),
)
def sample_grid(x, grid, y, memory, numbers, itemsize, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Sample images, or volumes.

    Args:
        x: The images' bytes.
        grid: Those of a number from -1 to 1 for each axis of each point, the last axis first.
        y: The result's.
        memory: ``GRID_POINTS * MAX_GRID_TAPS`` times ``GRID_TAP_BYTES`` for each thread.
        numbers: As ``tenonnx_cpu.conv.kernels.GRID_FIELDS`` says.
        itemsize: 4 for float32, 8 for float64.
        threads: How many threads to use.
    """
    sizes = grid_sizes(numbers)
    arguments = (
        x.ctypes.data, grid.ctypes.data, y.ctypes.data, memory.ctypes.data, sizes, itemsize
    )  # fmt: skip
    sample_points(arguments, sizes.images * sizes.blocks, threads)
