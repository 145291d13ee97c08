"""Tasks of pooling volumes: windows over slices, and along the depth."""

from __future__ import annotations

import math

from tenonnx_array.windows import Windows
from tenonnx_cpu.conv.depthwise import depthwise_layout
from tenonnx_cpu.conv.kernels import (
    LINE_ALIGNMENT_FLOATS,
    MAX_TASK_PRODUCTS,
    SLICE_FIELDS,
    TASKS_PER_THREAD,
)
from tenonnx_cpu.conv.layout import numbers_of, sliced
from tenonnx_cpu.conv.pooling import POOL_VOLUME, Counts, Pooling
from tenonnx_cpu.jit.scratch import share_of
from tenonnx_cpu.kernel_selection import NDArray


def pool_volumes(
    shape: tuple[int, ...], windows: Windows, weights: NDArray, counts: Counts, threads: int
) -> Pooling:
    """Return how windows slide over volumes ``(N, C, D, H, W)``."""
    flat, volume = sliced(windows)
    own = depthwise_layout((1, 1, *flat.size), 1, flat, 1)
    area = math.prod(flat.output)
    pitch = -(-area // LINE_ALIGNMENT_FLOATS) * LINE_ALIGNMENT_FLOATS + LINE_ALIGNMENT_FLOATS
    slots = min(volume.depth, (volume.taps_z - 1) * volume.step_z + 1)
    places = own.floats + slots * pitch
    work = share_of(places + 2 * volume.taps_z + LINE_ALIGNMENT_FLOATS)
    images = math.prod(shape[:2])
    wanted = TASKS_PER_THREAD * threads if threads > 1 else 1
    each = math.prod(windows.kernel) * area
    strips = max(-(-wanted // images), -(-each * volume.out_depth // MAX_TASK_PRODUCTS))
    deep = -(-volume.out_depth // min(volume.out_depth, strips))
    tasks = images * -(-volume.out_depth // deep)
    along = numbers_of(
        SLICE_FIELDS, **volume._asdict(), slots=slots, pitch=pitch, places=places, work=work,
        task_depth=deep, tasks=tasks,
    )  # fmt: skip
    output = (*shape[:2], *windows.output)
    given = weights, *counts, own.numbers, along, own.offsets, own.planes
    return Pooling(POOL_VOLUME, output, given, work, min(threads, tasks))
