"""Concat: on a kernel for shapes that come again, and into memory that is used again.

That is most of its cost for a cache of keys and values, whose shapes do not.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tenonnx_cpu.buffers import SMALL, empty
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.data_movement.moving import (
    LARGE,
    NOTHING,
    RUNS,
    SOURCES,
    Mover,
    Moves,
    fixed,
    numbers_of,
    traced,
)
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.kernel_selection import Call, NDArray, Site, specialize

CONCAT = JitKernel("data_movement.concat", "concat")

RUN = 1 << 14
"""Elements of a run at most: threads share out runs."""

WHOLE = 1 << 40
"""Elements of a run where there are as many runs whatever the lengths."""

ENOUGH = 1 << 18
"""Bytes that are worth a second thread."""

FEW, SHORT = 512, 32
"""Runs of which there may be more only if they have so many elements: numpy copies short ones."""


@specialize("Concat")
def specialize_concat(site: Site, plain: Call) -> Call | None:
    """Takes arrays of one dtype."""
    axis, count = site.attribute("axis", None), len(site.node.inputs)
    if axis is None:
        return None
    threads = site.threads
    if threads > 1:
        CONCAT.request()

    def call(*arrays: Any) -> Any:
        first = arrays[0]
        nbytes = 0
        for array in arrays:
            if array.dtype != first.dtype or array.ndim != first.ndim:
                return plain(*arrays)
            nbytes += array.nbytes
        if nbytes < SMALL or first.dtype == object or not -first.ndim <= axis < first.ndim:
            return plain(*arrays)
        shape = list(first.shape)
        shape[axis] = sum(array.shape[axis] for array in arrays)
        out = empty(tuple(shape), first.dtype)
        if threads > 1 and nbytes >= ENOUGH and concat(arrays, axis % first.ndim, out, threads):
            return out
        return np.concatenate(arrays, axis, out=out)

    def trace(arrays: Sequence[NDArray]) -> Moves | None:
        if all(array.flags.c_contiguous for array in arrays):
            return moves_of([array.shape for array in arrays], axis)
        if sum(array.size for array in arrays) > LARGE:
            return None
        return traced(plain(*(numbers_of(array, n) for n, array in enumerate(arrays))))

    @functools.lru_cache(maxsize=4)
    def whole(*shapes: tuple[int, ...]) -> Moves | None:
        return moves_of(shapes, axis, WHOLE)

    def grown(*arrays: Any) -> Any:
        if not mover.takes(arrays) or not all(array.flags.c_contiguous for array in arrays):
            return plain(*arrays)
        moves = whole(*(array.shape for array in arrays))
        return plain(*arrays) if moves is None else mover.launch(moves, arrays, (1, threads))

    mover = Mover(trace, call, NOTHING, count, threads)
    return call if count > SOURCES else Capturable(mover.call, grown)


def concat(arrays: tuple[Any, ...], axis: int, out: Any, threads: int) -> bool:
    """Writes arrays side by side into ``out`` on several threads; ``False`` where numpy must.

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


def moves_of(shapes: Sequence[tuple[int, ...]], axis: int, longest: int = RUN) -> Moves | None:
    """Returns the moves that put contiguous arrays of these shapes side by side.

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
    if not rows * total or rows * sum(-(-width // longest) for width in widths) > RUNS:
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
    return Moves(shape, fixed(runs[np.argsort(runs[:, 2], kind="stable")]))
