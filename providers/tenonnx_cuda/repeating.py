"""Steps that do again what they did for inputs that lay alike, at other addresses.

Before a kernel is started, Python looks at its inputs, chooses, allocates, and puts arguments
together. That takes longer than many kernels do, and depends on how inputs lie, not on where. So
what a call allocates and starts is noted once, and from then on done without the call.

Only what goes through ``allocate`` and ``start`` can be noted. An array that came about otherwise
is known by its address, which belongs to nothing noted; what writes to an array otherwise has to
say so by ``cannot_repeat``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np

from tenonnx.operators import Array
from tenonnx_cuda.platform import Platform, View

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

Start: TypeAlias = Callable[..., None]
"""Starts something on the active stream; takes addresses."""

Place: TypeAlias = tuple[int, int]
"""Which input, or after those which allocation, or what was held, and bytes from there."""


@dataclass
class Notes:
    """What a call does.

    Attributes:
        made: What it allocates.
        held: What else it has on the device.
        starts: What it starts, and on which arrays.
        complete: Whether that is all.
    """

    made: list[Array] = field(default_factory=list)
    held: list[Array] = field(default_factory=list)
    starts: list[tuple[Start, Sequence[Array | None]]] = field(default_factory=list)
    complete: bool = True


_thread = threading.local()


def notes() -> Notes | None:
    """Returns what is noted of the call that this thread is in, if it is."""
    return getattr(_thread, "notes", None)


def allocate(xp: Any, shape: Any, dtype: Any) -> Array:
    """Returns an array whose elements are still to be written."""
    made = xp.empty(shape, dtype)
    if (noted := notes()) is not None:
        noted.made.append(made)
    return made


def start(function: Start, *arrays: Array | None) -> None:
    """Calls a function with the addresses of arrays; 0 for none.

    It holds no array, and does the same whenever it is called, but for the addresses.
    """
    function(*map(address, arrays))
    if (noted := notes()) is not None:
        noted.starts.append((function, arrays))


@contextmanager
def holding() -> Iterator[list[Array]]:
    """Yields a list of what this thread's calls read meanwhile besides inputs, and say so."""
    before, _thread.held = getattr(_thread, "held", None), []
    try:
        yield _thread.held
    finally:
        _thread.held = before


def hold(*arrays: Array) -> None:
    """Notes what is there for several runs: whoever repeats this one needs it."""
    if (noted := notes()) is not None:
        noted.held += arrays
    if (held := getattr(_thread, "held", None)) is not None:
        held += arrays


def cannot_repeat() -> None:
    """Notes that a call does what is not noted."""
    if (noted := notes()) is not None:
        noted.complete = False


@dataclass(frozen=True)
class Take:
    """What a call did.

    Attributes:
        made: Shape and element type of each allocation.
        held: What else was on the device.
        starts: What was started, and where its arrays are; ``None`` for none.
        results: In which source each result is, and how it lies there; the source itself without
            that; or ``None`` for an absent one.
        apart: Inputs of which the second began among the first one's elements, and how far from
            its start: which of them an address meant is known only if they lie so again.
        multiple: Whether the call returned a tuple.
    """

    made: tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]
    held: tuple[Array, ...]
    starts: tuple[tuple[Start, tuple[Place | None, ...]], ...]
    results: tuple[tuple[int, View | None] | None, ...]
    apart: tuple[tuple[int, int, int], ...]
    multiple: bool

    def fits(self, inputs: Sequence[Any]) -> bool:
        """Says whether inputs that lie alike share memory as those did that it was noted of."""
        return all(address(inputs[j]) - address(inputs[i]) == n for i, j, n in self.apart)

    def again(self, platform: Platform, inputs: Sequence[Any]) -> Any:
        """Does it, and returns what the call did."""
        hold(*self.held)
        empty = platform.xp.empty
        sources = [*inputs, *[empty(shape, dtype) for shape, dtype in self.made], *self.held]
        at = [address(source) for source in sources]
        for function, places in self.starts:
            function(*[0 if place is None else at[place[0]] + place[1] for place in places])
        found: list[Array | None] = []
        for result in self.results:
            if result is None:
                found.append(None)
            else:
                source, view = sources[result[0]], result[1]
                found.append(source if view is None else platform.part(source, view))
        return tuple(found) if self.multiple else found[0]


