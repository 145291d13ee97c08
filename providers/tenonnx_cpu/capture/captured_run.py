"""The capture of consecutive steps: one list of launches, in memory that they share.

Each step says what it would launch, once. A launch depends on its inputs' dtypes, shapes and
strides alone, so what it says is so for all such arrays, but for where they lie. An argument that
lies in an input, in a result or in scratch memory lies there the next time, too. Any other is the
same array: nobody may write to it, or the step says it again.

A result that nobody outside reads has its place in an arena, together with others that are not
needed at the same time; it is no array of Python's.
"""

from __future__ import annotations

import contextlib
import itertools
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from tenonnx.planning.arena import assign
from tenonnx_cpu.buffers import BUFFER_ALIGNMENT_BYTES, MAX_POOLED_BYTES, MIN_POOLED_BYTES, apart
from tenonnx_cpu.capture.encoding import Launches, Store, View, encoded
from tenonnx_cpu.capture.extents import (
    DATA,
    UNFIT,
    Extent,
    Unclear,
    extent,
    extent_around,
    form_of,
    is_frozen,
    is_known,
    same_of,
    word_at,
)
from tenonnx_cpu.capture.launch import Encoded, Launch, is_fixed
from tenonnx_cpu.jit import layout as at
from tenonnx_cpu.jit.scratch import scratch

NDArray: TypeAlias = np.ndarray[Any, Any]

BYTES = np.dtype(np.uint8)

# A larger arena would not stay in the pool from run to run.
MAX_ARENA_BYTES = MAX_POOLED_BYTES // 2


