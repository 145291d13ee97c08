"""The capture of consecutive steps: one list of launches, in memory that they share.

A result that nobody outside reads has its place in an arena, together with others that are not
needed at the same time; it is no array of Python's.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from tenonnx.planning.arena import assign
from tenonnx.records import NamedTuple
from tenonnx_cpu.buffers import ALIGNMENT, KEPT, SMALL, empty
from tenonnx_cpu.capture.captured_call import CapturedCall, Place, Store
from tenonnx_cpu.capture.launch import Encoded
from tenonnx_cpu.jit import layout as at
from tenonnx_cpu.jit.code.code_object import entry_of

NDArray: TypeAlias = np.ndarray[Any, Any]

BYTES = np.dtype(np.uint8)

LARGEST = KEPT // 2
"""Bytes of an arena at most: a larger one would not be kept from run to run."""


class Numbered(NamedTuple):
    """A captured call whose inputs and results have numbers, their slots.

    Attributes:
        call: It.
        taken: The slots of its inputs; ``None`` for those that are the same in every run.
        given: The slots of its results.
    """

    call: CapturedCall
    taken: Sequence[int | None]
    given: Sequence[int]


class Made(NamedTuple):
    """A result that is the array of a store."""

    number: int


class _Launch(NamedTuple):
    """A kernel, its arguments, those that are the same in every run, and where it may refuse."""

    run: Any
    arguments: tuple[Any, ...]
    things: tuple[Any, ...]
    refusal: int


class CapturedRun:
    """Calls as one, for all arrays of its inputs' dtypes, shapes and strides.

    Args:
        forms: Dtype, shape and strides of each input; the array itself if it is fixed.
        calls: The calls, in order; the first slots are the inputs.
        results: The slots of what is returned.
        several: Whether that is a tuple.
        longest: The same run of greater lengths, in whose memory this one has room.

    Raises:
        ValueError: It has not.
    """

    def __init__(
        self,
        forms: Sequence[Any],
        calls: Sequence[Numbered],
        results: Sequence[int],
        *,
        several: bool,
        longest: CapturedRun | None = None,
    ) -> None:
        self._forms, self._several = forms, several
        self._values: dict[int | None, Any] = {
            slot: Place(at.FROM_INPUT, slot, 0, (), ()) for slot in range(len(forms))
        }
        self._stores: list[Store] = []
        self._launches: list[_Launch] = []
        self._scratch = 0
        for call in calls:
            self._add(call)
        self._results = [self._values[slot] for slot in results]
        self._share(longest)

    @property
    def scratch(self) -> int:
        """The bytes of scratch memory that it needs."""
        return self._scratch

    @property
    def fits(self) -> bool:
        """Says whether there is room for it on the stack, and for its arena among buffers."""
        if self._arena > LARGEST:
            return False
        return len(self._stores) <= at.MOST_OUTPUTS and len(self._forms) < at.MOST_ARGUMENTS

    def _add(self, each: Numbered) -> None:
        run, arguments, stores, results, scratch, refusal, _ = each.call.facts
        first = len(self._stores)
        self._stores += stores
        self._scratch = max(self._scratch, scratch)

        def placed(x: Any) -> Any:
            if isinstance(x, Place) and x.source == at.FROM_INPUT:
                base = self._values[each.taken[x.number]]
                if isinstance(base, Made):
                    base = Place(at.FROM_OUTPUT, base.number, 0, (), ())
                offset, writeable = base.offset + x.offset, base.writeable and x.writeable
                return Place(base.source, base.number, offset, x.shape, x.strides, writeable)
            if isinstance(x, Place) and x.source == at.FROM_OUTPUT:
                return x._replace(number=first + x.number)
            return x

        if run is not None:
            things = each.call.things
            self._launches.append(_Launch(run, tuple(map(placed, arguments)), things, refusal))
        for slot, result in zip(each.given, results, strict=False):
            known = Made(first + result) if isinstance(result, int) else placed(result)
            self._values[slot] = known

    def _share(self, longest: CapturedRun | None) -> None:
        """Puts what nobody outside reads into an arena, which is the last store."""
        sizes = self._sizes = [_nbytes(store) for store in self._stores]
        used = [_stores_of(launch.arguments) for launch in self._launches]
        kept = self._kept = sorted(set(_stores_of(self._results)))
        if longest is None:
            self._places, self._arena = assign(sizes, used, kept, ALIGNMENT)
            self._large = [n >= SMALL for n in (*(sizes[n] for n in kept), self._arena)]
        else:
            if kept != longest._kept or len(sizes) != len(longest._sizes):
                raise ValueError("the runs are not of the same steps")
            if any(own > room for own, room in zip(sizes, longest._sizes, strict=True)):
                raise ValueError("a shorter run needs more memory")
            self._places, self._arena, self._large = longest._places, longest._arena, longest._large
            self._scratch = max(self._scratch, longest._scratch)
        places = self._places
        self._stores = [self._stores[n] for n in kept]
        if len(places) > len(kept):
            self._stores.append(Store(BYTES, (self._arena,)))
        self._results = [_moved(result, places) for result in self._results]
        self._launches = [
            launch._replace(arguments=tuple(_moved(x, places) for x in launch.arguments))
            for launch in self._launches
        ]

    def encode(self) -> tuple[NDArray, NDArray]:
        """Returns it as ``jit.layout`` says."""
        return self.encoded().addressed()

    def encoded(self) -> Encoded:
        """Returns the same without addresses."""
        things: list[Any] = [thing for launch in self._launches for thing in launch.things]
        first = len(things)
        guards = [_guard(form, things) for form in self._forms]
        stores = zip(self._stores, self._large, strict=False)
        sections = {
            at.STORES: [_allocation(*each, things) for each in stores],
            at.LAUNCHES: [self._encode_launch(launch) for launch in self._launches],
            at.RESULTS: [_given(result, things) for result in self._results],
        }
        code = [0] * at.FIRST
        code[: at.GUARDS] = len(guards), self._scratch, int(self._several)
        code[at.GUARDS] = len(code)
        code += [word for guard in guards for word in (len(guard) + 1, *guard)]
        for section, entries in sections.items():
            code[section] = len(code)
            code.append(len(entries))
            code += [word for each in entries for word in (len(each) + 1, *each)]
        return Encoded(code, things, self._pointers(code), first)

    def _pointers(self, code: Sequence[int]) -> list[tuple[int, int]]:
        """Returns the words that are to have addresses of things: launches' arguments."""
        found = []
        place, number = code[at.LAUNCHES] + 1, 0
        for launch in self._launches:
            for word, thing in enumerate(launch.things, place + 5):
                if thing is not None:
                    found.append((word, number))
                number += 1
            place += code[place]
        return found

    def _encode_launch(self, launch: _Launch) -> list[int]:
        headers = [
            [slot, *_words(place)]
            for slot, place in enumerate(launch.arguments)
            if isinstance(place, Place)
        ]
        words = [entry_of(launch.run), len(launch.arguments), launch.refusal, len(headers)]
        words += [0] * len(launch.arguments)
        return [*words, *(word for each in headers for word in (len(each) + 1, *each))]


