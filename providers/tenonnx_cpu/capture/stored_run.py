"""Captured runs that are kept with a plan: what machine code reads, without a process's addresses.

A later process puts its own into the words, of the kernels' entries, of dtypes and of arguments,
and replays them without asking any step.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx.plan_cache import NotCacheable
from tenonnx.weights.storage import root
from tenonnx.weights.weight import Weight
from tenonnx_cpu.capture.launch import Encoded, NDArray, fix, holds_addresses, is_fixed
from tenonnx_cpu.jit import layout as at
from tenonnx_cpu.jit.library import entry_of
from tenonnx_cpu.jit.runtime import KERNELS, JitKernel
from tenonnx_cpu.jit.scratch import ALIGNMENT, aligned

# Bytes below which arrays lie together in one.
MAX_PACKED_BYTES = 16 << 10

# The offsets of a launch's entry into its kernel, and of its arguments.
RUN, ARGUMENTS = 1, 5


@cacheable
class Packed(NamedTuple):
    """An array among others.

    Attributes:
        offset: Where its first element is.
        dtype, shape, strides: The array's.
    """

    offset: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@cacheable
class Within(NamedTuple):
    """A view of a large array, whose elements a kernel may reach beyond what the view has.

    Attributes:
        owner: The array.
        offset, dtype, shape, strides: As of ``Packed``.
    """

    owner: NDArray
    offset: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def view(self) -> NDArray:
        """Return the view."""
        memory = self.owner.ravel("K").data
        return np.ndarray(self.shape, self.dtype, memory, self.offset, self.strides)


@cacheable
class Fixed(NamedTuple):
    """An array that ``fix`` returned: captures take and return the same one.

    Attributes:
        content: Where its elements are.
    """

    content: Any


@cacheable
class Named(NamedTuple):
    """An array with a name in the plan's code."""

    name: str


@cacheable
class StoredRun(NamedTuple):
    """A captured run as ``jit.layout`` says, but for addresses.

    Attributes:
        words: The code, with 0 in place of addresses.
        things: The objects; arrays are ``Named``, ``Packed`` if they are small, ``Within`` large
            ones, or themselves; those that captures exchange are ``Fixed``.
        memory: The bytes of these.
        entries: Words that are to have addresses of kernels, and of which ones.
        pointers: Words that are to have addresses of arguments, the first things.
        guards: Words that are to have addresses of dtypes, and which of the things these are.
    """

    words: NDArray
    things: tuple[Any, ...]
    memory: NDArray
    entries: tuple[tuple[int, JitKernel], ...]
    pointers: tuple[int, ...]
    guards: tuple[tuple[int, int], ...]

    def restored(self, namespace: Mapping[str, Any]) -> tuple[NDArray, NDArray]:
        """Return words and objects for this process.

        Args:
            namespace: What the plan's code names.

        Raises:
            NotCacheable: A kernel is not there.
        """
        memory = aligned(self.memory.size)
        memory[:] = self.memory
        things = [_restored(x, memory, namespace) for x in self.things]
        code = self.words.tolist()
        for word, kernel in self.entries:
            if kernel.run is None:
                raise NotCacheable(f"the kernel {kernel} is not there")
            code[word] = entry_of(kernel.run)
        for word, number in self.guards:
            code[word] = id(things[number])
        return Encoded(code, things, self.pointers).addressed()


def _restored(thing: Any, memory: NDArray, namespace: Mapping[str, Any]) -> Any:
    """Return the object for a thing of a ``StoredRun``."""
    if type(thing) is Fixed:
        return fix(_restored(thing.content, memory, namespace))
    if type(thing) is Packed:
        return np.ndarray(thing.shape, thing.dtype, memory, thing.offset, thing.strides)
    if type(thing) is Within:
        return thing.view()
    return namespace[thing.name] if type(thing) is Named else thing


def stored(words: NDArray, objects: Sequence[Any], names: Mapping[int, str]) -> StoredRun:
    """Return what is kept of a capture.

    Args:
        words: Its words.
        objects: Its objects.
        names: Those of the plan's arrays, by their identities.

    Raises:
        NotCacheable: It means nothing to another process.
    """
    code = words.tolist()
    things = [Named(names[id(x)]) if id(x) in names else x for x in objects]
    entries, pointers = _launches(code)
    del code[_end(code) :]
    guards = _guards(code, things, first=_arguments(code))
    code[at.USED] = 0
    for word in (*pointers, *(word for word, _ in (*entries, *guards))):
        code[word] = 0
    _refuse_results(code, things)
    packer = _Packer()
    packed = tuple(packer.packed(x) if isinstance(x, np.ndarray) else x for x in things)
    exchanged = range(_arguments(code), len(things))
    packed = tuple(
        Fixed(x) if n in exchanged and is_fixed(things[n]) else x for n, x in enumerate(packed)
    )
    taken = np.frombuffer(b"".join(packer.pieces), np.uint8)
    given = tuple(entries), tuple(pointers), tuple(guards)
    return StoredRun(np.array(code, np.int64), packed, taken, *given)


