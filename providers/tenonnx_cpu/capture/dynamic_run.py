"""A captured run of any of some lengths: numbers that differ have slopes, and few things are made.

Of what ``CapturedRun.encoded`` says at some lengths, everything is the same or on one line.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tenonnx_cpu.capture.capturable import replay_once
from tenonnx_cpu.capture.extents import DATA, same_of, word_at
from tenonnx_cpu.capture.growth import Growth, Varies
from tenonnx_cpu.capture.launch import Encoded, fix, is_fixed

NDArray: TypeAlias = np.ndarray[Any, Any]
Maker: TypeAlias = "Callable[[int], tuple[Any, int]]"


class _Made(NamedTuple):
    """A thing that is another one for each length.

    Attributes:
        number: Among the things.
        word: Which word has its address, if one does.
        make: Returns it, and that address.
    """

    number: int
    word: int | None
    make: Maker


class DynamicRun:
    """A captured run of any of some lengths.

    Args:
        growth: How the inputs grow.
        samples: It encoded for inputs that are longer by so much; by 0 and by 1, among others.

    Raises:
        Varies: One of its numbers is not on one line.
    """

    def __init__(self, growth: Growth, samples: Mapping[int, Encoded]) -> None:
        first = samples[0]
        if any(len(each.code) != len(first.code) for each in samples.values()):
            raise Varies
        self._growth, self._most, self._guards = growth, max(samples), len(first.pointers)
        self._n, axis, self._length = growth.clock
        shape = growth.forms[self._n][1]
        self._axis, self._before, self._behind = axis, shape[:axis], shape[axis + 1 :]
        others = (n for n, form in enumerate(growth.forms) if type(form) is tuple)
        self._others = [(n, growth.forms[n][1]) for n in others if n not in growth.axes]
        self._words, self._things = first.addressed()
        slopes = _on_line({step: np.array(each.code) for step, each in samples.items()})
        self._varying = slopes.nonzero()[0]
        self._slopes = slopes[self._varying]
        self._made = tuple(_made(samples))

    def takes(self, inputs: Sequence[Any]) -> bool:
        """Return whether inputs are of such lengths, as far as one of those that grow tells."""
        clock, axis = inputs[self._n], self._axis
        if type(clock) is not np.ndarray or clock.ndim <= axis:
            return False
        shape = clock.shape
        if not 0 <= shape[axis] - self._length <= self._most:
            return False
        if shape[:axis] != self._before or shape[axis + 1 :] != self._behind:
            return False
        return all(getattr(inputs[n], "shape", None) == shape for n, shape in self._others)

    def __call__(self, inputs: tuple[Any, ...], otherwise: Callable[..., Any]) -> Any:
        """Return the results, or call something else with inputs that differ otherwise."""
        step = inputs[self._n].shape[self._axis] - self._length
        words, things = self._words.copy(), self._things.copy()
        words[self._varying] += self._slopes * step
        for number, word, make in self._made:
            things[number], address = make(step)
            if word is not None:
                words[word] = address
        for n, slope in self._growth.slopes.items():
            given, wanted = inputs[n], self._growth.forms[n] + slope * step
            if is_fixed(given) and np.array_equal(given, wanted):
                things[self._guards + n] = given
        return replay_once(words, things, inputs, otherwise)


def _on_line(found: Mapping[int, NDArray]) -> NDArray:
    """Return the slopes of numbers at some steps."""
    slopes = found[1] - found[0]
    if any((at != found[0] + slopes * step).any() for step, at in found.items()):
        raise Varies
    return slopes


def _made(samples: Mapping[int, Encoded]) -> Iterator[_Made]:
    """Return what makes the things that are not the same at all lengths."""
    words = dict(enumerate(samples[0].pointers))
    columns = zip(*(each.things for each in samples.values()), strict=True)
    for number, (thing, *others) in enumerate(columns):
        if all(other is thing or _is_same(thing, other) for other in others):
            continue
        every = dict(zip(samples, (thing, *others), strict=True))
        if (make := _maker(every, given=number in words)) is not None:
            yield _Made(number, words.get(number), make)


def _is_same(thing: Any, other: Any) -> bool:
    if isinstance(thing, np.ndarray) and isinstance(other, np.ndarray):
        return thing is other or same_of(thing) == same_of(other)
    return thing is other


def _maker(every: Mapping[int, Any], *, given: bool) -> Maker | None:
    """Return what makes a thing of a length; ``None`` if one serves all.

    Args:
        every: The thing at some lengths.
        given: Whether a launch is given it; else it is returned.
    """
    thing = every[0]
    if any(type(other) is not type(thing) for other in every.values()):
        raise Varies
    if isinstance(thing, functools.partial):
        return _allocating(every)
    if isinstance(thing, int | np.integer):
        return _counting(every)
    if isinstance(thing, np.ndarray):
        return _holding(every, np.asarray if given else fix)
    if any(other != thing for other in every.values()):
        raise Varies
    return None


def _allocating(every: Mapping[int, Any]) -> Maker:
    """Return what makes what allocates a large result."""
    empty, (shape, dtype) = every[0].func, every[0].args
    slopes = _on_line({step: np.array(each.args[0]) for step, each in every.items()}).tolist()

    def make(step: int) -> tuple[Any, int]:
        longer = (size + slope * step for size, slope in zip(shape, slopes, strict=True))
        return functools.partial(empty, tuple(longer), dtype), 0

    return make


def _counting(every: Mapping[int, Any]) -> Maker | None:
    """Return what makes a number, as launches have it."""
    number = int(every[0])
    slope = int(_on_line({step: np.array(int(each)) for step, each in every.items()}))

    def make(step: int) -> tuple[Any, int]:
        words = np.array([number + slope * step, 0])
        words[1:].view(np.float64)[0] = words[0]
        return words, word_at(id(words) + DATA).value

    return make if slope else None


def _holding(every: Mapping[int, NDArray], kept: Callable[[NDArray], NDArray]) -> Maker | None:
    """Return what makes an array of whole numbers."""
    array = every[0]
    if array.dtype.kind not in "iu" or any(x.shape != array.shape for x in every.values()):
        raise Varies
    slopes = _on_line({step: each.astype(np.int64) for step, each in every.items()})
    slopes = slopes.astype(array.dtype)

    def make(step: int) -> tuple[Any, int]:
        longer = kept(array + slopes * step)
        return longer, id(longer)

    return make if slopes.any() else None