class Repeated:
    """A call of arrays that is done again.

    Args:
        call: It.
        platform: The device.
    """

    def __init__(self, call: Callable[..., Any], platform: Platform) -> None:
        self._call = call
        self._platform = platform
        self._takes: dict[Any, Take | None] = {}
        self._failures = 0
        # What is started has its addresses in one place: no two threads may write them at once.
        self._lock = threading.Lock()

    def __call__(self, *inputs: Any, **buffers: Any) -> Any:
        """Returns what the call does; which does it itself where buffers are given."""
        given = any(buffer is not None for buffer in buffers.values())
        if given or self._failures == FAILURES or (key := described(inputs)) is None:
            return self._call(*inputs, **buffers)
        with self._lock:
            take = self._takes.get(key)
            if take is not None and take.fits(inputs):
                return take.again(self._platform, inputs)
            seen = key in self._takes
        if take is None and seen:
            return self._noted(key, inputs)
        if not seen:  # kernels are compiled, and libraries make plans
            self._keep(key, None)
        return self._call(*inputs)

    def _noted(self, key: Any, inputs: Sequence[Any]) -> Any:
        _thread.notes = noted = Notes()
        try:
            result = self._call(*inputs)
        finally:
            _thread.notes = None
        if (take := taken(noted, inputs, result)) is None:
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


def address(array: Any) -> int:
    """Returns where an array of the device begins; 0 for none, and for one of the host's."""
    return 0 if array is None or isinstance(array, np.ndarray) else int(array.data.ptr)


def described(inputs: Sequence[Any]) -> Any:
    """Returns all that a call may depend on; ``None`` if that is too much."""
    found: list[Any] = []
    for x in inputs:
        if x is None:
            found.append(None)
        elif not isinstance(x, np.ndarray):
            found.append((x.shape, x.strides, x.dtype, x.data.ptr % ALIGNED))
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
    sources = [*inputs, *noted.made, *noted.held]
    ranges = [extent(source) for source in sources]

    def place(array: Any) -> Place | None:
        wanted = extent(array)
        for number, there in enumerate(ranges):
            if wanted and there and there[0] <= wanted[0] and wanted[1] <= there[1]:
                return number, address(array) - address(sources[number])
        return None

    starts = [
        (function, tuple(None if a is None else place(a) for a in arrays), arrays)
        for function, arrays in noted.starts
    ]
    found = [None if result is None else place(result) for result in results]
    wanted = [(results, found), *((arrays, places) for _, places, arrays in starts)]
    if any(a is not None and p is None for pair in wanted for a, p in zip(*pair, strict=True)):
        return None
    return Take(
        tuple((array.shape, array.dtype) for array in noted.made),
        tuple(noted.held),
        tuple((function, places) for function, places, _ in starts),
        tuple(
            None if at is None else (at[0], lying(result, at[1], sources[at[0]]))
            for result, at in zip(results, found, strict=True)
        ),
        tuple(shared(inputs, ranges)),
        multiple,
    )


def lying(array: Array, offset: int, source: Array) -> View | None:
    """Returns how an array lies from a source's start on; ``None`` if it is the source."""
    view = View(offset, array.dtype, array.shape, array.strides)
    return None if view == View(0, source.dtype, source.shape, source.strides) else view


def shared(
    inputs: Sequence[Any], ranges: Sequence[tuple[int, int] | None]
) -> Iterator[tuple[int, int, int]]:
    """Yields pairs of inputs that have memory in common, and the bytes from one to the other."""
    for i, one in enumerate(ranges[: len(inputs)]):
        for j in range(i):
            other = ranges[j]
            if one and other and one[0] < other[1] and other[0] < one[1]:
                yield j, i, address(inputs[i]) - address(inputs[j])


def extent(array: Any) -> tuple[int, int] | None:
    """Returns the addresses that an array's elements are between; ``None`` if there are none."""
    if array is None or isinstance(array, np.ndarray) or not array.size:
        return None
    steps = [(n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)]
    first = address(array)
    lowest, highest = sum(s for s in steps if s < 0), sum(s for s in steps if s > 0)
    return first + lowest, first + highest + array.itemsize
