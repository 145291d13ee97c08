"""What is written down of a call to a kernel, so that machine code can make it again.

What differs from call to call is found by address: an argument that lies in an input, in a result
or in scratch memory lies there the next time, too. Any other array must be the same one both times.
"""

from __future__ import annotations

import functools
import math
import types
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tenonnx_cpu.buffers import SMALL, empty
from tenonnx_cpu.jit import layout as at
from tenonnx_cpu.jit.code.images import entry_of
from tenonnx_cpu.jit.scratch import scratch
from tenonnx_cpu.recording.fixed import is_fixed
from tenonnx_cpu.recording.launch import Launch

NDArray: TypeAlias = np.ndarray[Any, Any]


class Place(NamedTuple):
    """An array in an input, a store or scratch memory.

    Attributes:
        source: ``FROM_INPUT``, ``FROM_OUTPUT`` or ``FROM_SCRATCH``.
        number: Which input or store.
        offset: Bytes from where that begins.
        shape: The array's.
        strides: Likewise.
    """

    source: int
    number: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class Same(NamedTuple):
    """An array that is the same in every call."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]


class Fixed:
    """A result that is the same array in every call."""

    def __init__(self, array: NDArray) -> None:
        self.array = array

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Fixed) or self.array.dtype != other.array.dtype:
            return False
        return self.array.shape == other.array.shape and self._bytes == other._bytes

    def __hash__(self) -> int:
        return hash(self._bytes)

    @property
    def _bytes(self) -> bytes:
        return self.array.tobytes()


class Store(NamedTuple):
    """An array to be allocated."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]


class Description(NamedTuple):
    """A launch as it is for all arrays of its inputs' dtypes, shapes and strides.

    Attributes:
        facts: The kernel, its arguments, the stores and the results (a ``Place`` in a store or an
            input; the number of a store; ``Fixed``; ``None``), bytes of scratch memory, where in
            it the kernel may refuse, and whether there are several results.
        inputs: Every constant and fixed array, and of other inputs dtype, shape and strides.
        things: The arguments that are the same in every call, ``None`` for others.
    """

    facts: tuple[Any, tuple[Any, ...], tuple[Store, ...], tuple[Any, ...], int, int, bool]
    inputs: tuple[Any, ...]
    things: tuple[Any, ...]


class _Unclear(Exception):
    """A launch that cannot be told from others."""


def describe(
    inputs: tuple[Any, ...], constants: Sequence[bool], made: Launch
) -> Description | None:
    """Returns a description; ``None`` if there is none that fits every call.

    Args:
        inputs: The step's.
        constants: Which of them are the same arrays in every run.
        made: What it does with them.
    """
    known = tuple(
        x if x is None or constant or is_fixed(x) else _form(x)
        for x, constant in zip(inputs, constants, strict=False)
    )
    if len(known) < len(inputs) or any(form is _UNFIT for form in known):
        return None
    if made.run is not None and type(made.run) is not types.BuiltinFunctionType:
        return None
    try:
        found = _Finder(inputs, known, made).description
    except _Unclear:
        return None
    places = sum(isinstance(argument, Place) for argument in found.facts[1])
    room = max(len(inputs) + 1, len(made.arguments)) <= at.MOST_ARGUMENTS
    fits = room and places <= at.MOST_HEADERS and len(found.facts[2]) <= at.MOST_OUTPUTS
    return found if fits else None


_UNFIT: Any = object()


def _form(x: Any) -> Any:
    if type(x) is not np.ndarray or not x.flags.aligned or x.dtype.hasobject:
        return _UNFIT
    return x.dtype, x.shape, x.strides


def _address(array: NDArray) -> int:
    return int(array.__array_interface__["data"][0])


def _span(array: NDArray) -> tuple[int, int]:
    """Returns the address of an array's first byte in memory and of the one after the last."""
    low = high = _address(array)
    for length, step in zip(array.shape, array.strides, strict=True):
        if step < 0:
            low += (length - 1) * step
        else:
            high += (length - 1) * step
    return low, high + array.itemsize


