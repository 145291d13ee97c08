"""The capture of consecutive steps: one list of launches, in memory that they share.

Each step's launch is recorded once. It depends on its inputs' dtypes, shapes and strides alone, so
it holds for all such arrays, at other addresses. An argument within an input, a result or scratch
memory has the same offset there in every run. Any other argument is the same array in every run, to
which nobody may write.

Results that only the span reads share an arena, by lifetime, and are not Python objects.
"""

from __future__ import annotations

import copy
import itertools
import types
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from tenonnx.planning.arena import assign
from tenonnx_cpu.buffers import BUFFER_ALIGNMENT_BYTES, MAX_POOLED_BYTES, MIN_POOLED_BYTES
from tenonnx_cpu.capture.copying import Preparation
from tenonnx_cpu.capture.encoding import Launches, Store, View, encoded
from tenonnx_cpu.capture.extents import (
    DATA,
    UNFIT,
    Extent,
    NotCapturable,
    extent,
    form_of,
    is_frozen,
    is_known,
    word_at,
)
from tenonnx_cpu.capture.launch import Encoded, Launch, is_fixed
from tenonnx_cpu.jit import layout as at
from tenonnx_cpu.jit.scratch import scratch

NDArray: TypeAlias = np.ndarray[Any, Any]

# The slot of an input that is the same array in every run.
CONSTANT = -1

BYTES = np.dtype(np.uint8)

# A larger arena would not stay in the pool from run to run.
MAX_ARENA_BYTES = MAX_POOLED_BYTES // 2


