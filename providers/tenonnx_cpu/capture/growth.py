"""Growth of inputs from one run to the next, such as a cache's by a token."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tenonnx_cpu.capture.extents import form_of
from tenonnx_cpu.capture.launch import fix, is_fixed

NDArray: TypeAlias = np.ndarray[Any, Any]
# The result of `form_of` for an input.
Form: TypeAlias = Any

# Lengths that one captured run serves.
LENGTHS = 256

# The least length of what grows: that of 1 is broadcast, and no array of length 0 is read.
SHORTEST = 2


class Varies(Exception):
    """Something is not on one line at all lengths; because of some steps, if they are known."""

    def __init__(self, steps: Collection[int] = ()) -> None:
        super().__init__()
        self.steps = steps


class Growth(NamedTuple):
    """The difference of a span's inputs from those of the run before.

    Attributes:
        forms: The later run's.
        axes: The axes of each input that are longer, by its position; all by as much.
        slopes: What is added to the elements of fixed arrays with each step of length.
    """

    forms: tuple[Form, ...]
    axes: Mapping[int, tuple[int, ...]]
    slopes: Mapping[int, NDArray]

    @property
    def clock(self) -> tuple[int, int, int]:
        """The position of the longest input that grows, the axis, and its length."""
        length, n, axis = max(self._lengths())
        return n, axis, length

    def _lengths(self) -> Iterator[tuple[int, int, int]]:
        for n, axes in self.axes.items():
            yield from ((self.forms[n][1][axis], n, axis) for axis in axes)

    def lengths(self, shift: int = 0) -> tuple[Growth, int]:
        """Return it at the least length that a run serves, and by how much others are greater.

        Args:
            shift: What is added to the least of ``LENGTHS`` lengths.

        Raises:
            Varies: This is not one of them.
        """
        shortest, longest = min(self._lengths())[0], max(self._lengths())[0]
        least = longest - longest % LENGTHS + shift
        first = max(least, longest - shortest + SHORTEST)
        if longest < first:
            raise Varies
        back, most = first - longest, least + LENGTHS - 1
        forms = list(self.forms)
        for n, axes in self.axes.items():
            dtype, shape, _ = forms[n]
            sizes = tuple(size + back * (i in axes) for i, size in enumerate(shape))
            forms[n] = form_of(np.empty(sizes, dtype))
        for n, slope in self.slopes.items():
            forms[n] = fix(forms[n] + slope * back)
        return Growth(tuple(forms), self.axes, self.slopes), most - first

    def at(self, step: int, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """Return inputs that are longer by so much, with anything in them."""
        found = list(inputs)
        for n, axes in self.axes.items():
            dtype, shape, _ = self.forms[n]
            longer = tuple(size + step * (i in axes) for i, size in enumerate(shape))
            found[n] = np.empty(longer, dtype)
        for n, slope in self.slopes.items():
            found[n] = fix(self.forms[n] + slope * step)
        return tuple(found)


def growth_of(before: Sequence[Form], now: tuple[Form, ...]) -> Growth | None:
    """Return how inputs have grown; ``None`` if they differ otherwise, or not at all."""
    axes: dict[int, tuple[int, ...]] = {}
    steps: set[int] = set()
    fixed: list[int] = []
    for n, (old, new) in enumerate(zip(before, now, strict=True)):
        if type(old) is tuple and type(new) is tuple:
            if old == new:
                continue
            longer = _longer(old, new)
            if not longer:
                return None
            steps.update(longer.values())
            axes[n] = tuple(longer)
        elif is_fixed(old) and is_fixed(new):
            fixed.append(n)
        elif old is not new:
            return None
    if len(steps) != 1 or min(steps) < 1:
        return None
    try:
        slopes = {n: slope_of(before[n], now[n], *steps) for n in fixed}
    except Varies:
        return None
    return Growth(now, axes, slopes)


def _longer(old: Form, new: Form) -> dict[int, int]:
    """Return by how much each axis of an array is longer, if its elements are side by side."""
    (kind, before, _), (dtype, shape, strides) = old, new
    if kind != dtype or len(before) != len(shape):
        return {}
    if np.empty(shape, dtype).strides != strides:
        return {}
    sizes = enumerate(zip(before, shape, strict=True))
    return {axis: size - own for axis, (own, size) in sizes if size != own}


def slope_of(first: NDArray, second: NDArray, steps: int) -> NDArray:
    """Return what is added to whole numbers with each of some steps."""
    if first.dtype != second.dtype or first.shape != second.shape or first.dtype.kind not in "iu":
        raise Varies
    difference = second.astype(np.int64) - first.astype(np.int64)
    if (difference % steps).any():
        raise Varies
    return (difference // steps).astype(first.dtype)
