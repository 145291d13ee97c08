"""The capture of a call to a kernel, which machine code repeats.

Differences between calls are found by address: an argument that lies in an input, in a result
or in scratch memory lies there the next time, too. Any other array must be the same one both times.
"""

from __future__ import annotations

import ctypes
import types
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from tenonnx.records import NamedTuple
from tenonnx_cpu.capture.launch import Launch, is_fixed
from tenonnx_cpu.jit import layout as at
from tenonnx_cpu.jit.scratch import scratch

NDArray: TypeAlias = np.ndarray[Any, Any]

DATA = object.__basicsize__
"""The offset of the address of an array's first element (``PyArrayObject_fields``)."""

word_at = ctypes.c_ssize_t.from_address


class Place(NamedTuple):
    """An array in an input, a store or scratch memory.

    Attributes:
        source: ``FROM_INPUT``, ``FROM_OUTPUT`` or ``FROM_SCRATCH``.
        number: Which input or store.
        offset: Bytes from where that begins.
        shape: The array's.
        strides: The array's.
        writeable: Whether a view of it is, if what it views is.
    """

    source: int
    number: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    writeable: bool = True


class Same(NamedTuple):
    """An array that is the same in every call."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]


class Constant:
    """A result that is the same array in every call."""

    def __init__(self, array: NDArray) -> None:
        self.array = array

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Constant) or self.array.dtype != other.array.dtype:
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


class CapturedCall(NamedTuple):
    """A launch as it is for all arrays of its inputs' dtypes, shapes and strides.

    Attributes:
        facts: The kernel, its arguments, the stores and the results (a ``Place`` in a store or an
            input; the number of a store; ``Constant``; ``None``), bytes of scratch memory, where in
            it the kernel may refuse, and whether there are several results.
        inputs: Every constant and fixed array, and of other inputs dtype, shape and strides.
        things: The arguments that are the same in every call, ``None`` for others.
    """

    facts: tuple[Any, tuple[Any, ...], tuple[Store, ...], tuple[Any, ...], int, int, bool]
    inputs: tuple[Any, ...]
    things: tuple[Any, ...]


class _Unclear(Exception):
    """A launch that cannot be told from others."""


def capture(
    inputs: tuple[Any, ...], constants: Sequence[bool], made: Launch
) -> CapturedCall | None:
    """Captures a launch; ``None`` if it does not fit every call.

    Args:
        inputs: The step's.
        constants: Which of them are the same arrays in every run.
        made: What it does with them.
    """
    known = tuple(
        x if constant else form_of(x) for x, constant in zip(inputs, constants, strict=False)
    )
    if len(known) < len(inputs) or any(form is _UNFIT for form in known):
        return None
    if made.run is not None and type(made.run) is not types.BuiltinFunctionType:
        return None
    try:
        found = _Finder(inputs, known, made).captured
    except _Unclear:
        return None
    places = sum(isinstance(argument, Place) for argument in found.facts[1])
    room = max(len(inputs) + 1, len(made.arguments)) <= at.MOST_ARGUMENTS
    fits = room and places <= at.MOST_HEADERS and len(found.facts[2]) <= at.MOST_OUTPUTS
    return found if fits else None


def repeats(captured: CapturedCall, again: Any) -> bool:
    """Says whether a launch of the same inputs is captured, too: no array was made for either.

    Where arrays lie in inputs, results and scratch memory depends on shapes alone.
    """
    if type(again) is not Launch or again.run is not captured.facts[0]:
        return False
    arguments, results = captured.facts[1], captured.facts[3]
    found = again.result if isinstance(again.result, tuple) else (again.result,)
    return (
        len(arguments) == len(again.arguments)
        and len(results) == len(found)
        and all(map(_is_same, arguments, captured.things, again.arguments))
        and all(map(_is_same_result, results, found))
    )


def _is_same(captured: Any, thing: Any, argument: Any) -> bool:
    if isinstance(captured, Place) or thing is argument:
        return True
    if not isinstance(captured, Same):
        return bool(captured == argument)
    return isinstance(argument, np.ndarray) and captured == same_of(argument)


def _is_same_result(captured: Any, result: Any) -> bool:
    return not isinstance(captured, Constant) or captured == Constant(result)


_UNFIT: Any = object()


def form_of(x: Any) -> Any:
    """Returns an array's dtype, shape and strides; the array itself if it never changes."""
    if x is None or is_fixed(x):
        return x
    if type(x) is not np.ndarray or not x.flags.aligned or x.dtype.hasobject:
        return _UNFIT
    return x.dtype, x.shape, x.strides


