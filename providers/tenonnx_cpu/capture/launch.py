"""A step's launch of a kernel and its result; and launches written as words."""

from __future__ import annotations

import functools
import operator
import weakref
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from tenonnx.records import NamedTuple

NDArray: TypeAlias = np.ndarray[Any, Any]

_known: dict[int, weakref.ref[Any]] = {}
"""Arrays that never change: who has been given one may rely on its elements."""


_of_addresses: dict[int, weakref.ref[Any]] = {}
"""Arrays whose elements are addresses, which mean nothing to another process."""


class Launch(NamedTuple):
    """A kernel that is about to be called.

    Attributes:
        run: The kernel; ``None`` if there is nothing to do for results that are views.
        arguments: The kernel's arguments.
        result: What the step returns then: an array, or a tuple of arrays and ``None``. They are
            new, views of the step's inputs, or fixed.
        refusal: Scratch memory whose first four bytes are not 0 if the kernel did not do it.
        otherwise: What to call with the step's inputs then; it may return another launch.
    """

    run: Callable[..., Any] | None
    arguments: tuple[Any, ...]
    result: Any
    refusal: NDArray | None = None
    otherwise: Callable[..., Any] | None = None


class Encoded(NamedTuple):
    """A captured run as ``jit.layout`` says, but for the addresses of launches' arguments.

    Attributes:
        code: Its words.
        things: Its objects.
        pointers: Words that are to have addresses, and of which things.
        guards: Which thing is the first that guards compare; there is one for each input.
    """

    code: list[int]
    things: list[Any]
    pointers: list[tuple[int, int]]
    guards: int

    def addressed(self) -> tuple[NDArray, NDArray]:
        """Returns words and things; numbers lie behind the code, as integers and as floats."""
        end = len(self.code)
        numbers = [n for _, n in self.pointers if not isinstance(self.things[n], np.ndarray)]
        words = np.zeros(end + 2 * len(numbers), np.int64)
        values = [self.things[n] for n in numbers]
        words[end::2] = list(map(_integer, values))
        words[end:].view(np.float64)[1::2] = values
        place, code = words.ctypes.data + 8 * end, self.code.copy()
        for word, n in self.pointers:
            if isinstance(thing := self.things[n], np.ndarray):
                code[word] = id(thing)
            else:
                code[word], place = place, place + 16
        words[:end] = code
        objects = np.empty(len(self.things), object)
        for n, thing in enumerate(self.things):
            objects[n] = thing
        return words, objects


def done(made: Any, inputs: Sequence[Any] = ()) -> Any:
    """Returns the results of a launch with a step's inputs; what is none is a result itself."""
    while type(made) is Launch:
        if made.run is None:
            return made.result
        if made.refusal is None:
            made.run(*made.arguments)
            return made.result
        # No bytecode between the two: before one, a signal's handler may run another session,
        # whose kernels work in the same memory.
        look = functools.partial(made.refusal.view(np.int32).item, 0)
        _, refused = map(operator.call, (functools.partial(made.run, *made.arguments), look))
        if not refused:
            return made.result
        made = made.otherwise(*inputs)  # type: ignore[misc]  # who may refuse says what then
    return made


def fix(result: Any) -> NDArray:
    """Returns a copy of an array that nobody writes to."""
    array = np.array(result)
    array.flags.writeable = False
    number = id(array)
    _known[number] = weakref.ref(array, lambda _: _known.pop(number, None))
    return array


def mark_addresses(array: NDArray) -> NDArray:
    """Returns an array whose elements are addresses: no launch that has it is kept for others."""
    number = id(array)
    _of_addresses[number] = weakref.ref(array, lambda _: _of_addresses.pop(number, None))
    return array


def holds_addresses(array: NDArray) -> bool:
    """Says whether an array is one that ``mark_addresses`` returned."""
    known = _of_addresses.get(id(array))
    return known is not None and known() is array


def is_fixed(array: Any) -> bool:
    """Says whether an array is one that ``fix`` returned."""
    known = _known.get(id(array))
    return known is not None and known() is array


def write_number(number: Any, words: NDArray) -> None:
    """Writes a number to two words: as an integer, 0 if it is none, and as a float."""
    words[0] = _integer(number)
    words[1:].view(np.float64)[0] = float(number)


def _integer(number: Any) -> int:
    return 0 if isinstance(number, float | np.floating) else int(number)
