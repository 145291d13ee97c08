"""Arrays whose elements a kernel puts side by side, by runs of adjacent bytes."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from tenonnx_cpu.buffers import empty, frozen
from tenonnx_cpu.capture.launch import Launch
from tenonnx_cpu.elementwise.typed import OF_SIZE, first_of, launch
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.jit.threads.sharing import shared_out
from tenonnx_cpu.kernel_selection import NDArray

COPY = JitKernel("data_movement.runs", "copy")

# Bytes that are worth a second thread.
MIN_COPIED_BYTES_PER_THREAD = 1 << 17

# Bytes that are copied at a time: several parts share a long run, or many runs, among threads.
PART_BYTES = 1 << 15


def copied(x: NDArray, threads: int) -> Launch | None:
    """Return what puts an array's elements side by side; ``None`` if no kernel does."""
    run = COPY.run
    if run is None or not x.size or x.dtype.hasobject:
        return None
    if x.ndim and not x.strides[-1] and x.shape[-1] > 1 and x.itemsize in OF_SIZE:
        element = OF_SIZE[x.itemsize]
        return launch(element, element, (x,), x.dtype, threads)
    cut = cut_of(x.shape, x.strides, x.itemsize, threads)
    y = empty(x.shape, x.dtype)
    return Launch(run, (first_of(x), y.reshape(-1).view(np.uint8), cut.numbers, cut.threads), y)


@dataclass(frozen=True)
class CopyLayout:
    """The way in which an array is copied.

    Attributes:
        numbers: ``COPY_FIELDS``.
        threads: How many are of use.
    """

    numbers: NDArray
    threads: int


@functools.lru_cache(maxsize=1024)
def cut_of(shape: tuple[int, ...], strides: tuple[int, ...], size: int, threads: int) -> CopyLayout:
    """Return how to copy an array with these strides.

    Args:
        shape: The array's.
        strides: The array's.
        size: Bytes of an element.
        threads: How many to use at most.
    """
    axes: list[tuple[int, int, int]] = [(size, 1, 1)]
    target = size
    for length, step in zip(reversed(shape), reversed(strides), strict=True):
        inner, apart, place = axes[0]
        if length > 1 and step == inner * apart:
            axes[0] = (length * inner, apart, place)
        elif length > 1:
            axes.insert(0, (length, step, target))
        target *= length
    run, _, _ = axes.pop()
    count, source_step, target_step = axes.pop() if axes else (1, 0, 0)
    part = min(run, PART_BYTES)
    piece = min(count, max(1, PART_BYTES // run))
    parts, cuts = -(-run // part), -(-count // piece)
    units = math.prod(length for length, _, _ in axes) * cuts * parts
    grain, team = shared_out(units, math.prod(shape) * size, MIN_COPIED_BYTES_PER_THREAD, threads)
    numbers = [
        *(len(axes), run, part, parts, count, source_step, target_step, piece, cuts, units, grain),
        -(-units // grain),
        *(number for axis in reversed(axes) for number in axis),
    ]
    return CopyLayout(frozen(np.array(numbers, np.int64)), team)
