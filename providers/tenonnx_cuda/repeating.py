"""Steps that do again what they did for inputs that lay alike, at other addresses.

Before a kernel is started, Python looks at its inputs, chooses, allocates, and puts arguments
together. That takes longer than many kernels do, and depends on how inputs lie, not on where. So
what a call allocates and starts is noted once, and from then on done without the call.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from tenonnx.operators import Array
from tenonnx_cuda.noting import Notes, Start, address, hold, noting
from tenonnx_cuda.platform import Platform, Stream, View

MOST: Final = 16
"""Ways that inputs lie, of which a step keeps what it did."""

MOST_STARTS: Final = 8
"""Of a call that is worth it: one that starts more takes the device longer than the host."""

FAILURES: Final = 2
"""After which a step is not noted any more."""

SMALL: Final = 64
"""Elements of an input on the host that a step may depend on."""

ALIGNED: Final = 256
"""What remains of an address by this is all that a call may make of it."""

Place: TypeAlias = tuple[int, int]
"""Which input, or after those which allocation, or what was held, and bytes from there."""


@dataclass(frozen=True)
class Take:
    """What a call did.

    Sources are its inputs that are on the device, then what it allocated, then what it held.

    Attributes:
        given: Which inputs are on the device.
        made: Shape and element type of each allocation.
        held: What else was on the device.
        starts: What was started, and where its arrays are; ``None`` for none.
        results: In which source each result is, and how it lies there; the source itself without
            that; or ``None`` for an absent one.
        apart: Pairs of inputs with memory in common, and bytes from one to the other: which of
            them an address meant is known only if they lie so again.
        writes: Whether some of the inputs were buffers: then others may not have memory in common.
        multiple: Whether the call returned a tuple.
    """

    given: tuple[int, ...]
    made: tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]
    held: tuple[Array, ...]
    starts: tuple[tuple[Start, tuple[Place | None, ...]], ...]
    results: tuple[tuple[int, View | None] | None, ...]
    apart: tuple[tuple[int, int, int], ...]
    writes: bool
    multiple: bool

    def fits(self, inputs: Sequence[Any]) -> bool:
        """Says whether inputs that lie alike share memory as those did that it was noted of."""
        if self.writes:
            return tuple(shared(inputs)) == self.apart
        return all(address(inputs[j]) - address(inputs[i]) == n for i, j, n in self.apart)

    def again(
        self, inputs: Sequence[Any], empty: Callable[..., Array], part: Callable[..., Array]
    ) -> Any:
        """Does it, and returns what the call did.

        Args:
            inputs: The call's.
            empty: Allocates an array.
            part: Returns an array that lies in another one.
        """
        sources = [inputs[i] for i in self.given]
        sources += [empty(shape, dtype) for shape, dtype in self.made]
        if self.held:
            hold(*self.held)
            sources += self.held
        at = [source.data.ptr for source in sources]
        for function, places in self.starts:
            function(*[0 if place is None else at[place[0]] + place[1] for place in places])
        found: list[Array | None] = []
        for result in self.results:
            if result is None:
                found.append(None)
            else:
                source, view = result
                found.append(sources[source] if view is None else part(sources[source], view))
        return tuple(found) if self.multiple else found[0]


class Repeated:
    """A call of arrays that is done again.

    Args:
        call: It.
        platform: The device.
        spared: Returns the position of an input on the host whose contents make no difference to
            the call, if there is one among some inputs.
    """

    def __init__(
        self,
        call: Callable[..., Any],
        platform: Platform,
        spared: Callable[[Sequence[Any]], int | None] = lambda _: None,
    ) -> None:
        self._call = call
        self._platform = platform
        self._spared = spared
        self._takes: dict[Any, Take | None] = {}
        self._failures = 0
        # What is started has its addresses in one place: no two threads may write them at once.
        self._lock = threading.Lock()
        # Its signature says which buffers it takes; its attributes are no business of this one's.
        functools.update_wrapper(self, call, updated=())

    def __call__(self, *inputs: Any, **buffers: Any) -> Any:
        """Returns what the call does, on the active stream."""
        take, key, arrays = self._look(inputs, buffers)
        if take is not None:
            with self._lock:
                return take.again(arrays, self._platform.xp.empty, self._platform.part)
        return self._done(key, inputs, buffers)

    def on(self, stream: Stream) -> Callable[..., Any]:
        """Returns the call on a stream."""
        ordered, empty, part = stream.ordered(), stream.empty, self._platform.part

        @functools.wraps(self._call)
        def run(*inputs: Any, **buffers: Any) -> Any:
            take, key, arrays = self._look(inputs, buffers)
            if take is not None:
                if not (take.made or take.starts):
                    return take.again(arrays, empty, part)
                try:
                    with self._lock, ordered:
                        return take.again(arrays, empty, part)
                except MemoryError:
                    key = None  # which the stream makes room for, or explains
            with stream.active():
                return self._done(key, inputs, buffers)

        return run

    def around(self, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Repeated:
        """Returns the same of another call around this one, for what only first runs have to do."""
        return Repeated(wrap(self._call), self._platform, self._spared)

    def _look(
        self, inputs: Sequence[Any], buffers: Mapping[str, Any]
    ) -> tuple[Take | None, Any, Sequence[Any]]:
        """Returns what was noted of arrays that lie so; how they do, if that may be noted; them."""
        arrays = (*inputs, *arrays_of(buffers)) if buffers else inputs
        if self._failures >= FAILURES:
            return None, None, arrays
        key = described(arrays, self._spared(inputs))
        take = None if key is None else self._takes.get(key)
        if take is not None and not take.fits(arrays):
            return None, None, arrays
        return take, key, arrays

    def _done(self, key: Any, inputs: Sequence[Any], buffers: Mapping[str, Any]) -> Any:
        """Calls, and notes what that does if arrays lay so before."""
        if key not in self._takes:  # kernels are compiled, and libraries make plans
            if key is not None:
                self._keep(key, None)
            return self._call(*inputs, **buffers)
        outs = arrays_of(buffers)
        with noting(outs) as noted:
            result = self._call(*inputs, **buffers)
        if (take := taken(noted, (*inputs, *outs), result)) is None:
            self._failures += 1
        else:
            self._failures = 0
            self._keep(key, take)
        return result

    def _keep(self, key: Any, take: Take | None) -> None:
        with self._lock:
            self._takes.pop(key, None)
            self._takes[key] = take
            if len(self._takes) > MOST:
                del self._takes[next(iter(self._takes))]


def arrays_of(buffers: Mapping[str, Any]) -> tuple[Any, ...]:
    """Returns what a call may write its outputs to: an array, or several, or ``None``s."""
    found: list[Any] = []
    for buffer in buffers.values():
        found += buffer if isinstance(buffer, tuple | list) else (buffer,)
    return tuple(found)


def described(arrays: Sequence[Any], spared: int | None = None) -> Any:
    """Returns all that a call may depend on; ``None`` if that is too much."""
    found: list[Any] = []
    for i, x in enumerate(arrays):
        if x is None:
            found.append(None)
        elif not isinstance(x, np.ndarray):
            found.append((x.shape, x.strides, x.dtype, x.data.ptr % ALIGNED))
        elif i == spared:
            found.append((x.shape, x.dtype))
        elif x.size <= SMALL:
            found.append((x.shape, x.dtype, x.tobytes()))
        else:
            return None
    return tuple(found)


def taken(noted: Notes, inputs: Sequence[Any], result: Any) -> Take | None:
    """Returns what was noted with places for addresses; ``None`` if it cannot be done again."""
    multiple = isinstance(result, tuple)
    results = result if multiple else (result,)
    if not noted.complete or len(noted.starts) > MOST_STARTS:
        return None
    given = tuple(i for i, x in enumerate(inputs) if not (x is None or isinstance(x, np.ndarray)))
    sources = [*(inputs[i] for i in given), *noted.made, *noted.held]
    ranges = [extent(source) for source in sources]

    def place(array: Any) -> Place | None:
        wanted = extent(array)
        for number, there in enumerate(ranges):
            if wanted and there and there[0] <= wanted[0] and wanted[1] <= there[1]:
                return number, address(array) - address(sources[number])
        return None

    arrays = [*results, *(array for _, started in noted.starts for array in started)]
    places = [None if array is None else place(array) for array in arrays]
    if any(a is not None and p is None for a, p in zip(arrays, places, strict=True)):
        return None
    rest = iter(places)
    return Take(
        results=tuple(
            at if at is None else (at[0], lying(array, at[1], sources[at[0]]))
            for array, at in zip(results, itertools.islice(rest, len(results)), strict=True)
        ),
        starts=tuple(
            (function, tuple(itertools.islice(rest, len(started))))
            for function, started in noted.starts
        ),
        given=given,
        made=tuple((array.shape, array.dtype) for array in noted.made),
        held=tuple(noted.held),
        apart=tuple(shared(inputs)),
        writes=any(buffer is not None for buffer in noted.buffers),
        multiple=multiple,
    )


def lying(array: Array, offset: int, source: Array) -> View | None:
    """Returns how an array lies from a source's start on; ``None`` if it is the source."""
    view = View(offset, array.dtype, array.shape, array.strides)
    return None if view == View(0, source.dtype, source.shape, source.strides) else view


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