class _Finder:
    """Finds where the arrays of a launch lie."""

    def __init__(self, inputs: tuple[Any, ...], known: tuple[Any, ...], made: Launch) -> None:
        self._inputs = [
            (position, _address(x), *_span(x), type(known[position]) is tuple)
            for position, x in enumerate(inputs)
            if type(x) is np.ndarray and x.size
        ]
        room = scratch(0)
        self._scratch = _span(room) if room.size else (0, 0)
        self._room = 0
        self._stores: list[tuple[int, int]] = []
        stores: list[Store] = []
        several = isinstance(made.result, tuple)
        results = tuple(
            self._result(result, stores, made.run is None)
            for result in (made.result if several else (made.result,))
        )
        arguments = tuple(map(self._argument, made.arguments))
        refusal = at.ABSENT
        if made.refusal is not None:
            place = self._argument(made.refusal)
            if not isinstance(place, Place):
                raise _Unclear  # more than a thread keeps, or a signal's handler needed more
            refusal = place.offset
        things = tuple(
            None if isinstance(place, Place) else argument
            for place, argument in zip(arguments, made.arguments, strict=True)
        )
        facts = made.run, arguments, tuple(stores), results, self._room, refusal, several
        self.description = Description(facts, known, things)

    def _result(self, result: Any, stores: list[Store], is_view: bool) -> Any:
        if result is None:
            return None
        if is_fixed(result):
            return Fixed(result)
        if type(result) is not np.ndarray or not result.size:
            raise _Unclear
        source = self._input_of(result)
        if source is not None:
            if not source[1] or not result.flags.writeable:
                raise _Unclear
            return Place(
                at.FROM_INPUT, source[0], _address(result) - source[2], result.shape, result.strides
            )
        low, high = span = _span(result)
        if is_view or high - low != result.nbytes:
            raise _Unclear
        dense = result.flags.c_contiguous
        if span not in self._stores:
            self._stores.append(span)
            stores.append(Store(result.dtype, result.shape if dense else (result.size,)))
        index = self._stores.index(span)
        if stores[index].shape == result.shape and stores[index].dtype == result.dtype and dense:
            return index
        offset = _address(result) - low
        return Place(at.FROM_OUTPUT, index, offset, result.shape, result.strides)

    def _argument(self, argument: Any) -> Any:
        if not isinstance(argument, np.ndarray):
            return argument
        address, form = _address(argument), (argument.shape, argument.strides)
        if argument.size:
            low, high = _span(argument)
            if self._scratch[0] <= low and high <= self._scratch[1]:
                self._room = max(self._room, high - self._scratch[0])
                return Place(at.FROM_SCRATCH, 0, address - self._scratch[0], *form)
            for index, (start, stop) in enumerate(self._stores):
                if start <= low and high <= stop:
                    return Place(at.FROM_OUTPUT, index, address - start, *form)
            source = self._input_of(argument)
            if source is not None and source[1]:
                return Place(at.FROM_INPUT, source[0], address - source[2], *form)
        return Same(address if argument.size else 0, *form, argument.dtype)

    def _input_of(self, array: NDArray) -> tuple[int, bool, int] | None:
        """Returns the input that an array is a view of: position, whether it varies, address."""
        low, high = _span(array)
        within = [each for each in self._inputs if each[2] <= low and high <= each[3]]
        exact = [each for each in within if each[1] == _address(array)] or within
        if not exact:
            if any(low < each[3] and each[2] < high for each in self._inputs):
                raise _Unclear
            return None
        if len(exact) > 1 and any(each[4] for each in exact):
            raise _Unclear
        position, address, _, _, varies = exact[0]
        return position, varies, address


def written(described: Description) -> tuple[NDArray, NDArray]:
    """Returns a recording, as ``jit.layout`` says."""
    run, arguments, stores, results, room, refusal, several = described.facts
    things: list[Any] = list(described.things)
    guards = [_guard(form, things) for form in described.inputs]
    headers = [
        [slot, *_words(place)] for slot, place in enumerate(arguments) if isinstance(place, Place)
    ]
    sections = {
        at.STORES: [_allocation(store, things) for store in stores],
        at.HEADERS: headers,
        at.RESULTS: [_given(result, things) for result in results],
    }
    code = [0] * at.FIRST
    entry = 0 if run is None else entry_of(run)
    code[: at.GUARDS] = len(guards), entry, len(arguments), room, refusal, int(several)
    code[at.GUARDS] = len(code)
    code += [word for guard in guards for word in (len(guard) + 1, *guard)]
    for section, entries in sections.items():
        code[section] = len(code)
        code.append(len(entries))
        code += [word for each in entries for word in (len(each) + 1, *each)]
    objects = np.empty(len(things), object)
    for number, thing in enumerate(things):
        objects[number] = thing
    return np.array(code, np.int64), objects


def _guard(form: Any, things: list[Any]) -> list[int]:
    if type(form) is not tuple:
        things.append(form)
        return [at.IDENTICAL, len(things) - 1]
    dtype, shape, strides = form
    things.append(dtype)
    return [at.ARRAY, id(dtype), len(shape), *shape, *strides]


def _allocation(store: Store, things: list[Any]) -> list[int]:
    dtype, shape = store
    large = dtype.itemsize * math.prod(shape) >= SMALL
    things.append(functools.partial(empty, shape, dtype) if large else dtype)
    kind = at.MADE_LARGE if large else at.MADE_SMALL
    return [kind, len(things) - 1, len(shape), *shape]


def _given(result: Any, things: list[Any]) -> list[int]:
    if isinstance(result, Place):
        kind = at.VIEW_OF_INPUT if result.source == at.FROM_INPUT else at.VIEW_OF_STORE
        return [kind, *_words(result)[1:]]
    if isinstance(result, int):
        return [at.MADE, result]
    things.append(None if result is None else result.array)
    return [at.THING, len(things) - 1]


def _words(place: Place) -> list[int]:
    shape, strides = place.shape, place.strides
    return [place.source, place.number, place.offset, len(shape), *shape, *strides]