def alone(call: CapturedCall) -> CapturedRun:
    """Returns a run of one call."""
    *_, results, _, _, several = call.facts
    count = len(call.inputs)
    given = range(count, count + len(results))
    return CapturedRun(call.inputs, [Numbered(call, range(count), given)], given, several=several)


def _stores_of(values: Iterable[Any]) -> Iterable[int]:
    for value in values:
        if isinstance(value, Made) or _is_stored(value):
            yield value.number


def _is_stored(x: Any) -> bool:
    return isinstance(x, Place) and x.source == at.FROM_OUTPUT


def _nbytes(store: Store) -> int:
    return store.dtype.itemsize * math.prod(store.shape)


def _moved(x: Any, places: Mapping[int, tuple[int, int]]) -> Any:
    if isinstance(x, Made):
        return Made(places[x.number][0])
    if not _is_stored(x):
        return x
    number, offset = places[x.number]
    return x._replace(number=number, offset=offset + x.offset)


def _guard(form: Any, things: list[Any]) -> list[int]:
    if type(form) is not tuple:
        things.append(form)
        return [at.IDENTICAL, len(things) - 1]
    dtype, shape, strides = form
    things.append(dtype)
    return [at.ARRAY, id(dtype), len(shape), *shape, *strides]


def _allocation(store: Store, large: bool, things: list[Any]) -> list[int]:
    dtype, shape = store
    things.append(functools.partial(empty, shape, dtype) if large else dtype)
    kind = at.MADE_LARGE if large else at.MADE_SMALL
    return [kind, len(things) - 1, len(shape), *shape]


def _given(result: Any, things: list[Any]) -> list[int]:
    if isinstance(result, Place):
        kind = at.VIEW_OF_INPUT if result.source == at.FROM_INPUT else at.VIEW_OF_STORE
        return [kind if result.writeable else kind + at.READ_ONLY, *_words(result)[1:]]
    if isinstance(result, Made):
        return [at.MADE, result.number]
    things.append(None if result is None else result.array)
    return [at.THING, len(things) - 1]


def _words(place: Place) -> list[int]:
    shape, strides = place.shape, place.strides
    return [place.source, place.number, place.offset, len(shape), *shape, *strides]