def _extent(array: NDArray) -> tuple[int, int, int]:
    """Returns the addresses of an array's first element, of its first byte and after its last."""
    low = high = address = word_at(id(array) + DATA).value
    if array.flags.c_contiguous:
        return address, address, address + array.nbytes
    for length, step in zip(array.shape, array.strides, strict=True):
        if step < 0:
            low += (length - 1) * step
        else:
            high += (length - 1) * step
    return address, low, high + array.itemsize


def same_of(array: NDArray) -> Same:
    """Returns what an array has in common with others that see the same memory alike."""
    address = _extent(array)[0] if array.size else 0
    return Same(address, array.shape, array.strides, array.dtype)


class _Input(NamedTuple):
    """The place of an input in memory, and whether it may be another in another call."""

    position: int
    address: int
    low: int
    high: int
    varies: bool


class _Finder:
    """Finds where the arrays of a launch lie."""

    def __init__(self, inputs: tuple[Any, ...], known: tuple[Any, ...], made: Launch) -> None:
        self._inputs = [
            _Input(position, *_extent(x), type(known[position]) is tuple)
            for position, x in enumerate(inputs)
            if type(x) is np.ndarray and x.size
        ]
        room = scratch(0)
        self._scratch = _extent(room)[1:] if room.size else (0, 0)
        self._room = 0
        self._stores: list[tuple[int, int]] = []
        stores: list[Store] = []
        several = isinstance(made.result, tuple)
        results = tuple(
            self._result(result, stores, made.run is None)
            for result in (made.result if several else (made.result,))
        )
        arguments = tuple(
            self._argument(x) if isinstance(x, np.ndarray) else x for x in made.arguments
        )
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
        self.captured = CapturedCall(facts, known, things)

    def _result(self, result: Any, stores: list[Store], is_view: bool) -> Any:
        if result is None:
            return None
        if is_fixed(result):
            return Constant(result)
        if type(result) is not np.ndarray or not result.size:
            raise _Unclear
        address, low, high = _extent(result)
        if (source := self._input_of(address, low, high)) is not None:
            if not source.varies:
                raise _Unclear
            offset, writeable = address - source.address, result.flags.writeable
            form = result.shape, result.strides, writeable
            return Place(at.FROM_INPUT, source.position, offset, *form)
        if is_view or high - low != result.nbytes:
            raise _Unclear
        dense = result.flags.c_contiguous
        if (low, high) not in self._stores:
            self._stores.append((low, high))
            stores.append(Store(result.dtype, result.shape if dense else (result.size,)))
        index = self._stores.index((low, high))
        if stores[index].shape == result.shape and stores[index].dtype == result.dtype and dense:
            return index
        return Place(at.FROM_OUTPUT, index, address - low, result.shape, result.strides)

    def _argument(self, argument: NDArray) -> Place | Same:
        shape, strides = argument.shape, argument.strides
        if not argument.size:
            return same_of(argument)
        address, low, high = _extent(argument)
        if self._scratch[0] <= low and high <= self._scratch[1]:
            self._room = max(self._room, high - self._scratch[0])
            return Place(at.FROM_SCRATCH, 0, address - self._scratch[0], shape, strides)
        for index, (start, stop) in enumerate(self._stores):
            if start <= low and high <= stop:
                return Place(at.FROM_OUTPUT, index, address - start, shape, strides)
        source = self._input_of(address, low, high)
        if source is None or not source.varies:
            return same_of(argument)
        return Place(at.FROM_INPUT, source.position, address - source.address, shape, strides)

    def _input_of(self, address: int, low: int, high: int) -> _Input | None:
        """Returns the input of an array that is a view."""
        touched = [each for each in self._inputs if low < each.high and each.low < high]
        if not touched:
            return None  # as weights that are no input
        within = [each for each in touched if each.low <= low and high <= each.high]
        exact = [each for each in within if each.address == address] or within
        if not exact or (len(exact) > 1 and any(each.varies for each in exact)):
            raise _Unclear
        return exact[0]