class CapturedRun:
    """Steps as one, for all arrays of its inputs' dtypes, shapes and strides.

    Args:
        inputs: The arrays; their numbers are the first slots.
        constants: Which of them are the same arrays in every run; none if that is not said.
    """

    def __init__(self, inputs: Sequence[Any], constants: Sequence[bool] = ()) -> None:
        same = constants or (False,) * len(inputs)
        self.forms = [x if own else form_of(x) for x, own in zip(inputs, same, strict=True)]
        self._unfit = {slot for slot, form in enumerate(self.forms) if form is UNFIT}
        self.clear = not self._unfit
        self.scratch = 0
        self._regions: dict[int | None, Extent] = {}
        self._values: dict[int, Any] = {}
        for slot, (x, form) in enumerate(zip(inputs, self.forms, strict=True)):
            self._values[slot] = x
            if type(form) is tuple:
                self._values[slot] = View(at.FROM_INPUT, slot, 0, form[1], form[2], True)
                if x.size:
                    self._regions[slot] = Extent(*extent(x), at.FROM_INPUT, slot)
        self._stores: list[Store] = []
        self._sizes: list[int] = []
        self.launches = Launches()
        self._room, self._rooms = np.empty(0, np.uint8), list[Extent]()

    def mark(self) -> tuple[int, ...]:
        """Return how far it is, as ``repeat`` takes it."""
        return (*self.launches.mark(), len(self._stores))

    def repeat(
        self, other: CapturedRun, begin: Sequence[int], end: Sequence[int], given: Sequence[int]
    ) -> None:
        """Add what a step of another run said of the same arrays.

        Args:
            other: The run.
            begin: Its mark before the step, at which this one is.
            end: That behind it.
            given: The slots of the step's results.
        """
        self.launches.repeat(other.launches, begin, end)
        self._stores += other._stores[begin[-1] : end[-1]]
        self._sizes += other._sizes[begin[-1] : end[-1]]
        self.scratch = max(self.scratch, other.scratch)
        self.adopt(other, given)

    def places(self, slots: Iterable[int]) -> list[Any]:
        """Return where values lie, or the arrays that they always are."""
        return [self._values.get(slot) for slot in slots]

    def adopt(self, other: CapturedRun, slots: Iterable[int]) -> None:
        """Have another run's arrays as values, which lie in the same places."""
        for slot in slots:
            if slot in other._values:
                self._values[slot] = other._values[slot]
            if slot in other._regions:
                self._regions[slot] = other._regions[slot]

    def add(
        self,
        made: Any,
        call: Callable[..., Any],
        inputs: Sequence[Any],
        taken: Sequence[int | None],
        given: Sequence[int],
    ) -> bool:
        """Add what a step says; return whether it says so of all such inputs.

        Args:
            made: What it said: a ``Launch``, or a result.
            call: Says it again.
            inputs: The step's.
            taken: Their slots; ``None`` for those that are the same in every run.
            given: The slots of its results.
        """
        if type(made) is Launch:
            try:
                self._add(made, call, inputs, taken, given)
            except Unclear:
                made = made.result
            else:
                return True
        self.clear = False
        several = made if isinstance(made, tuple) else [made]
        for slot, x in zip(given, several, strict=False):
            self._values[slot] = x  # the run is not kept: of steps behind, it is to be told, too
            if not is_known(x):
                self._unfit.add(slot)
            elif x is not None and x.size:
                self._regions[slot] = Extent(*extent(x), at.FROM_INPUT)
        return False

    def _add(
        self,
        made: Launch,
        call: Callable[..., Any],
        inputs: Sequence[Any],
        taken: Sequence[int | None],
        given: Sequence[int],
    ) -> None:
        if self._unfit and not self._unfit.isdisjoint(taken):
            raise Unclear
        known: dict[int, Extent | None] = {}
        regions: list[Extent] = []
        for x, slot in zip(inputs, taken, strict=True):
            if (region := self._regions.get(slot)) is not None:
                regions.append(region)
                # An array that is two of the inputs: which of them is meant cannot be told.
                known[id(x)] = region if known.get(id(x), region) is region else None
        results = made.result if isinstance(made.result, tuple) else (made.result,)
        stored: list[Extent] = []
        slots = itertools.chain(given, itertools.repeat(None))  # a node need not have all outputs
        for slot, result in zip(slots, results, strict=False):
            if result is None or is_fixed(result):
                value, region = result, None
            else:
                value, region = self._result(result, regions, stored, made.run is None)
                known.setdefault(id(result), region)
            if slot is not None:
                self._values[slot] = value
                if region is not None:
                    self._regions[slot] = region
        if made.run is None:
            return
        if type(made.run) is not types.BuiltinFunctionType:
            raise Unclear
        if (room := scratch(0)) is not self._room:
            start = word_at(id(room) + DATA).value
            self._room = room
            self._rooms = [Extent(start, start + room.size, start, at.FROM_SCRATCH)]
        loose = self._launch(made, known, [*self._rooms, *stored, *regions])
        if loose and not _is_again(made, call, inputs, taken, loose):
            raise Unclear

    def _launch(
        self, made: Launch, known: Mapping[int, Extent | None], own: Sequence[Extent]
    ) -> list[int]:
        """Add a launch; return which of its arguments may be others in the next run.

        Args:
            made: It.
            known: Where its step's inputs and results lie, by ``id``.
            own: All memory that is another one in each run.
        """
        launches, loose = self.launches, []
        launches.begin(made.run, made.arguments, self._refusal(made, own))
        array, constants = np.ndarray, launches.constants
        # Most arguments are numbers, or known to be constants, which the launches keep.
        others = [
            n
            for n, x in enumerate(made.arguments)
            if isinstance(x, array) and id(x) not in constants
        ]
        for n in others:
            x = made.arguments[n]
            if (region := known.get(id(x))) is not None:
                launches.place(n, region.source, region.number, region.offset, x)
                continue
            if not x.size:
                constants.add(id(x))
                continue
            low, high, address = extent(x)
            if (region := extent_around(low, high, address, own)) is None:
                if is_frozen(x):
                    constants.add(id(x))
                else:
                    loose.append(n)
                continue
            offset = region.offset + address - region.address
            launches.place(n, region.source, region.number, offset, x)
            if region.source == at.FROM_SCRATCH:
                self.scratch = max(self.scratch, high - region.low)
        if not launches.end():
            raise Unclear
        return loose

    def _refusal(self, made: Launch, own: Sequence[Extent]) -> int:
        """Return where in scratch memory a kernel refuses."""
        if made.refusal is None:
            return at.ABSENT
        refusal = word_at(id(made.refusal) + DATA).value - own[0].low
        if not self._rooms or not 0 <= refusal < self._room.size:
            raise Unclear  # more than a thread keeps, or a signal's handler needed more
        return refusal

    def _result(
        self, result: Any, regions: Sequence[Extent], stored: list[Extent], is_view: bool
    ) -> tuple[int | View, Extent]:
        """Return a step's result, the number of a store or a ``View``, and its memory."""
        if type(result) is not np.ndarray or not result.size:
            raise Unclear
        shape, dense = result.shape, result.flags.c_contiguous
        low, high, address = extent(result)
        if (region := extent_around(low, high, address, [*stored, *regions])) is not None:
            offset = region.offset + address - region.address
            source, number = region.source, region.number
            writeable = region.writeable and result.flags.writeable
            store = self._stores[number] if region in stored else None
            if store == (result.dtype, shape) and dense:
                return number, region
            own = Extent(low, high, address, source, number, offset, writeable)
            return View(source, number, offset, shape, result.strides, writeable), own
        if is_view or high - low != result.nbytes:
            raise Unclear
        number = len(self._stores)
        stored.append(Extent(low, high, low, at.FROM_OUTPUT, number))
        self._stores.append((result.dtype, shape if dense else (result.size,)))
        self._sizes.append(high - low)
        if dense:
            return number, stored[-1]
        offset = address - low
        own = Extent(low, high, address, at.FROM_OUTPUT, number, offset)
        return View(at.FROM_OUTPUT, number, offset, shape, result.strides, True), own

    def finish(
        self, results: Sequence[int], *, several: bool, longest: CapturedRun | None = None
    ) -> None:
        """End the steps.

        Args:
            results: The slots of what is returned.
            several: Whether that is a tuple.
            longest: The same run of greater lengths, in whose memory this one has room.

        Raises:
            ValueError: It has not.
        """
        self._several, self._results = several, [self._values[slot] for slot in results]
        self._share(longest)

    def _share(self, longest: CapturedRun | None) -> None:
        """Put what nobody outside reads into an arena, which is the last store."""
        sizes = self._sizes
        kept = self._kept = sorted(set(_stores_of(self._results)))
        if longest is None:
            self._places, self._arena = assign(
                sizes, self.launches.moments, kept, BUFFER_ALIGNMENT_BYTES
            )
            self._large = [n >= MIN_POOLED_BYTES for n in (*(sizes[n] for n in kept), self._arena)]
        else:
            if kept != longest._kept or len(sizes) != len(longest._sizes):
                raise ValueError("the runs are not of the same steps")
            if any(own > room for own, room in zip(sizes, longest._sizes, strict=True)):
                raise ValueError("a shorter run needs more memory")
            self._places, self._arena, self._large = longest._places, longest._arena, longest._large
            self.scratch = max(self.scratch, longest.scratch)
        self._stores = [self._stores[n] for n in kept]
        if len(self._places) > len(kept):
            self._stores.append((BYTES, (self._arena,)))
        self._results = [_moved(result, self._places) for result in self._results]
        self.launches.move(self._places)

    @property
    def fits(self) -> bool:
        """Return whether there is room for it on the stack, and for its arena among buffers."""
        if self._arena > MAX_ARENA_BYTES:
            return False
        return len(self._stores) <= at.MOST_OUTPUTS and len(self.forms) < at.MOST_ARGUMENTS

    def encode(self) -> tuple[NDArray, NDArray]:
        """Return it as ``jit.layout`` says."""
        return self.encoded().addressed()

    def encoded(self) -> Encoded:
        """Return the same without addresses."""
        stores = zip(self._stores, self._large, strict=False)
        given = self.forms, stores, self.launches, self._results, self.scratch
        return encoded(*given, several=self._several)


