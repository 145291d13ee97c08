"""Copies of arrays with their elements in order: by a transposing kernel, or run by run."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from tenonnx_cpu.buffers import empty, frozen
from tenonnx_cpu.capture.launch import Launch
from tenonnx_cpu.data_movement.copies import CopyLayout, copied
from tenonnx_cpu.data_movement.kernels import (
    AXES,
    FEW_LINES,
    JOINED_COLUMNS,
    PARTED_LINES,
    TOGETHER,
    UNIT_BYTES,
)
from tenonnx_cpu.elementwise.typed import OF_SIZE, first_of
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.jit.threads.sharing import shared_out
from tenonnx_cpu.kernel_selection import NDArray

TRANSPOSE = JitKernel("data_movement.transpose", "transpose")

# Elements that are worth a second thread.
MIN_TRANSPOSED_ELEMENTS_PER_THREAD = 1 << 14

# An axis of fewer elements fills no vector: it is taken together with another.
MIN_AXIS_ELEMENTS = 16

Axis: TypeAlias = tuple[int, int, int]
SOURCE, TARGET = 1, 2
# An axis is its length, and its strides in two arrays.
UNIT_AXIS: Axis = (1, 0, 0)


def ordered(x: NDArray, threads: int) -> Launch | None:
    """Return what puts an array's elements in order, side by side, if a kernel does."""
    run = TRANSPOSE.run
    if not x.size or not x.flags.aligned or x.dtype.hasobject:
        return None
    cut = None if run is None else cut_of(x.shape, x.strides, x.itemsize, threads)
    if cut is None:
        return copied(x, threads)
    made = empty(x.shape, x.dtype)
    arguments = first_of(x), made.reshape(-1).view(np.uint8), cut.numbers, cut.threads
    return Launch(run, arguments, made)


@functools.lru_cache(maxsize=1024)
def cut_of(
    shape: tuple[int, ...], strides: tuple[int, ...], size: int, threads: int
) -> CopyLayout | None:
    """Return how to copy an array with these strides in bytes; ``None`` if the kernel does not.

    Args:
        shape: The array's.
        strides: The array's.
        size: Bytes of an element.
        threads: How many to use at most.
    """
    axes = _axes(shape, strides, size)
    if size not in OF_SIZE or axes[-1][SOURCE] == 1 or any(step <= 0 for _, step, _ in axes):
        return None
    lines = _transposed(axes)
    if lines is None or len(axes) > AXES:
        return None
    outer = [*[UNIT_AXIS] * (AXES - len(axes)), *axes]
    band = TOGETHER * max(1, UNIT_BYTES // (TOGETHER * lines.numbers[0] * size))
    bands = -(-lines.count // band)
    units = bands * math.prod(length for length, _, _ in axes)
    grain, team = shared_out(units, math.prod(shape), MIN_TRANSPOSED_ELEMENTS_PER_THREAD, threads)
    tasks = -(-units // grain)
    numbers = [*lines.numbers, lines.few, band, bands, units, grain, tasks, size]
    numbers += [axis[field] for field in range(3) for axis in outer]
    return CopyLayout(frozen(np.array(numbers, np.int64)), min(team, tasks))


@dataclass(frozen=True)
class _Lines:
    """Lines of the result that are written together.

    Attributes:
        count: How many there are.
        numbers: ``TRANSPOSE_FIELDS`` as far as it is about them.
    """

    count: int
    numbers: list[int]

    @property
    def few(self) -> int:
        """Whether so few columns are adjacent in the result, or lines in the source, and which."""
        columns, apart, *_, target_line, _, _, joined = self.numbers
        if joined:
            return 0
        if columns in FEW_LINES and target_line == columns:
            return JOINED_COLUMNS
        return PARTED_LINES if self.count in FEW_LINES and apart == self.count else 0


def _transposed(axes: list[Axis]) -> _Lines | None:
    """Do the same where elements are ``apart``; ``None`` if lines are, too."""
    beside = next((axis for axis in axes if axis[SOURCE] == 1), None)
    if beside is None:
        return None
    run, apart, _ = axes.pop()
    axes.remove(beside)
    block, _, line = beside
    runs, run_apart, _ = _going_on(axes, run, TARGET)
    blocks, _, target_block = _going_on(axes, block, SOURCE)
    joined = int(runs > 1 or blocks > 1)
    lines = block * blocks
    numbers = [run * runs, apart, run, run_apart, lines, 1, line, block, target_block, joined]
    return _Lines(lines, numbers)


def _going_on(axes: list[Axis], length: int, side: int) -> Axis:
    """Take out the axis that goes on where a short one of stride 1 ends, if there is one.

    Args:
        axes: The others.
        length: The short one's.
        side: In which array it does, ``SOURCE`` or ``TARGET``.
    """
    for axis in axes if length < MIN_AXIS_ELEMENTS else ():
        if axis[side] == length:
            axes.remove(axis)
            return axis
    return UNIT_AXIS


def _axes(shape: tuple[int, ...], strides: tuple[int, ...], size: int) -> list[Axis]:
    """Return the fewest axes: lengths, and strides in the source and the result, in elements."""
    axes: list[Axis] = []
    target = 1
    for length, stride in zip(reversed(shape), reversed(strides), strict=True):
        step = stride // size
        if length == 1:
            continue
        if axes and step == axes[0][0] * axes[0][1]:
            inner, below, place = axes[0]
            axes[0] = (length * inner, below, place)
        else:
            axes.insert(0, (length, step, target))
        target *= length
    return axes or [(1, 1, 1)]
