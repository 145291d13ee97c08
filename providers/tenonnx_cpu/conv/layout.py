"""The tasks of a convolution of a given shape, for the kernels in ``jit``.

Of every input channel a task makes planes, one for each phase of the kernel's rows and each of its
columns: what a column of the kernel meets, window by window, with zeros for padding. All that a
tap sees is then a run of a plane, some rows on. Of an image of one line, a plane for each phase of
the columns does: what a tap sees is a run that begins some columns on.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from tenonnx_array.windows import Windows
from tenonnx_cpu.buffers import frozen
from tenonnx_cpu.conv.kernels import CONV_FIELDS, FEW, RUN, VECTOR
from tenonnx_cpu.jit.code.cpu import cpu
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.kernel_selection import NDArray

CHAIN_DEPTH = 256
SPLIT_TASKS = JitKernel("conv.task_split", "split_tasks")
PLAN_CONV = JitKernel("conv.plan_conv", "plan_conv")
WRITE_OFFSETS = JitKernel("conv.plan_conv", "write_offsets")


def fixed(values: Any) -> NDArray:
    """Return whole numbers as kernels take them, which nobody may change."""
    return frozen(np.ascontiguousarray(values, np.int64))


NONE, NONE_OF_TWO = fixed(()), fixed(np.empty((0, 2)))

NO_KERNELS = "kernels are planned where there are some"


class ConvLayout(NamedTuple):
    """A convolution cut into tasks.

    Attributes:
        numbers: What the kernel's ``CONV_FIELDS`` name.
        threads: How many threads are of use.
        floats: Memory that one of them needs.
        output: The result's shape.
        offsets: Bytes from a block's first plane to what each of its taps sees, row by row of B.
        panel: The same for a copy of the last columns.
        planes: The phase among rows, and the image's column that the first window sees, of each.
    """

    numbers: NDArray
    threads: int
    floats: int
    output: tuple[int, ...]
    offsets: NDArray = NONE
    panel: NDArray = NONE
    planes: NDArray = NONE_OF_TWO


def numbers_of(fields: tuple[str, ...], **values: int) -> NDArray:
    """Return values in the order of their fields; each has one."""
    assert len(values) == len(fields), set(values) ^ set(fields)
    numbers = np.array([values[name] for name in fields], np.int64)
    numbers.flags.writeable = False
    return numbers


def planned(
    numbers: NDArray,
    threads: int,
    output: tuple[int, ...],
    offsets: NDArray = NONE,
    panel: NDArray = NONE,
    planes: NDArray = NONE_OF_TWO,
) -> ConvLayout:
    """Return the layout of numbers that a kernel has written, of which tasks and work come first.

    Nobody may change them any more.
    """
    tasks, work = numbers[:2].tolist()
    return ConvLayout(
        frozen(numbers), min(threads, tasks), work, output, frozen(offsets), panel, planes
    )


def layout(
    shape: tuple[int, ...],
    rows: int,
    group: int,
    windows: Windows,
    threads: int,
    chain: int = CHAIN_DEPTH,
) -> ConvLayout:
    """Return how to convolve images ``(N, C, H, W)`` or volumes with ``rows`` kernels.

    About ``chain`` products are added one after the other.
    """
    assert PLAN_CONV.run is not None is not WRITE_OFFSETS.run, NO_KERNELS
    output = (shape[0], rows, *windows.output)
    chain = windows.chain(shape[1], group, chain)
    windows, volume = flattened(windows)
    channels, rows = shape[1] * volume.taps_z // group, rows // group
    direct = is_direct(windows) and volume == Volume()
    depth = channels * math.prod(windows.kernel)
    lines = by_lines(windows, rows, depth)
    single, runs = is_line(windows) or lines, lines and in_runs(windows, depth)
    seen = seen_by(windows, single)
    numbers = np.empty(len(CONV_FIELDS), np.int64)
    PLAN_CONV.run(
        shape[0], group, rows, channels, *sizes_of(windows), *volume, *seen.taps,
        direct, single, runs, threads, chain, numbers,
    )  # fmt: skip
    taps, plane, line, block = (numbers.item(place) for place in SEEN_PLACES)
    step = math.prod(windows.size) if direct else plane * len(seen.planes)
    offsets = np.empty(block * taps, np.int64)
    WRITE_OFFSETS.run(block, step, plane, line, *seen.taps, offsets)
    return planned(numbers, threads, output, offsets, _panel(block * taps), seen.planes)


SEEN_PLACES = tuple(map(CONV_FIELDS.index, ("taps", "plane", "line", "block")))


@functools.lru_cache(maxsize=64)
def _panel(length: int) -> NDArray:
    """Return the bytes from row to row of a copied panel."""
    return fixed(np.arange(length) * 4 * VECTOR)


def sizes_of(windows: Windows) -> Iterator[int]:
    """Return the numbers of windows of images, as ``kernels.windows`` takes them."""
    return itertools.chain.from_iterable(windows)


def places_of(windows: Windows) -> dict[str, int]:
    """Return where windows of images are, by the names that kernels have for it."""
    names = ("height", "width", "out_height", "out_width", "stride_y", "stride_x")
    places = (*windows.size, *windows.output, *windows.strides)
    return dict(zip(names, places, strict=True), top=windows.begins[0])


class Volume(NamedTuple):
    """The moves of windows along the depth of a volume; an image has none."""

    depth: int = 1
    out_depth: int = 1
    taps_z: int = 1
    stride_z: int = 1
    step_z: int = 1
    front: int = 0


def flattened(windows: Windows) -> tuple[Windows, Volume]:
    """Return windows of images, and how they move along a volume.

    Where every window is one element, and all are in order, images are lines.
    """
    if is_direct(windows):
        size = 1, math.prod(windows.size)
        one, none = (1, 1), (0, 0)
        return Windows(size, one, one, one, none, none, size), Volume()
    return (windows, Volume()) if len(windows.size) == 2 else sliced(windows)


def sliced(windows: Windows) -> tuple[Windows, Volume]:
    """Return windows over the slices of a volume, and how they move along its depth."""
    fields = (
        windows.size, windows.kernel, windows.strides, windows.dilations,
        windows.begins, windows.ends, windows.output,
    )  # fmt: skip
    depth, taps, stride, step, front, _, out_depth = (axes[0] for axes in fields)
    volume = Volume(depth, out_depth, taps, stride, step, front)
    return Windows(*(axes[1:] for axes in fields)), volume


def is_direct(windows: Windows) -> bool:
    """Return whether every window is one element, and all are in order."""
    single = math.prod(windows.kernel) == math.prod(windows.strides) == 1
    return single and windows.size == windows.output and not any(windows.begins)


def is_line(windows: Windows) -> bool:
    """Return whether images have one line, and so has the result."""
    return windows.size[0] == windows.output[0] == windows.kernel[0] == 1


# Columns of kernels from which on planes of all columns take longer than loads not aligned.
MIN_RUN_COLUMNS = 5


# Numbers that a place sees, from which on lines are better multiplied in runs of taps.
MIN_RUN_DEPTH = 24


def by_lines(windows: Windows, rows: int, depth: int) -> bool:
    """Return whether lines of the result are multiplied one by one.

    Images then have a plane for each of the phases of columns, which are packed faster than one for
    each column. What taps see is not aligned, which costs little where two vectors fill a line of
    the cache, if lines of the result fill tiles; and weights are read again for every line.
    """
    lanes, width, (_, kernel) = cpu().lanes, windows.output[-1], windows.kernel
    fills = width % lanes == 0 and (width % (2 * lanes) == 0 or width >= 8 * lanes)
    suited = kernel >= max(MIN_RUN_COLUMNS, windows.strides[1] + 1) or in_runs(windows, depth)
    return lanes == 8 and rows <= FEW and fills and suited


def in_runs(windows: Windows, depth: int) -> bool:
    """Return whether places see many numbers, and a kernel's lines are three adjacent columns."""
    line = windows.kernel[1], windows.strides[1], windows.dilations[1]
    return line == (RUN, 1, 1) and depth >= MIN_RUN_DEPTH