class CapturedRun:
    """Steps as one, for all arrays of its inputs' dtypes, shapes and strides.

    Args:
        inputs: The arrays, as ``without_constants`` returns them. Their positions are the first
            slots.
        constants: Which of them are the same arrays in every run; by default none.
        make: Whether steps' copies of their inputs are made.
    """

    def __init__(
        self, inputs: Sequence[Any], constants: Sequence[bool] = (), *, make: bool = True
    ) -> None:
        self.before = Preparation(make=make)
        same = constants or (False,) * len(inputs)
        self.forms = [x if own else form_of(x) for x, own in zip(inputs, same, strict=True)]
        self._unfit = {slot for slot, form in enumerate(self.forms) if form is UNFIT}
        self.clear = not self._unfit
        self.scratch = 0
        self._regions: dict[int, Extent] = {}
        self._values: dict[int, Any] = {}
        for slot, (x, form) in enumerate(zip(inputs, self.forms, strict=True)):
            self._values[slot] = x
            if type(form) is tuple:
                self._values[slot] = View(at.FROM_INPUT, slot, 0, form[1], form[2], True)
                if x.size:
                    self._regions[slot] = (*extent(x), at.FROM_INPUT, slot)
        self._stores: list[Store] = []
        self._sizes: list[int] = []
        self.launches = Launches()
        self._own: list[Extent] = []
        self._step: tuple[Sequence[Any], Sequence[int]] = ((), ())

    def mark(self) -> tuple[int, ...]:
        """Return how much is recorded, as ``repeat`` takes it."""
        return (*self.launches.mark(), len(self._stores))

    def repeat(
        self, other: CapturedRun, begin: Sequence[int], end: Sequence[int], given: Sequence[int]
    ) -> None:
        """Add the launch of a step that another run recorded for the same arrays.

        Args:
            other: The other run.
            begin: Its mark before the step, which is also this run's mark now.
            end: Its mark after the step.
            given: The slots of the step's results.
        """
        self.launches.repeat(other.launches, begin, end)
        self._stores += other._stores[begin[-1] : end[-1]]
        self._sizes += other._sizes[begin[-1] : end[-1]]
        self.scratch = max(self.scratch, other.scratch)
        self.adopt(other, given)

    def kept(self) -> CapturedRun:
        """Return what another run can repeat of this one, also once this one is finished."""
        made = copy.copy(self)
        made.launches = self.launches.kept()
        return made

    def places(self, slots: Iterable[int]) -> list[Any]:
        """Return the places of values, or the arrays of those that are the same in every run."""
        return [self._values.get(slot) for slot in slots]

    def adopt(self, other: CapturedRun, slots: Iterable[int]) -> None:
        """Take another run's arrays as values, which lie in the same places."""
        for slot in slots:
            if slot in other._values:
                self._values[slot] = other._values[slot]
            if slot in other._regions:
                self._regions[slot] = other._regions[slot]

    def add(
        self, made: Any, inputs: Sequence[Any], taken: Sequence[int], given: Sequence[int]
    ) -> bool:
        """Record a step's launch; return whether it holds for all inputs of these forms.

        Args:
            made: What the step's function returned: a ``Launch``, or a result.
            inputs: The step's inputs.
            taken: Their slots; less than 0 for those that are the same in every run.
            given: The slots of the step's results.
        """
        if type(made) is Launch:
            try:
                self._add(made, inputs, taken, given)
            except NotCapturable:
                made = made.result
            else:
                return True
        # The run is not replayed. Later steps are recorded, as they may be uncapturable, too.
        self.clear = False
        several = made if isinstance(made, tuple) else [made]
        for slot, x in zip(given, several, strict=False):
            if not is_known(x):
                self._unfit.add(slot)
            elif x is not None and x.size:
                self._regions[slot] = (*extent(x), at.FROM_INPUT, slot)
        return False

    def _add(
        self,
        made: Launch,
        inputs: Sequence[Any],
        taken: Sequence[int],
        given: Sequence[int],
    ) -> None:
        if self._unfit and not self._unfit.isdisjoint(taken):
            raise NotCapturable
        self._step, self._own = (inputs, taken), []
        for slot in taken:
            if (own := self._regions.get(slot)) is not None and own not in self._own:
                self._own.append(own)
        for each in made.copies:
            self._result(each.result, -1, 0, each)
            self._launch(each)
        results = made.result if isinstance(made.result, tuple) else (made.result,)
        first = len(self._stores)
        slots = itertools.chain(given, itertools.repeat(-1))  # a node need not have all outputs
        for slot, result in zip(slots, results, strict=False):
            known = (
                result is None or is_fixed(result) or (made.run is None and self._is_same(result))
            )
            found = result if known else self._result(result, slot, first, made)
            if slot >= 0:
                self._values[slot] = found
        if made.run is not None:
            self._launch(made)

    def _launch(self, made: Launch) -> None:
        """Add a kernel's launch, whose results have places.

        Raises:
            NotCapturable: It is no compiled kernel, or its arguments have no places in every run.
        """
        if type(made.run) is not types.BuiltinFunctionType:
            raise NotCapturable
        refusal = at.ABSENT
        if made.refusal is not None:
            room = scratch(0)
            refusal = word_at(id(made.refusal) + DATA).value - word_at(id(room) + DATA).value
            if not 0 <= refusal < room.size:
                raise NotCapturable  # more than a thread keeps, or a signal's handler needed more
        if not self.launches.add(made.run, made.arguments, refusal, self._locate):
            raise NotCapturable

    def _around(self, low: int, high: int, address: int) -> Extent | None:
        """Return the memory of a step's that an array lies in.

        Raises:
            NotCapturable: It lies in several inputs alike, of which it may be each.
        """
        found, others = None, False
        for own in self._own:
            if own[0] <= low and high <= own[1]:
                found, others = own, found is not None
        if not others:
            return found
        begin = [own for own in self._own if own[2] == address and high <= own[1]]
        if len(begin) != 1:
            raise NotCapturable
        return begin[0]

    def _locate(self, x: NDArray) -> tuple[int, int, int] | None:
        """Return the place of a launch's argument, as ``Launches`` takes it.

        Raises:
            NotCapturable: It is another array in each run, and in none of a run's memory, or more
                than that memory.
        """
        address = word_at(id(x) + DATA).value
        if (own := self._around(address, address + 1, address)) is not None:
            _, high, begin, source, number = own
            end = address + x.nbytes if x.flags.c_contiguous else extent(x)[1]
            if end > high and x.size:
                raise NotCapturable
            return source, number, address - begin
        room = scratch(0)
        offset = address - word_at(id(room) + DATA).value
        if 0 <= offset < room.size:
            self.scratch = max(self.scratch, extent(x)[1] - address + offset)
            return at.FROM_SCRATCH, 0, offset
        if not x.size or is_frozen(x) or self._is_same(x):
            return None
        raise NotCapturable

    def _is_same(self, view: Any) -> bool:
        """Return whether an array is a view of a step's constant, and so the same in every run."""
        if type(view) is not np.ndarray or not view.size:
            return False
        same = [x for x, slot in zip(*self._step, strict=True) if slot < 0]
        return _is_within(view, same)

    def _result(self, result: Any, slot: int, first: int, made: Launch) -> int | View:
        """Return a step's result: the number of a store, or a ``View``.

        Args:
            result: It.
            slot: Its slot; less than 0 if no other step reads it.
            first: The number of the step's first store.
            made: The launch of the kernel that writes to it; without one, it is a view.
        """
        if type(result) is not np.ndarray:
            raise NotCapturable
        dtype, shape, strides = result.dtype, result.shape, result.strides
        if not result.size:  # it lies nowhere, and is made anew
            self._stores.append((dtype, shape))
            self._sizes.append(0)
            return len(self._stores) - 1
        dense = result.flags.c_contiguous
        low, high, address = extent(result)
        if (own := self._around(low, high, address)) is None:
            own = self._allocate(_holder_of(result, made.arguments), dtype, made)
        if slot >= 0:  # a copy that a step makes is freed after it, and other arrays lie there
            self._regions[slot] = own
        _, _, begin, source, number = own
        is_new = source == at.FROM_OUTPUT and number >= first
        if is_new and dense and self._stores[number] == (dtype, shape):
            return number
        return View(source, number, address - begin, shape, strides, result.flags.writeable)

    def _allocate(self, array: NDArray, dtype: np.dtype[Any], made: Launch) -> Extent:
        """Return the memory of an array that a launch fills, which each run allocates.

        Args:
            array: It, which the kernel may take for bytes.
            dtype: The result's in it.
            made: The launch.

        Raises:
            NotCapturable: No kernel fills it, it has gaps, or is no array of the dtype.
        """
        low, high, _ = extent(array)
        if made.run is None or high - low != array.nbytes or array.nbytes % dtype.itemsize:
            raise NotCapturable
        own = (low, high, low, at.FROM_OUTPUT, len(self._stores))
        dense = array.flags.c_contiguous and array.dtype == dtype
        shape = array.shape if dense else (array.nbytes // dtype.itemsize,)
        self._stores.append((dtype, shape))
        self._sizes.append(high - low)
        self._own.append(own)
        return own

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


def _is_within(x: NDArray, same: Iterable[Any]) -> bool:
    """Return whether an array is a view of one of others."""
    low, high, _ = extent(x)
    known = (extent(own) for own in same if type(own) is np.ndarray and own.size)
    return any(begin <= low and high <= end for begin, end, _ in known)


def _holder_of(result: NDArray, arguments: Iterable[Any]) -> NDArray:
    """Return the argument that contains a result, or the result.

    A product of bytes has a whole panel of columns, of which fewer may be returned.
    """
    if result.base is None:
        return result
    low, high, _ = extent(result)
    for x in arguments:
        if type(x) is np.ndarray and x.nbytes > result.nbytes and x.flags.writeable:
            start, end, _ = extent(x)
            if start <= low and high <= end:
                return x
    return result


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