def key_of(words: NDArray, objects: Sequence[Any]) -> tuple[Any, ...]:
    """Return what tells a capture's inputs from others, as ``capturable.key_of`` says it."""
    code, found = words.tolist(), list[Any]()
    place, number = code[at.GUARDS], _arguments(code)
    for thing in objects[number : number + code[at.COUNT]]:
        if code[place + 1] == at.ARRAY:
            shape = code[place + 4 : place + 4 + code[place + 3]]
            strides = code[place + 4 + len(shape) : place + code[place]]
            found.append((tuple(shape), tuple(strides), thing, thing.num))
        else:
            found.append(id(thing))
        place += code[place]
    return tuple(found)


def _places(code: Sequence[int], section: int) -> list[int]:
    """Return where the entries of a section begin."""
    place, found = code[section] + 1, []
    for _ in range(code[place - 1]):
        found.append(place)
        place += code[place]
    return found


def _end(code: Sequence[int]) -> int:
    """Return where the code ends: numbers are behind."""
    last = _places(code, at.RESULTS)[-1]
    return last + code[last]


def _arguments(code: Sequence[int]) -> int:
    """Return how many things are arguments of launches; those of guards come next."""
    return sum(code[place + 2] for place in _places(code, at.LAUNCHES))


def _launches(code: Sequence[int]) -> tuple[list[tuple[int, JitKernel]], list[int]]:
    kernels = {entry_of(each.run): each for each in KERNELS.values() if each.run is not None}
    entries, pointers = [], list[int]()
    for place in _places(code, at.LAUNCHES):
        if (kernel := kernels.get(code[place + RUN])) is None:
            raise NotCacheable("something is launched that is no kernel")
        entries.append((place + RUN, kernel))
        pointers += range(place + ARGUMENTS, place + ARGUMENTS + code[place + 2])
    return entries, pointers


def _guards(code: Sequence[int], things: Sequence[Any], first: int) -> list[tuple[int, int]]:
    place, found = code[at.GUARDS], []
    for number in range(first, first + code[at.COUNT]):
        thing = things[number]
        if code[place + 1] == at.ARRAY:
            if np.dtype(thing.str) is not thing:
                raise NotCacheable(f"the dtype {thing} is another one in each process")
            found.append((place + 2, number))
        elif thing is not None and type(thing) is not Named and not is_fixed(thing):
            raise NotCacheable("it takes an array that is this process's")
        place += code[place]
    return found


def _refuse_results(code: Sequence[int], things: Sequence[Any]) -> None:
    for place in _places(code, at.RESULTS):
        thing = things[code[place + 2]] if code[place + 1] == at.THING else None
        if thing is not None and type(thing) is not Named and not is_fixed(thing):
            raise NotCacheable("it returns an array that is this process's")


class _Packer:
    """Small arrays, packed together.

    A kernel may be given the first element of an array alone, and find the others by strides of
    its own. So it is whole arrays that are taken, and once each, not what their views have.
    """

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self._bytes = 0
        self._places: dict[int, int] = {}

    def packed(self, array: NDArray) -> Any:
        """Return where an array lies; itself if it is large or a weight's."""
        owner = root(array)
        if isinstance(owner.base, Weight):
            return array
        if array.dtype.hasobject or holds_addresses(owner):
            raise NotCacheable("an argument is an array that cannot be kept")
        if not (owner.flags.c_contiguous or owner.flags.f_contiguous):
            raise NotCacheable("an argument is a view of an array with gaps")
        offset = array.ctypes.data - owner.ctypes.data
        if owner.nbytes < MAX_PACKED_BYTES:
            return Packed(self._place(owner) + offset, array.dtype, array.shape, array.strides)
        if array.nbytes == owner.nbytes and array.flags.c_contiguous:
            return array
        return Within(owner, offset, array.dtype, array.shape, array.strides)

    def _place(self, owner: NDArray) -> int:
        """Return where an array lies that owns its memory, as far from alignment as it was."""
        if id(owner) not in self._places:
            ahead = owner.ctypes.data % ALIGNMENT
            content = bytes(ahead) + ctypes.string_at(owner.ctypes.data, owner.nbytes)
            whole = -(-len(content) // ALIGNMENT) * ALIGNMENT
            self.pieces.append(content.ljust(whole, b"\0"))
            self._places[id(owner)] = self._bytes + ahead
            self._bytes += whole
        return self._places[id(owner)]
