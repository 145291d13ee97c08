"""The tasks of a convolution whose products have channels as rows, as numbers."""

from __future__ import annotations

from typing import Any

from tenonnx_cpu.conv.kernels import (
    CACHE_LINE_FLOATS,
    CONV_FIELDS,
    MAX_PLANE_FLOATS,
    MAX_SUMMED_CHANNELS,
    ROWS_PER_TASK,
    SAME_SET_FLOATS,
    TILE_ROWS,
    VECTOR,
)
from tenonnx_cpu.conv.kernels.taps_seen import TAPS_SEEN, first_seen, taps_seen
from tenonnx_cpu.conv.kernels.task_split import task_part
from tenonnx_cpu.conv.kernels.windows import WINDOW_SIZES, Geometry, is_line, store
from tenonnx_cpu.jit.compiling import Contract, Out, helper, i64, kernel, size
from tenonnx_cpu.jit.vectors.lanes import LANES
from tenonnx_cpu.jit.vectors.named import tuple_of

ConvNumbers = tuple_of("ConvNumbers", CONV_FIELDS)

# The numbers of a `tenonnx_cpu.conv.layout.Volume`.
VOLUME = (size,) * 6

# Rows of weights that are copied if they would share sets of the cache: all where kernels
# multiply panel by panel (``tenonnx_cpu.matmul.kernels.tile.BY_PANELS``).
COPIED_ROWS = ROWS_PER_TASK if LANES == 8 else TILE_ROWS


@helper
def block_of(channels: Any, taps: Any, planes: Any, is_single: Any, chain: Any, whole: Any) -> Any:
    """Return how many channels to sum over at a time, whose planes take so many floats each.

    It is a multiple of ``whole``, as the number of channels is. An image ``is_single`` that has one
    element.
    """
    most = max(1, chain // taps)
    if planes:
        most = max(1, min(most, MAX_PLANE_FLOATS // planes))
    elif is_single:
        most = min(channels, MAX_SUMMED_CHANNELS)
    block = -(-channels // -(-channels // most))
    return block + -block % whole


@helper
def room_of(part: Any, length: Any, copied: Any, shared: Any) -> Any:
    """Return where a worker's memory has what ``CONV_FIELDS`` says, and how much it is.

    Args:
        part: What a task makes.
        length: Rows of B that are summed over at a time.
        copied: Floats of planes.
        shared: Whether rows of A share sets of the cache, and are copied.
    """
    columns = part.height * part.width
    pitch = -(-columns // VECTOR) * VECTOR
    pitch += 16 * int(pitch % 256 == 0)
    copy = part.rows * pitch + max(copied, VECTOR * length) + 4 * VECTOR
    rows = max(TILE_ROWS, min(part.rows, COPIED_ROWS)) if shared else 0
    edge = copy + rows * (length + 16)
    panel = -(-(edge + VECTOR // 8 * (length + 16)) // 16) * 16
    return pitch, copy, edge, panel, panel + VECTOR * length


@kernel(
    (
        size, size, size, size, WINDOW_SIZES, VOLUME, TAPS_SEEN,
        size, size, size, size, size, Out(i64, 1),
    ),
    Contract(
        launch="sizes are positive; numbers has one for each of CONV_FIELDS", captured=False
    ),
)  # fmt: skip
def plan_conv(  # type: ignore[no-untyped-def] # the signature has them
    batch, groups, rows, channels, windows, volume, taps, direct, single, runs, threads, chain,
    numbers,
):  # fmt: skip
    """Write what ``tenonnx_cpu.conv.layout.layout`` returns, but for offsets."""
    w, seen = Geometry(*windows), taps_seen(taps)
    depth, out_depth, taps_z, stride_z, step_z, front = volume
    images = batch * groups * out_depth
    part = task_part(images, rows, w.out_height, w.out_width, threads, is_line(w))
    line = part.width + seen.columns
    line += -line % CACHE_LINE_FLOATS if runs else 0
    plane = (part.height + seen.reach) * line
    packed = 0 if direct else plane * seen.planes
    one = w.height * w.width == 1
    block = block_of(channels, seen.taps, packed, one, chain, taps_z if runs else 1)
    shared = channels * seen.taps % SAME_SET_FLOATS == 0
    pitch, copy, edge, panel, work = room_of(part, block * seen.taps, block * packed, shared)
    together = 1 if single else part.height
    strips = -(-w.out_height // part.height) * -(-w.out_width // part.width)
    values = ConvNumbers(
        tasks=images * strips * -(-rows // part.rows), work=work, batch=batch, groups=groups,
        rows=rows, channels=channels, height=w.height, width=w.width, out_height=w.out_height,
        out_width=w.out_width, stride_y=w.stride_y, stride_x=w.stride_x, top=w.top, taps=seen.taps,
        direct=direct, plane=plane, line=line, reach=seen.reach, task_rows=part.rows,
        task_height=part.height, task_width=part.width, block=block, pitch=pitch, copy=copy,
        edge=edge, panel=panel, together=together, depth=depth,
        out_depth=out_depth, taps_z=taps_z, stride_z=stride_z, step_z=step_z, front=front,
        runs=runs,
    )  # fmt: skip
    store(numbers, values)


@kernel(
    (size, size, size, size, TAPS_SEEN, Out(i64, 1)),
    Contract(launch="offsets has an element for each channel's taps", captured=False),
)
def write_offsets(  # type: ignore[no-untyped-def] # the signature has them
    channels, channel_floats, plane, line, taps, offsets
):
    """Write the bytes from a block's first plane to what each of its taps sees."""
    seen = taps_seen(taps)
    for channel in range(channels):
        for tap in range(seen.taps):
            start = channel * channel_floats + first_seen(seen, tap, plane, line)
            offsets[channel * seen.taps + tap] = 4 * start
