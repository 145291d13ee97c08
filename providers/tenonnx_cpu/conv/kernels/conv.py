"""Convolution of float32 images as matrix products whose second operand is never unfolded."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tenonnx_cpu.conv.kernels import CONV_FIELDS, RUN
from tenonnx_cpu.conv.kernels.finish import finish_of
from tenonnx_cpu.conv.kernels.planes import pack_planes
from tenonnx_cpu.conv.kernels.result import Result, ResultRows, Room, Runs
from tenonnx_cpu.conv.kernels.rows import place_lines
from tenonnx_cpu.conv.kernels.signature import CONVOLUTION, WINDOWS
from tenonnx_cpu.conv.kernels.strip import multiply_image, multiply_strip
from tenonnx_cpu.conv.kernels.tasks import part_of
from tenonnx_cpu.jit.compiling import helper, kernel
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors.named import named
from tenonnx_cpu.matmul.kernels.tile import ADD, ZERO

conv_sizes = named("ConvSizes", CONV_FIELDS)


class Inside(NamedTuple):
    """The taps along a volume's depth that see its images.

    Attributes:
        first: The first one.
        count: How many.
    """

    first: Any
    count: Any


@parallel
def convolve_part(arguments: Any, task: Any, worker: Any) -> None:
    """Make a part of the result; see ``tenonnx_cpu.conv.layout``."""
    x, w, y, finish, sizes, offsets, panel, planes, memory = arguments
    part = part_of(slice_by_slice(task, sizes), sizes)
    image, slice_z = part.image // sizes.out_depth, part.image % sizes.out_depth
    row = image % sizes.groups * sizes.rows + part.first
    apart = sizes.out_depth * sizes.out_height * sizes.out_width
    place = (image // sizes.groups * sizes.groups * sizes.rows + row) * apart
    place += (slice_z * sizes.out_height + part.top) * sizes.out_width + part.left
    result = Result(y, place, apart, row, finish)
    a_row, area = 4 * sizes.channels * sizes.taps, 4 * sizes.height * sizes.width
    source = x.ctypes.data + image * (sizes.channels // sizes.taps_z) * sizes.depth * area
    work = memory.ctypes.data + 4 * sizes.work * worker
    c, packed = ResultRows(work, 4 * sizes.pitch), work + 4 * sizes.task_rows * sizes.pitch
    room = Room(work + 4 * sizes.copy, work + 4 * sizes.edge, work + 4 * sizes.panel)
    seen = taps_inside(slice_z, sizes)
    for channel in range(0, sizes.channels, sizes.block):
        some = min(sizes.block, sizes.channels - channel)
        start = w.ctypes.data + row * a_row + 4 * channel * sizes.taps
        mode, last = ADD if channel else ZERO, channel + sizes.block >= sizes.channels
        if sizes.direct:
            multiply_image(
                part.rows, some, part.columns, ResultRows(start, a_row),
                source + channel * area + 4 * part.left, area, offsets.ctypes.data,
                panel.ctypes.data, packed, c, mode, last, result, room,
            )  # fmt: skip
        else:
            pack_part(source, channel, some, slice_z, part, sizes, planes, packed)
            a = ResultRows(start + 4 * seen.first * sizes.taps, a_row)
            multiply_lines(
                part, some, seen, a, packed, offsets.ctypes.data, c, mode, last, result, room, sizes
            )


@helper
def slice_by_slice(task: Any, sizes: Any) -> Any:
    """Return tasks so that the same part of a volume's slices follow one another.

    They see the same images of a volume, which the second-level cache has then.
    """
    apart = sizes.tasks // (sizes.batch * sizes.groups * sizes.out_depth)
    slice_z, others = task % sizes.out_depth, task // sizes.out_depth
    return (others // apart * sizes.out_depth + slice_z) * apart + others % apart


@helper
def taps_inside(slice_z: Any, sizes: Any) -> Any:
    """Return the taps with which a slice sees a volume; all of them if they are in no runs."""
    first, stop = 0, sizes.taps_z
    if sizes.runs:
        top = slice_z * sizes.stride_z - sizes.front
        first = min(stop, max(0, -(top // sizes.step_z)))
        stop = max(first, min(stop, (sizes.depth - 1 - top) // sizes.step_z + 1))
    return Inside(first, stop - first)


@helper
def multiply_lines(
    part: Any, channels: Any, seen: Any, a: Any, packed: Any, offsets: Any, c: Any, mode: Any,
    last: Any, result: Any, room: Any, sizes: Any,
) -> None:  # fmt: skip
    """Multiply by packed planes, as many lines at a time as follow one another there."""
    width, images, each = part.columns // part.lines, channels // sizes.taps_z, 0
    if sizes.runs:
        each = seen.count * sizes.taps // RUN
    hole = 4 * (sizes.taps_z - seen.count) * sizes.taps
    runs = Runs(each, hole, channels * sizes.taps)
    depth = images * seen.count * sizes.taps if sizes.runs else runs.length
    for line in range(0, part.lines, sizes.together):
        place = result.place + line * sizes.out_width
        multiply_strip(
            part.rows, depth, min(sizes.together, part.lines - line) * width, a,
            packed + 4 * line * sizes.line, offsets,
            ResultRows(c.start + 4 * line * width, c.apart),
            mode, last, Result(result.y, place, result.apart, result.channel, result.finish), room,
            ResultRows(0, 0), runs,
        )  # fmt: skip


@helper
def pack_part(
    source: Any, first: Any, count: Any, slice_z: Any, part: Any, sizes: Any, planes: Any,
    target: Any,
) -> None:  # fmt: skip
    """Write planes of some channels of an image, or of images of a volume's channels.

    Args:
        source: Address of the image, or the volume.
        first: The first of all the channels' images that a window sees, channel by channel.
        count: How many.
        slice_z: Which image of the result it is.
        part: Which part of that.
        sizes: As ``tenonnx_cpu.conv.kernels.CONV_FIELDS`` says.
        planes: As ``pack_planes`` takes them.
        target: As ``pack_planes`` takes it.
    """
    area, lines, zero = 4 * sizes.height * sizes.width, part.lines + sizes.reach, np.float32(0)
    if sizes.taps_z * sizes.depth * sizes.out_depth == 1 and not sizes.front:
        pack_planes(
            source + first * area, count, part.top, lines, part.left, sizes, planes, zero, target
        )
        return
    for index in range(first, first + count):
        channel, tap = index // sizes.taps_z, index % sizes.taps_z
        z = slice_z * sizes.stride_z + tap * sizes.step_z - sizes.front
        if 0 <= z < sizes.depth:
            image = source + (channel * sizes.depth + z) * area
            pack_planes(image, 1, part.top, lines, part.left, sizes, planes, zero, target)
        elif sizes.runs:
            continue
        else:
            place_lines(target, 0, target, planes.shape[0] * sizes.plane, 0, 0, 1, zero)
        target += 4 * planes.shape[0] * sizes.plane


@kernel(CONVOLUTION, WINDOWS)
def conv_f32(x, w, y, after, layout, memory, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Convolve as ``tenonnx_cpu.conv.layout.layout`` says."""
    numbers, offsets, panel, planes = layout
    sizes = conv_sizes(numbers)
    finish = finish_of(after)
    convolve_part(
        (x, w, np.intp(y.ctypes.data), finish, sizes, offsets, panel, planes, memory),
        sizes.tasks,
        threads,
    )