class Seen(NamedTuple):
    """The planes of an image, and what each tap of a kernel sees of them.

    Attributes:
        planes: As ``ConvLayout`` says what they are.
        taps: As kernels take it: how many planes and taps there are, the greatest line and column;
            and of each tap the plane that it sees, and the line and column of the plane in which it
            sees the first window.
    """

    planes: NDArray
    taps: tuple[Any, ...]


def seen_by(windows: Windows, phases: bool) -> Seen:
    """Return the planes and the taps of the kernel, row by row.

    There is a plane for each of the ``phases`` of columns, or else for each column.
    """
    along = windows.strides[1] if phases else 0
    left = windows.begins[1]
    return _seen(windows.strides[0], along, windows.kernel, windows.dilations, left)


@functools.lru_cache(maxsize=256)
def _seen(
    stride: int, along: int, kernel: tuple[int, ...], dilations: tuple[int, ...], left: int
) -> Seen:
    """Return the same for strides; that along a line is 0 for a plane of each column."""
    y, x = (np.arange(taps) * step for taps, step in zip(kernel, dilations, strict=True))
    along = along or int(x[-1]) + dilations[1]
    # Not np.unique, whose first call imports numpy.ma, for 15 ms.
    phases_y, phases_x = (np.array(sorted({*n.tolist()})) for n in (y % stride, x % along))
    planes = np.stack(np.meshgrid(phases_y, phases_x - left, indexing="ij"), -1).reshape(-1, 2)
    rows = np.searchsorted(phases_y, y % stride) * len(phases_x)
    plane = np.add.outer(rows, np.searchsorted(phases_x, x % along)).ravel()
    line, column = np.repeat(y // stride, len(x)), np.tile(x // along, len(y))
    sizes = len(planes), len(plane), int(line.max()), int(column.max())
    return Seen(fixed(planes), (*sizes, fixed(plane), fixed(line), fixed(column)))


class TaskPart(NamedTuple):
    """A task's part of the result: numbers of channels, lines and columns."""

    rows: int
    height: int
    width: int

    def number_in(self, rows: int, size: tuple[int, ...]) -> int:
        """Return how many of it a result of so many channels has."""
        whole = zip((rows, *size), self, strict=True)
        return math.prod(-(-length // own) for length, own in whole)


def split_tasks(
    images: int, rows: int, size: tuple[int, ...], threads: int, *, across: bool
) -> TaskPart:
    """Return what a task makes.

    Of all ways to cut, that with the least work for the thread that has most of it: rows and
    columns beyond whole tiles are wasted, and every task takes time of its own.

    Args:
        images: How many results there are.
        rows: Channels of each.
        size: Their height and width.
        threads: How many there are.
        across: Whether the result is one line, which is cut; others are cut between lines.
    """
    assert SPLIT_TASKS.run is not None, NO_KERNELS
    part = np.empty(3, np.int64)
    SPLIT_TASKS.run(images, rows, *size, threads, across, part)
    return TaskPart(*part.tolist())
