"""The moves of a result's elements: runs of adjacent ones, and runs that are alike.

Where an element goes is found out by moving elements' numbers in their place.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from tenonnx_cpu.buffers import frozen
from tenonnx_cpu.kernel_selection import NDArray

SOURCES = 16
# The number of the source of elements that no other source fills.
FILL = SOURCES

MAX_RUNS = 1 << 15
# Elements that a run should have on average, unless the result is at most ``MAX_SINGLE_ELEMENTS``.
MIN_ELEMENTS_PER_RUN = 8

# Elements of a run in the other order, or of one element again and again, that are worth a loop.
MIN_OTHER_RUN_ELEMENTS = 8

# Elements of a result that may be moved one by one, and up to which it is found out how.
MAX_SINGLE_ELEMENTS, MAX_TRACED_ELEMENTS = 1 << 12, 1 << 20

# Elements of the result that one entry of runs that are alike spans at most: what other entries
# write between them is still in the first-level cache.
MAX_SPANNED_ELEMENTS = 1 << 13

# Small results whose moves nodes share: the same ones are in each layer of a model.
ALIKE = 64

# Bits of an element's place in a source.
PLACE_BITS = 40


@dataclass(frozen=True)
class Moves:
    """The moves of a result's elements.

    Attributes:
        shape: The result's.
        runs: As the kernel takes them.
    """

    shape: tuple[int, ...]
    runs: NDArray


def place_in(source: Any) -> Any:
    """Return the number of a source's first element; those before it are in the same source."""
    return (source << PLACE_BITS) + (1 << PLACE_BITS - 1)


def numbers_of(array: NDArray, source: int) -> NDArray:
    """Return an array whose elements say where an array's elements lie in its memory."""
    steps = tuple(step // array.itemsize for step in array.strides)
    number = _numbers_of if array.size <= MAX_SINGLE_ELEMENTS else _numbers_of.__wrapped__
    return number(array.shape, steps, source)


@functools.lru_cache(maxsize=ALIKE)
def _numbers_of(shape: tuple[int, ...], steps: tuple[int, ...], source: int) -> NDArray:
    numbers = np.full(shape, place_in(source), np.int64)
    for axis, (length, step) in enumerate(zip(shape, steps, strict=True)):
        numbers += (np.arange(length) * step).reshape(-1, *(1,) * (len(shape) - 1 - axis))
    return frozen(numbers)


def traced(numbers: NDArray) -> Moves | None:
    """Return the moves that put elements where their numbers are; none above 0 is the fill.

    Only from adjacent elements, in either direction, and from one again and again.
    """
    if not 0 < numbers.size <= MAX_TRACED_ELEMENTS or numbers.dtype != np.int64:
        return None
    trace = _traced if numbers.size <= MAX_SINGLE_ELEMENTS else _traced.__wrapped__
    runs = trace(numbers.tobytes(), numbers.shape[-1] if numbers.ndim else 1)
    return None if runs is None else Moves(numbers.shape, runs)


@functools.lru_cache(maxsize=ALIKE)
def _traced(numbers: bytes, columns: int) -> NDArray | None:
    flat = np.frombuffer(numbers, np.int64)
    flat = np.where(flat <= 0, place_in(FILL), flat)
    steps = np.diff(flat)
    near = np.abs(steps) <= 1
    starts = _beginnings(near, steps[1:] == steps[:-1])
    if starts.size > MAX_RUNS or (
        flat.size > MAX_SINGLE_ELEMENTS and flat.size < MIN_ELEMENTS_PER_RUN * starts.size
    ):
        return None
    counts, forward = np.diff(np.append(starts, flat.size)), np.append(steps, 1)[starts] == 1
    # Those of other runs that are short are moved by themselves, as many as are alike at a time.
    alone = np.repeat(~forward & (counts < MIN_OTHER_RUN_ELEMENTS), counts)
    alone[starts] = True
    starts = np.flatnonzero(alone)
    counts = np.diff(np.append(starts, flat.size))
    first, apart = flat[starts], np.where(counts > 1, np.append(steps, 1)[starts], 1)
    sources = first >> PLACE_BITS
    runs = (sources, first - place_in(sources), starts, counts, apart)
    return grouped(np.stack(runs, 1), columns)


def _beginnings(follows: NDArray, steady: NDArray) -> NDArray:
    """Return where sequences with a constant step begin.

    Args:
        follows: Whether an item may follow the one before it; the first item has none.
        steady: Whether its step is that of the one before it; the first two have none.
    """
    within = np.append(False, follows)
    within[2:] &= ~follows[:-1] | steady
    return np.flatnonzero(~within)


def grouped(runs: NDArray, columns: int) -> NDArray:
    """Return runs as the kernel takes them: those that are alike and equally far apart as one.

    Args:
        runs: Of each, its source, its first element's place there and in the result, how many
            elements there are, and what is from one to the next in the source.
        columns: Elements of a row of the result: runs that are alike begin in one column.
    """
    source, _, target, count, step = runs.T
    runs = runs[np.lexsort((target, target % columns, step, count, source))]
    alike = (runs[1:, [0, 3, 4]] == runs[:-1, [0, 3, 4]]).all(1)
    apart = np.diff(runs[:, 1:3], axis=0)
    starts = _beginnings(alike, (apart[1:] == apart[:-1]).all(1))
    lengths = np.diff(np.append(starts, len(runs)))
    steps = np.append(apart, [[0, 0]], 0)[starts]
    most = np.maximum(1, MAX_SPANNED_ELEMENTS // np.maximum(1, steps[:, 1]))
    number = np.arange(len(runs)) - np.repeat(starts, lengths)
    cuts = np.flatnonzero(number % np.repeat(most, lengths) == 0)
    times = np.diff(np.append(cuts, len(runs)))
    made = np.concatenate([runs[cuts], times[:, None], np.repeat(steps, -(-lengths // most), 0)], 1)
    return fixed(made[np.argsort(made[:, 2], kind="stable")])


def fixed(runs: NDArray) -> NDArray:
    """Return runs as the kernel takes them, which nobody may change."""
    return frozen(np.ascontiguousarray(runs, np.int64))
