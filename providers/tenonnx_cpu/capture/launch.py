"""A step's launch of a kernel and its result; and launches written as words."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx.process.weak import WeakTable
from tenonnx_cpu.buffers import TRACED

NDArray: TypeAlias = np.ndarray[Any, Any]

FLOATS = float, np.floating

# Arrays that never change, by `id`: who has been given one may rely on its elements.
_known = WeakTable[int, Any]()

# Those of at most `MAX_SHARED_BYTES`, by dtype, shape and bytes.
_by_content = WeakTable[Any, Any]()

# Bytes of arrays that are one if their elements are equal.
MAX_SHARED_BYTES = 1 << 14

# Arrays whose elements are addresses, by `id`; they mean nothing to another process.
_of_addresses = WeakTable[int, Any]()


class Launch(NamedTuple):
    """A kernel that is about to be called.

    Attributes:
        run: The kernel; ``None`` if there is nothing to do for results that are views.
        arguments: The kernel's arguments.
        result: What the step returns then: an array, or a tuple of arrays and ``None``. They are
            new, views of the step's inputs, or fixed.
        refusal: Scratch memory whose first four bytes are not 0 if the kernel did not do it.
        otherwise: What to call with the step's inputs then; it may return another launch.
        copies: Launches that make copies of the step's inputs, or other arrays that this one
            reads. They are made before it is returned.
    """

    run: Callable[..., Any] | None
    arguments: tuple[Any, ...]
    result: Any
    refusal: NDArray | None = None
    otherwise: Callable[..., Any] | None = None
    copies: tuple[Launch, ...] = ()


class Encoded(NamedTuple):
    """A captured run as ``jit.layout`` says, but for the addresses of launches' arguments.

    Attributes:
        code: Its words.
        things: Its objects: first the arguments of launches, then one for each input.
        pointers: The word of each argument; that of ``None`` stays as it is.
    """

    code: Sequence[int]
    things: list[Any]
    pointers: Sequence[int]

    def addressed(self) -> tuple[NDArray, NDArray]:
        """Return words and things; numbers lie behind the code, as integers and as floats."""
        things, end = self.things, len(self.code)
        objects = np.fromiter(things, object, len(things))
        arguments = things[: len(self.pointers)]
        numbers = [
            n
            for n, x in enumerate(arguments)
            if x is not None and type(x) is not np.ndarray and not isinstance(x, np.ndarray)
        ]
        words = np.zeros(end + 2 * len(numbers), np.int64)
        words[:end] = self.code
        addresses = np.fromiter(map(id, arguments), np.int64, len(arguments))
        if numbers:
            values = [arguments[n] for n in numbers]
            words[end::2] = [x if type(x) is int else as_integer(x) for x in values]
            words[end:].view(np.float64)[1::2] = values
            start: int = words.__array_interface__["data"][0] + 8 * end
            addresses[numbers] = np.arange(start, start + 16 * len(numbers), 16)
        given = addresses != id(None)
        words[np.array(self.pointers, np.intp)[given]] = addresses[given]
        return words, objects


def done(made: Any, inputs: Sequence[Any] = ()) -> Any:
    """Return the results of a launch with a step's inputs; what is none is a result itself."""
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


def ahead(made: Launch) -> Any:
    """Return the result of a launch that a step makes before its own, which reads it."""
    step = TRACED.get()
    return done(made) if step is None else step.launch(made)


@cacheable
def launched(call: Callable[..., Any], *inputs: Any) -> Any:
    """Return the results of a step's function, whose launches are not captured."""
    return done(call(*inputs), inputs)


def fix(result: Any) -> NDArray:
    """Return a copy of an array that nobody writes to; the same one for equal small arrays."""
    array = np.array(result)
    array.flags.writeable = False
    if array.nbytes <= MAX_SHARED_BYTES and not array.dtype.hasobject:
        array = _by_content.setdefault((array.dtype, array.shape, array.tobytes()), array)
    _known[id(array)] = array
    return array


def mark_addresses(array: NDArray) -> NDArray:
    """Return an array whose elements are addresses: no launch that has it is kept for others."""
    _of_addresses[id(array)] = array
    return array


def holds_addresses(array: NDArray) -> bool:
    """Return whether an array is one that ``mark_addresses`` returned."""
    return _of_addresses.get(id(array)) is array


def is_fixed(array: Any) -> bool:
    """Return whether an array is one that ``fix`` returned."""
    return array is not None and _known.get(id(array)) is array


def as_integer(number: Any) -> int:
    """Return a number as kernels read it as an integer: 0 if it is none."""
    return 0 if isinstance(number, FLOATS) else int(number)
