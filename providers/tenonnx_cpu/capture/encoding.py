"""Captured runs as words, as ``jit.layout`` says."""

from __future__ import annotations

import copy
import functools
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tenonnx_cpu.buffers import empty
from tenonnx_cpu.capture.launch import Encoded
from tenonnx_cpu.jit import layout as at
from tenonnx_cpu.jit.library import entry_of

NDArray: TypeAlias = np.ndarray[Any, Any]


# The dtype and shape of an array to be allocated.
Store: TypeAlias = tuple[np.dtype[Any], tuple[int, ...]]


class View(NamedTuple):
    """A result that is a view of an input or of a store."""

    source: int
    number: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    writeable: bool


class Launches:
    """The section of launches, whose words are written as the steps run.

    Attributes:
        code: The words of all entries, with 0 in place of addresses of arguments.
        arguments: All arguments that are the same in every run, ``None`` for others.
        words: The places of their addresses in the code.
        moments: The first and the last launch that reads or writes a store.
        constants: The ids of arguments that are known to be the same in every run.
        entries: The kernels, and the addresses of their machine code.
    """

    def __init__(self) -> None:
        self.code = array("q")
        self.arguments: list[Any] = []
        self.words: list[int] = []
        self.moments: dict[int, tuple[int, int]] = {}
        self.constants: set[int] = set()
        self.count = 0
        self.entries: dict[Any, int] = {}
        self._placed: list[int] = []

    def add(
        self,
        run: Any,
        arguments: Sequence[Any],
        refusal: int,
        locate: Callable[[NDArray], tuple[int, int, int] | None],
    ) -> bool:
        """Add an entry; return whether there is room for it on the stack.

        Args:
            run: The kernel.
            arguments: Its arguments.
            refusal: Where in scratch memory the kernel may refuse.
            locate: Returns the source of an argument, its number there, and bytes from where that
                begins; ``None`` for one that is the same array in every run.
        """
        code, count, begin = self.code, len(arguments), len(self.code)
        if (entry := self.entries.get(run)) is None:
            entry = self.entries[run] = entry_of(run)
        code.extend((0, entry, count, refusal, 0, *[0] * count))
        same = list(arguments)
        ndarray, constants = np.ndarray, self.constants
        for n, x in enumerate(arguments):
            # Most are numbers, or known to be constants.
            if not isinstance(x, ndarray) or id(x) in constants:
                continue
            if (place := locate(x)) is None:
                constants.add(id(x))
                continue
            source, number, offset = place
            if source == at.FROM_OUTPUT:
                self._placed.append(len(code) + 3)
                self.moments[number] = self.moments.get(number, (self.count,))[0], self.count
            ndim = x.ndim
            code.extend((6 + 2 * ndim, n, source, number, offset, ndim, *x.shape, *x.strides))
            code[begin + 4] += 1
            same[n] = None
        self.arguments += same
        self.words += range(begin + 5, begin + 5 + count)
        code[begin] = len(code) - begin
        self.count += 1
        return count <= at.MOST_ARGUMENTS and code[begin + 4] <= at.MOST_HEADERS

    def mark(self) -> tuple[int, int, int, int]:
        """Return how far the entries are, as ``repeat`` takes it."""
        return len(self.code), len(self.arguments), len(self._placed), self.count

    def repeat(self, other: Launches, begin: Sequence[int], end: Sequence[int]) -> None:
        """Add entries of other launches, which were as far as these are when they began.

        Args:
            other: The launches.
            begin: Their mark before the entries.
            end: That behind them.
        """
        self.code += other.code[begin[0] : end[0]]
        self.arguments += other.arguments[begin[1] : end[1]]
        self.words += other.words[begin[1] : end[1]]
        placed = other._placed[begin[2] : end[2]]
        self._placed += placed
        for number in {other.code[word] for word in placed}:
            first, last = other.moments[number]
            own = self.moments.get(number, (first, last))
            self.moments[number] = min(own[0], first), max(own[1], last)
        self.count = end[3]

    def kept(self) -> Launches:
        """Return the same entries, which stay where they are when these move."""
        made = copy.copy(self)
        made.code = self.code[:]
        return made

    def move(self, places: Mapping[int, tuple[int, int]]) -> None:
        """Put stores where they are: a store, and bytes from where that begins."""
        code = self.code
        for word in self._placed:
            code[word], offset = places[code[word]]
            code[word + 1] += offset


def encoded(
    forms: Sequence[Any],
    stores: Iterable[tuple[Store, bool]],
    launches: Launches,
    results: Sequence[Any],
    scratch: int,
    *,
    several: bool,
) -> Encoded:
    """Return a run as words, without addresses.

    Args:
        forms: Its inputs' dtypes, shapes and strides; the array itself if it never changes.
        stores: What is allocated, and whether it is large.
        launches: The launches.
        results: The number of a store, a ``View``, or an array that is always the same, for each.
        scratch: Bytes of scratch memory.
        several: Whether results are a tuple.
    """
    things = list(launches.arguments)
    guards = [_guard(form, things) for form in forms]
    allocations = [_allocation(*each, things) for each in stores]
    given = [_given(result, things) for result in results]
    code = array("q", [0] * at.FIRST)
    code[: at.GUARDS] = array("q", (len(guards), scratch, several))
    code[at.GUARDS] = len(code)
    for guard in guards:
        code.extend((len(guard) + 1, *guard))
    _section(code, at.STORES, allocations)
    code[at.LAUNCHES] = len(code)
    code.append(launches.count)
    begin = len(code)
    pointers = [begin + word for word in launches.words]
    code += launches.code
    _section(code, at.RESULTS, given)
    return Encoded(code, things, pointers)


def _section(code: array[int], section: int, entries: Sequence[Sequence[int]]) -> None:
    code[section] = len(code)
    code.append(len(entries))
    for entry in entries:
        code.extend((len(entry) + 1, *entry))


def _guard(form: Any, things: list[Any]) -> list[int]:
    if type(form) is not tuple:
        things.append(form)
        return [at.IDENTICAL, len(things) - 1]
    dtype, shape, strides = form
    # An unpickled array has a dtype object of its own, which means nothing to another process.
    numpys = np.dtype(dtype.str)
    dtype = numpys if numpys == dtype and numpys.num == dtype.num else dtype
    things.append(dtype)
    return [at.ARRAY, id(dtype), len(shape), *shape, *strides]


def _allocation(store: Store, large: bool, things: list[Any]) -> list[int]:
    dtype, shape = store
    things.append(functools.partial(empty, shape, dtype) if large else dtype)
    kind = at.MADE_LARGE if large else at.MADE_SMALL
    return [kind, len(things) - 1, len(shape), *shape]


def _given(result: Any, things: list[Any]) -> list[int]:
    if type(result) is View:
        source, number, offset, shape, strides, writeable = result
        kind = at.VIEW_OF_INPUT if source == at.FROM_INPUT else at.VIEW_OF_STORE
        kind += 0 if writeable else at.READ_ONLY
        return [kind, number, offset, len(shape), *shape, *strides]
    if type(result) is int:
        return [at.MADE, result]
    things.append(result)
    return [at.THING, len(things) - 1]
