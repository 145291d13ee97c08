"""Concat: on a kernel for shapes that come again, and into memory that is used again.

That is most of its cost for a cache of keys and values, whose shapes do not.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_cpu.buffers import MIN_POOLED_BYTES, empty
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.data_movement.moves import (
    ALIKE,
    MAX_RUNS,
    MAX_TRACED_ELEMENTS,
    SOURCES,
    Moves,
    fixed,
    grouped,
    numbers_of,
    traced,
)
from tenonnx_cpu.data_movement.pad_tile import NO_FILL, Mover
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.kernel_selection import Call, NDArray, Site, specialize

CONCAT = JitKernel("data_movement.concat", "concat")

# Elements of a run at most: threads share out runs.
MAX_RUN_ELEMENTS = 1 << 14

# Elements of a run where there are as many runs whatever the lengths.
UNLIMITED_RUN_ELEMENTS = 1 << 40

# Bytes that are worth a second thread.
MIN_JOINED_BYTES_PER_THREAD = 1 << 18

# Runs of which there may be more only if they have so many elements: numpy copies short ones.
FEW, SHORT = 512, 32


@specialize("Concat")
def specialize_concat(site: Site, plain: Call) -> Call | None:
    """Take arrays of one dtype."""
    axis, count = site.attribute("axis", None), len(site.node.inputs)
    if axis is None:
        return None
    if site.threads > 1:
        CONCAT.request()
    call = ConcatCall(axis, site.threads, plain)
    if count > SOURCES:
        return call
    mover = Mover(call, call, NO_FILL, count, site.threads)
    return Capturable(mover.call, functools.partial(_of_any_length, mover, axis, plain))


@cacheable
@dataclass(frozen=True, eq=False)
class ConcatCall:
    """The call of Concat: arrays side by side.

    Attributes:
        axis: Along which.
        threads: How many to use at most.
        plain: Computes the same from the same arrays.
    """

    axis: int
    threads: int
    plain: Call

    def __call__(self, *arrays: Any) -> Any:
        """Return the result."""
        first, axis = arrays[0], self.axis
        nbytes = 0
        for array in arrays:
            if array.dtype != first.dtype or array.ndim != first.ndim:
                return self.plain(*arrays)
            nbytes += array.nbytes
        if (
            nbytes < MIN_POOLED_BYTES
            or first.dtype == object
            or not -first.ndim <= axis < first.ndim
        ):
            return self.plain(*arrays)
        shape = list(first.shape)
        shape[axis] = sum(array.shape[axis] for array in arrays)
        out = empty(tuple(shape), first.dtype)
        is_shared = self.threads > 1 and nbytes >= MIN_JOINED_BYTES_PER_THREAD
        if is_shared and concat(arrays, axis % first.ndim, out, self.threads):
            return out
        return np.concatenate(arrays, axis, out=out)

    def trace(self, arrays: Sequence[NDArray]) -> Moves | None:
        """Return the moves that do it; ``None`` if the kernel does not."""
        if all(array.flags.c_contiguous for array in arrays):
            return moves_of(tuple(array.shape for array in arrays), self.axis)
        if sum(array.size for array in arrays) > MAX_TRACED_ELEMENTS:
            return None
        return traced(self.plain(*(numbers_of(array, n) for n, array in enumerate(arrays))))


@cacheable
def _of_any_length(mover: Mover, axis: int, plain: Call, *arrays: Any) -> Any:
    """Return a launch that is alike for arrays of any length."""
    if not mover.takes(arrays) or not all(array.flags.c_contiguous for array in arrays):
        return plain(*arrays)
    moves = moves_of(tuple(array.shape for array in arrays), axis, UNLIMITED_RUN_ELEMENTS)
    return plain(*arrays) if moves is None else mover.launch(moves, arrays, (1, mover.threads))


def concat(arrays: tuple[Any, ...], axis: int, out: Any, threads: int) -> bool:
    """Write arrays side by side into ``out`` on several threads; ``False`` where numpy must.

    Args:
        arrays: Of one dtype, which takes a multiple of 4 bytes.
        axis: Along which they are concatenated.
        out: C-contiguous.
        threads: How many to use at most.
    """
    run = CONCAT.run
    rows = math.prod(out.shape[:axis])
    if run is None or rows < threads or out.itemsize % 4:
        return False
    for array in arrays:
        if not array.flags.c_contiguous or array.shape[:axis] != out.shape[:axis]:
            return False
        if array.shape[axis + 1 :] != out.shape[axis + 1 :]:
            return False
    starts = np.array([array.ctypes.data for array in arrays], np.int64)
    lengths = np.array([array.nbytes // (4 * rows) for array in arrays], np.int64)
    run(starts, lengths, out.ctypes.data, rows, out.nbytes // (4 * rows), threads)
    return True


@functools.lru_cache(maxsize=ALIKE)
def moves_of(
    shapes: tuple[tuple[int, ...], ...], axis: int, longest: int = MAX_RUN_ELEMENTS
) -> Moves | None:
    """Return the moves that put contiguous arrays of these shapes side by side.

    Args:
        shapes: The arrays'.
        axis: Along which.
        longest: Elements of a run at most.
    """
    first = shapes[0]
    if not -len(first) <= axis < len(first):
        return None
    axis %= len(first)
    rest = (*first[:axis], *first[axis + 1 :])
    if any((*shape[:axis], *shape[axis + 1 :]) != rest for shape in shapes):
        return None
    rows, inner = math.prod(first[:axis]), math.prod(first[axis + 1 :])
    widths = [shape[axis] * inner for shape in shapes]
    total = sum(widths)
    if not rows * total or rows * sum(-(-width // longest) for width in widths) > MAX_RUNS:
        return None
    if rows * len(widths) > FEW and total < SHORT * len(widths):
        return None
    pieces, place = [], 0
    for source, width in enumerate(widths):
        for begin in range(0, width, longest):
            row = np.arange(rows)
            count = min(longest, width - begin)
            columns = (source, row * width + begin, row * total + place + begin, count, 1)
            pieces.append(np.stack(np.broadcast_arrays(*columns), 1))
        place += width
    runs = np.concatenate(pieces)
    shape = (*first[:axis], sum(shape[axis] for shape in shapes), *first[axis + 1 :])
    if longest == UNLIMITED_RUN_ELEMENTS:  # as many entries whatever the lengths
        runs = runs[np.argsort(runs[:, 2], kind="stable")]
        return Moves(shape, fixed(np.pad(runs, ((0, 0), (0, 3)), constant_values=1)))
    return Moves(shape, grouped(runs, total))