def _is_again(
    made: Launch,
    call: Callable[..., Any],
    inputs: Sequence[Any],
    taken: Sequence[int | None],
    loose: Iterable[int],
) -> bool:
    """Return whether arguments are constants, or a step's function says the same ones again."""
    same = [
        extent(x)
        for x, slot in zip(inputs, taken, strict=True)
        if slot is None and _has_elements(x)
    ]
    rest = [
        n
        for n in loose
        if not any(
            low <= begin and end <= high
            for low, high, _ in same
            for begin, end, _ in (extent(made.arguments[n]),)
        )
    ]
    if not rest:
        return True
    # Results are made once more, and dropped: kept, they would be memory that no run needs.
    with contextlib.suppress(MemoryError), apart():
        again = call(*inputs)
        if type(again) is Launch and len(again.arguments) == len(made.arguments):
            return all(_is_same(made.arguments[n], again.arguments[n]) for n in rest)
    return False


def _has_elements(x: Any) -> bool:
    return type(x) is np.ndarray and x.size > 0


def _is_same(one: NDArray, other: Any) -> bool:
    return one is other or (isinstance(other, np.ndarray) and same_of(one) == same_of(other))


def _stores_of(values: Iterable[Any]) -> Iterable[int]:
    for value in values:
        if type(value) is int:
            yield value
        elif type(value) is View and value.source == at.FROM_OUTPUT:
            yield value.number


def _moved(x: Any, places: Mapping[int, tuple[int, int]]) -> Any:
    if type(x) is int:
        return places[x][0]
    if type(x) is not View or x.source != at.FROM_OUTPUT:
        return x
    number, offset = places[x.number]
    return x._replace(number=number, offset=offset + x.offset)
