"""What a call did, with places in its inputs and its own memory instead of addresses."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from tenonnx.operators import Array
from tenonnx_cuda.growing import NONE, Growth
from tenonnx_cuda.noting import Argument, Growing, Notes, Start, address, hold
from tenonnx_cuda.platform import View
from tenonnx_cuda.rooms import Room, room_of

MOST_STARTS: Final = 8
"""Of a call that is worth it: one that starts more takes the device longer than the host."""

Place: TypeAlias = tuple[int, int]
"""Which of what there are addresses of, and bytes from there."""


@dataclass(frozen=True)
class Result:
    """What a call returns.

    Attributes:
        source: In which source it is.
        view: How it lies there; the source itself if ``None``.
        axis: The one along which it gets longer; ``None`` for one that does not.
    """

    source: int
    view: View | None
    axis: int | None = None

    def again(self, sources: Sequence[Array], more: int, part: Callable[..., Array]) -> Array:
        """Returns it, by so many steps longer."""
        source, view, axis = sources[self.source], self.view, self.axis
        if view is None:
            return source
        if axis is not None:
            shape = (*view.shape[:axis], view.shape[axis] + more, *view.shape[axis + 1 :])
            view = View(view.offset, view.dtype, shape, view.strides)
        return part(source, view)


@dataclass(frozen=True)
class Take:
    """What a call did.

    Sources are its inputs that are on the device, then what it allocated, then what it held.

    Attributes:
        given: Which inputs are on the device.
        made: Shape and element type of each allocation.
        held: What else was on the device.
        times: Of what caches are longer by, what is added to numbers.
        starts: What was started, and where its arguments are: from a source's address, from 0, or
            from one of those.
        results: What was returned; ``None`` for an absent one.
        claims: Caches among the inputs, their axes, and how many steps were claimed behind them.
        length: Of the caches; 0 for none.
        apart: Pairs of inputs with memory in common, and bytes from one to the other: which of
            them an address meant is known only if they lie so again.
        writes: Whether some of the inputs were buffers: then others may not have memory in common.
        multiple: Whether the call returned a tuple.
    """

    given: tuple[int, ...]
    made: tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]
    held: tuple[Array, ...]
    times: tuple[int, ...]
    starts: tuple[tuple[Start, tuple[Place, ...]], ...]
    results: tuple[Result | None, ...]
    claims: tuple[tuple[int, int, int], ...]
    length: int
    apart: tuple[tuple[int, int, int], ...]
    writes: bool
    multiple: bool

    def fits(self, inputs: Sequence[Any], rooms: Mapping[int, Room]) -> bool:
        """Says whether inputs that lie alike share memory as those did that it was noted of.

        If so, what is behind caches in rooms is claimed.
        """
        if self.writes:
            if tuple(shared(inputs)) != self.apart:
                return False
        elif any(address(inputs[j]) - address(inputs[i]) != n for i, j, n in self.apart):
            return False
        return all(
            i in rooms and rooms[i].claim(inputs[i].shape[axis], steps)
            for i, axis, steps in self.claims
        )

    def again(
        self,
        inputs: Sequence[Any],
        more: int,
        empty: Callable[..., Array],
        part: Callable[..., Array],
    ) -> Any:
        """Does it, and returns what the call did.

        Args:
            inputs: The call's.
            more: By how many steps its caches are longer.
            empty: Allocates an array.
            part: Returns an array that lies in another one.
        """
        sources = [inputs[i] for i in self.given]
        sources += [empty(shape, dtype) for shape, dtype in self.made]
        if self.held:
            hold(*self.held)
            sources += self.held
        at = [source.data.ptr for source in sources]
        at.append(0)
        at += [more * times for times in self.times]
        for function, places in self.starts:
            function(*[at[source] + rest for source, rest in places])
        found = [None if r is None else r.again(sources, more, part) for r in self.results]
        return tuple(found) if self.multiple else found[0]


def taken(noted: Notes, inputs: Sequence[Any], result: Any, growth: Growth = NONE) -> Take | None:
    """Returns what was noted with places for addresses; ``None`` if it cannot be done again.

    Args:
        noted: What was noted.
        inputs: The call's, and buffers.
        result: What it returned.
        growth: What of the inputs may be longer another time.
    """
    if not noted.complete or len(noted.starts) > MOST_STARTS:
        return None
    multiple = isinstance(result, tuple)
    results = result if multiple else (result,)
    given = tuple(i for i, x in enumerate(inputs) if not (x is None or isinstance(x, np.ndarray)))
    sources = [*(inputs[i] for i in given), *noted.made, *noted.held]
    places = Places(sources, noted, {n for n, i in enumerate(given) if i in growth.known})
    try:
        return Take(
            given=given,
            made=tuple((array.shape, array.dtype) for array in noted.made),
            held=tuple(noted.held),
            starts=tuple(
                (function, tuple(map(places.of, started))) for function, started in noted.starts
            ),
            times=tuple(places.times),
            results=tuple(None if array is None else places.result(array) for array in results),
            claims=tuple(
                (given[places.source(cache)], axis, steps) for cache, axis, steps in noted.claims
            ),
            length=growth.length,
            apart=tuple(shared(inputs)),
            writes=any(buffer is not None for buffer in noted.buffers),
            multiple=multiple,
        )
    except UnknownPlaceError:
        return None


class UnknownPlaceError(LookupError):
    """An array that is in no source."""


class Places:
    """Where arrays are in sources.

    Args:
        sources: In order.
        noted: What was claimed, and with which numbers work was started.
        loose: Those that may be longer another time.

    Attributes:
        times: By what numbers grow when caches are a step longer.
    """

    def __init__(self, sources: Sequence[Array], noted: Notes, loose: Collection[int]) -> None:
        self._sources, self._loose = sources, loose
        self._claims = {address(cache): (axis, steps) for cache, axis, steps in noted.claims}
        self._extents = [self._extent(source) for source in sources]
        arguments = (each for _, started in noted.starts for each in started)
        self.times = sorted({each.times for each in arguments if isinstance(each, Growing)})

    def _extent(self, source: Array) -> tuple[int, int] | None:
        """Returns an array's addresses; of a cache, those of its whole room."""
        claimed = self._claims.get(address(source))
        room = None if claimed is None else room_of(source, claimed[0])
        return extent(source if room is None else room.array)

    def source(self, array: Array) -> int:
        """Returns which source an array is in."""
        wanted = extent(array)
        for number, there in enumerate(self._extents):
            if wanted and there and there[0] <= wanted[0] and wanted[1] <= there[1]:
                return number
        raise UnknownPlaceError

    def of(self, argument: Argument) -> Place:
        """Returns where an argument is."""
        if argument is None:
            return len(self._sources), 0
        if isinstance(argument, Growing):
            return len(self._sources) + 1 + self.times.index(argument.times), int(argument.value)
        number = self.source(argument)
        return number, address(argument) - address(self._sources[number])

    def result(self, array: Array) -> Result:
        """Returns where what was returned is, and how it lies there."""
        number, offset = self.of(array)
        source = self._sources[number]
        view = View(offset, array.dtype, array.shape, array.strides)
        if view == View(0, source.dtype, source.shape, source.strides):
            return Result(number, None)
        if number not in self._loose:
            return Result(number, view)
        axis, steps = self._claims.get(address(source), (0, 0))
        longer = source.shape[axis] + steps
        if not steps or array.shape != (*source.shape[:axis], longer, *source.shape[axis + 1 :]):
            raise UnknownPlaceError
        return Result(number, view, axis)


def shared(inputs: Sequence[Any]) -> Iterator[tuple[int, int, int]]:
    """Yields pairs of inputs that have memory in common, and the bytes from one to the other."""
    ranges = [extent(x) for x in inputs]
    for (i, one), (j, other) in itertools.combinations(enumerate(ranges), 2):
        if one and other and one[0] < other[1] and other[0] < one[1]:
            yield i, j, address(inputs[j]) - address(inputs[i])


def extent(array: Any) -> tuple[int, int] | None:
    """Returns the addresses that an array's elements are between; ``None`` if there are none."""
    if array is None or isinstance(array, np.ndarray) or not array.size:
        return None
    first = address(array)
    if array.flags.c_contiguous:
        return first, first + array.nbytes
    steps = [(n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)]
    lowest, highest = sum(s for s in steps if s < 0), sum(s for s in steps if s > 0)
    return first + lowest, first + highest + array.itemsize
