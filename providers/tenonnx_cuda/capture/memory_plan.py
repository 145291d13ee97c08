"""From what was traced of a call to what it takes to do it again: places instead of addresses.

What a call allocates and is done with when it returns gets places in one allocation, that of one
array where that of another was: all that reads or writes them was traced, so it is known how long
each is needed.
"""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from tenonnx.operators import Array
from tenonnx.planning.arena import assign, moments_of
from tenonnx_cuda.capture.captured_call import CapturedCall, Place, Result, extent, shared
from tenonnx_cuda.capture.dynamic_length import NO_DYNAMIC_INPUTS, DynamicInputs
from tenonnx_cuda.capture.tracer import Argument, DynamicNumber, Trace, address
from tenonnx_cuda.kv_cache import ADDRESS_MODULUS, room_of
from tenonnx_cuda.platform import View


def capture(
    trace: Trace, inputs: Sequence[Any], result: Any, growth: DynamicInputs = NO_DYNAMIC_INPUTS
) -> CapturedCall | None:
    """Return what was traced with places for addresses; ``None`` if it cannot be done again.

    Args:
        trace: What was traced.
        inputs: The call's, and buffers.
        result: What it returned.
        growth: What of the inputs may be longer another time.
    """
    if not trace.complete:
        return None
    multiple = isinstance(result, tuple)
    given = tuple(i for i, x in enumerate(inputs) if not (x is None or isinstance(x, np.ndarray)))
    arrays = [inputs[i] for i in given]
    places = Places(arrays, trace, {n for n, i in enumerate(given) if i in growth.known})
    try:
        results = [places.result(x) for x in (result if multiple else (result,))]
        starts = [(function, [places.of(x) for x in some]) for function, some in trace.starts]
        claims = [(given[places.source(x)], axis, steps) for x, axis, steps in trace.claims]
    except UnknownPlaceError:
        return None
    made, moved = plan(places, results, [some for _, some in starts])
    # Behind what is allocated are, for a start, 0 and numbers; for results, what is held.
    behind = len(given) + len(made)
    held = {places.made.stop + i: behind + i for i in range(len(places.held))}
    where = {number: place[0] for number, place in moved.items()} | held
    return CapturedCall(
        given=given,
        made=made,
        held=places.held,
        times=places.times,
        starts=tuple(
            (function, tuple((moved[n][0], moved[n][1] + offset) for n, offset in some))
            for function, some in starts
        ),
        results=tuple(r and dataclasses.replace(r, source=where[r.source]) for r in results),
        claims=tuple(claims),
        length=growth.length,
        apart=tuple(shared(inputs)),
        writes=any(buffer is not None for buffer in trace.buffers),
        multiple=multiple,
    )


class UnknownPlaceError(LookupError):
    """An array that is in no source."""


class Places:
    """The places of arrays in sources: given ones, then made ones, then held ones.

    Args:
        given: The inputs on the device.
        trace: What else there was, what was claimed, and with which numbers work was started.
        loose: Those of the inputs that may be longer another time.

    Attributes:
        sources: All.
        made: Which of them were made; before those are the given ones.
        held: What was held.
        times: By what numbers grow when caches are a step longer.
    """

    def __init__(self, given: Sequence[Array], trace: Trace, loose: Collection[int]) -> None:
        self.held = tuple({id(array): array for array in trace.held}.values())
        self.sources = [*given, *trace.made, *self.held]
        self.made = range(len(given), len(given) + len(trace.made))
        self._loose = loose
        self._claims = {address(cache): (axis, steps) for cache, axis, steps in trace.claims}
        extents = [(n, self._extent(source)) for n, source in enumerate(self.sources)]
        # Where several begin at one address, the first of them is the last here.
        self._ordered = sorted((at[0], -n, at[1]) for n, at in extents if at is not None)
        arguments = (each for _, started in trace.starts for each in started)
        self.times = tuple(sorted({x.times for x in arguments if isinstance(x, DynamicNumber)}))

    def _extent(self, source: Array) -> tuple[int, int] | None:
        """Return an array's addresses; of a cache, those of its whole room."""
        claimed = self._claims.get(address(source))
        room = None if claimed is None else room_of(source, claimed[0])
        return extent(source if room is None else room.array)

    def source(self, array: Array) -> int:
        """Return which source an array is in."""
        if (wanted := extent(array)) is not None:
            for i in reversed(range(bisect.bisect_right(self._ordered, (wanted[0], 1)))):
                _, number, end = self._ordered[i]
                if wanted[1] <= end:
                    return -number
        raise UnknownPlaceError

    def of(self, argument: Argument) -> Place:
        """Return where an argument is; behind the sources are 0, and the numbers that grow."""
        if argument is None:
            return len(self.sources), 0
        if isinstance(argument, DynamicNumber):
            return len(self.sources) + 1 + self.times.index(argument.times), int(argument.value)
        number = self.source(argument)
        return number, address(argument) - address(self.sources[number])

    def result(self, array: Array | None) -> Result | None:
        """Return where what was returned is, and how it lies there."""
        if array is None:
            return None
        number, offset = self.of(array)
        source = self.sources[number]
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


def plan(
    places: Places, results: Sequence[Result | None], starts: Sequence[Sequence[Place]]
) -> tuple[tuple[tuple[tuple[int, ...], np.dtype[Any]], ...], dict[int, Place]]:
    """Return what a repetition allocates, and the place of each source that starts take.

    Args:
        places: The call's.
        results: What it returned.
        starts: Where the arguments are of what it started, in order.
    """
    sources, given = places.sources, places.made.start
    returned = {r.source for r in results if r is not None and r.source in places.made}
    used = moments_of([number for number, _ in some if number in places.made] for some in starts)
    allocated, nbytes = assign([x.nbytes for x in sources], used, returned, ADDRESS_MODULUS)
    made = tuple((sources[n].shape, sources[n].dtype) for n in sorted(returned))
    if nbytes:
        made += (((nbytes,), np.dtype(np.uint8)),)
    zero = given + len(made)
    moved: dict[int, Place] = {n: (n, 0) for n in range(given)}
    moved |= {n: (given + i, at) for n, (i, at) in allocated.items()}
    moved |= {n: (zero, address(sources[n])) for n in range(places.made.stop, len(sources))}
    moved |= {len(sources) + i: (zero + i, 0) for i in range(1 + len(places.times))}
    return made, moved
