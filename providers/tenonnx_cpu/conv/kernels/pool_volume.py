"""Pooling of volumes: every slice as an image, then along the depth."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.conv.kernels import SLICE_FIELDS
from tenonnx_cpu.conv.kernels.pool import depthwise_sizes, divide, pool_lines
from tenonnx_cpu.conv.kernels.signature import WINDOWS
from tenonnx_cpu.conv.kernels.slide import slide_maxima, slide_sums
from tenonnx_cpu.jit.compiling import In, Out, f32, helper, i64, kernel, size
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors.memory import store_int
from tenonnx_cpu.jit.vectors.named import named

slice_sizes = named("SliceSizes", SLICE_FIELDS)


@parallel
def pool_slices(arguments: Any, task: Any, worker: Any) -> None:
    """Make some slices of one channel; see ``tenonnx_cpu.conv.pooling_volumes``."""
    x, y, weights, counts, sizes, along, offsets, planes, memory = arguments
    work = memory.ctypes.data + 4 * along.work * worker
    kept, places = work + 4 * sizes.work, work + 4 * along.places
    strips = -(-along.out_depth // along.task_depth)
    image, begin = task // strips, task % strips * along.task_depth
    area, made_area = sizes.height * sizes.width, sizes.out_height * sizes.out_width
    source = x.ctypes.data + 4 * image * along.depth * area
    pooled = 0
    for out_slice in range(begin, min(along.out_depth, begin + along.task_depth)):
        first = out_slice * along.stride_z - along.front
        last = min(along.depth, first + (along.taps_z - 1) * along.step_z + 1)
        for z in range(max(first, pooled), last):
            slot = kept + 4 * along.pitch * (z % along.slots)
            pool_lines(
                source + 4 * z * area, 0, sizes.out_height, slot, weights, sizes, offsets, planes,
                work,
            )  # fmt: skip
        pooled = max(pooled, last)
        start = (image * along.out_depth + out_slice) * made_area
        made = y.ctypes.data + 4 * start
        taps = slots_seen(first, along, places)
        if weights.size:
            slide_sums(
                0, kept, 0, places, weights.ctypes.data, taps, made, 0, made_area, 1,
                np.float32(1), np.float32(0), np.float32(-np.inf), np.float32(np.inf),
            )  # fmt: skip
            divide_slice(y[start : start + made_area], counts, counts[0][out_slice])
        else:
            slide_maxima(0, kept, 0, places, taps, made, made_area, 1)


@helper
def slots_seen(first: Any, along: Any, places: Any) -> Any:
    """Write where the slices are kept that a window sees; return how many there are."""
    seen = 0
    for tap in range(along.taps_z):
        z = first + tap * along.step_z
        if 0 <= z < along.depth:
            store_int(4 * along.pitch * (z % along.slots), places + 8 * seen)
            seen += 1
    return seen


@helper
def divide_slice(made: Any, counts: Any, slices: Any) -> None:
    """Divide the sums of one slice, whose windows see so many others."""
    _, rows, columns = counts
    for line in range(rows.size):
        divide(made[line * columns.size :][: columns.size], columns, rows[line] * slices)


@kernel(
    (
        In(f32, 1), Out(f32, 1), In(f32, 1), (In(f32, 1), In(f32, 1), In(f32, 1)), In(i64, 1),
        In(i64, 1), In(i64, 1), In(i64, 2), Out(f32, 1), size,
    ),
    WINDOWS,
)  # fmt: skip
def pool_volume_f32(x, y, weights, counts, numbers, along, offsets, planes, memory, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Pool over windows of volumes, cut into tasks by ``tenonnx_cpu.conv.pooling_volumes``.

    Args:
        x: The volumes.
        y: The result.
        weights: Ones, as many as a window has taps, for means; empty for maxima.
        counts: Elements that count for a window along each axis.
        numbers: Of windows over a slice; see ``tenonnx_cpu.conv.depthwise``.
        along: What ``SLICE_FIELDS`` name.
        offsets: See ``tenonnx_cpu.conv.depthwise``.
        planes: See ``tenonnx_cpu.conv.depthwise``.
        memory: Floats to work in.
        threads: How many threads to use.
    """
    sizes, depths = depthwise_sizes(numbers), slice_sizes(along)
    arguments = (x, y, weights, counts, sizes, depths, offsets, planes, memory)
    pool_slices(arguments, depths.tasks, threads)
