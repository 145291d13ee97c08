"""RoiAlign: regions of images, whose bins are means of samples between elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.conv.kernels import MAX_REGION_SAMPLES, REGION_FIELDS
from tenonnx_cpu.jit.compiling import (
    Contract,
    In,
    Out,
    f32,
    f64,
    helper,
    i32,
    i64,
    inlined,
    kernel,
    size,
)
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors.named import named
from tenonnx_cpu.jit.vectors.rounding import rounded
from tenonnx_cpu.jit.vectors.views import floats

F = np.float32

region_sizes = named("RegionSizes", REGION_FIELDS)


@rounded
def scaled(x: Any, factor: Any, shift: Any) -> Any:
    """Return where a region's corner is in an image."""
    return x * factor - shift


@rounded
def sample_place(start: Any, extent: Any, bins: Any, count: Any, at: Any, sample: Any) -> Any:
    """Return where a bin's sample is."""
    offset = (F(sample) + F(0.5)) / F(count)
    return start + extent / F(bins) * (F(at) + offset)


@helper
def weigh_side(
    first: Any, last: Any, scale: Any, sizes: Any, bins: Any, length: Any, weights: Any, spans: Any
) -> Any:
    """Find the weight of each element in each bin, along one axis.

    Which samples are outside is decided in float32; weights are of places in float64.

    Args:
        first: The region's start, as it is given.
        last: Its end.
        scale: What they are multiplied by.
        sizes: What the kernel's numbers name.
        bins: How many there are.
        length: Of the image.
        weights: The weights, ``length`` of each bin.
        spans: Of each bin the first element that has a weight, and the one after the last.

    Returns:
        Whether the region has a number of samples.
    """
    shift = 0.5 if sizes.aligned else 0.0
    start, extent = scaled(first, F(scale), F(shift)), scaled(last, F(scale), F(shift))
    extent -= start
    begin = np.float64(first) * scale - shift
    reach = np.float64(last) * scale - shift - begin
    if not sizes.aligned:
        extent, reach = max(extent, F(1)), max(reach, 1.0)
    samples = np.float64(sizes.ratio)
    if not sizes.ratio:
        samples = max(np.ceil(np.float64(extent / F(bins))), 0.0)
    if not (abs(start) < F(1e9)) or not samples <= MAX_REGION_SAMPLES:
        return False
    count = i64(samples)
    for at in range(bins):
        own = weights[at * length : (at + 1) * length]
        for i in range(length):
            own[i] = F(0)
        low, high = length, i64(0)
        for sample in range(count):
            place = sample_place(start, extent, bins, count, at, sample)
            if (place < F(-1)) | (place > F(length)):
                continue
            offset = (np.float64(sample) + 0.5) / np.float64(count)
            exact = begin + reach / np.float64(bins) * (np.float64(at) + offset)
            exact = min(max(exact, 0.0), np.float64(length - 1))
            below = np.floor(exact)
            one, two = i64(below), min(i64(below) + 1, length - 1)
            own[one] += F((below + 1.0 - exact) / samples)
            own[two] += F((exact - below) / samples)
            low, high = min(low, one), max(high, two + 1)
        spans[2 * at], spans[2 * at + 1] = min(low, high), high
    return True


@inlined
def add_lines(x: Any, width: Any, weights: Any, first: Any, stop: Any, total: Any) -> None:
    """Write the weighted sum of lines of an image, from ``x`` on."""
    for i in range(total.size):
        total[i] = F(0)
    for n in range(first, stop):
        share = weights[n]
        if share == F(0):  # of a line between samples that are far apart
            continue
        line = floats(x + 4 * n * width, total.size)
        for i in range(total.size):
            total[i] += share * line[i]


@parallel
def pool_regions(arguments: Any, task: Any, worker: Any) -> None:
    """Do a region."""
    x, rois, images, scale, y, memory, wrong, sizes = arguments
    height, width = sizes.height, sizes.width
    own = memory[worker * sizes.share : (worker + 1) * sizes.share]
    down = own[: sizes.rows * height]
    across = own[down.size : down.size + sizes.columns * width]
    line = own[down.size + across.size :][:width]
    spans = own[down.size + across.size + width :].view(np.int32)
    lines, columns = spans[: 2 * sizes.rows], spans[2 * sizes.rows :]
    image, roi = images[task], rois[4 * task : 4 * task + 4]
    inside = (image >= 0) & (image < sizes.images)
    inside = inside and weigh_side(
        roi[1], roi[3], scale, sizes, sizes.rows, height, down, lines
    )  # fmt: skip
    inside = inside and weigh_side(
        roi[0], roi[2], scale, sizes, sizes.columns, width, across, columns
    )  # fmt: skip
    if not inside:
        wrong[0] = 1
        return
    left, right = columns[0], i32(0)
    for column in range(sizes.columns):
        left, right = min(left, columns[2 * column]), max(right, columns[2 * column + 1])
    for channel in range(sizes.channels):
        plane = x.ctypes.data + 4 * (image * sizes.channels + channel) * height * width
        for row in range(sizes.rows):
            some = line[left:right]
            add_lines(
                plane + 4 * left, width, down[row * height : (row + 1) * height],
                lines[2 * row], lines[2 * row + 1], some,
            )  # fmt: skip
            start = ((task * sizes.channels + channel) * sizes.rows + row) * sizes.columns
            for column in range(sizes.columns):
                first, stop = columns[2 * column], columns[2 * column + 1]
                total = F(0)
                for i in range(first, stop):
                    total += line[i] * across[column * width + i]
                y[start + column] = total


@kernel(
    (
        In(f32, 1), In(f32, 1), In(i64, 1), f64, Out(f32, 1), Out(f32, 1), Out(i64, 1), In(i64, 1),
        size,
    ),
    Contract(launch="an image's number for each region", values="images are some; sizes are small"),
)  # fmt: skip
def align_regions(x, rois, images, scale, y, memory, wrong, numbers, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Pool regions of images.

    Args:
        x: The images.
        rois: Of each region where it begins and ends: columns and rows, columns and rows.
        images: The number of each region's image.
        scale: What they are multiplied by.
        y: The result.
        memory: A share for each thread.
        wrong: One number, which becomes 1 if a region is of no image or too large, and 0 else.
        numbers: As ``tenonnx_cpu.conv.kernels.REGION_FIELDS`` says.
        threads: How many threads to use.
    """
    wrong[0] = 0
    sizes = region_sizes(numbers)
    pool_regions((x, rois, images, scale, y, memory, wrong, sizes), images.size, threads)
