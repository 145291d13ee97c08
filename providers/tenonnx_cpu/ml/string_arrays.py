"""Words in arrays of objects, as kernels read them: by address, where CPython keeps them."""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Sequence

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.kernel_selection import NDArray

PLACE = JitKernel("ml.string_arrays", "place_keys")
LOOK_UP = JitKernel("ml.string_arrays", "look_up")

OBJECT_BYTES = object.__basicsize__
# Offsets of a `str`'s length and state (`PyASCIIObject`); between them is its hash.
LENGTH, STATE = OBJECT_BYTES, OBJECT_BYTES + 16


# Keys whose slots may be many times as many.
MAX_KEYS_OF_SPARSE_TABLE = 1 << 12

# Bits of the state that mean something: before Python 3.14, and since.
STATE_BITS = 0xFF, 0x3FFFFF


class _Word(str):
    """One whose characters are elsewhere."""

    __slots__ = ()


@functools.cache
def layout() -> tuple[int, ...] | None:
    """Return where in a ``str`` what lies, for kernels; ``None`` if that is not as expected."""
    if sys.implementation.name != "cpython" or sys.byteorder != "little":
        return None
    # Joined, so that nobody else has them: the state says that, too, and sizes grow with use.
    words = ["".join([each] * 5) for each in ("aB", "é", "ł", "😀")]
    found = next(filter(None, (_bits(words, known) for known in STATE_BITS)), None)
    begins = [sys.getsizeof(words[0]) - 11, *[sys.getsizeof(words[1]) - 6] * 3]
    codes = "ascii", "latin-1", "utf-16-le", "utf-32-le"
    for word, code, begin in zip(words, codes, begins, strict=True):
        whole = word.encode(code)
        if ctypes.string_at(id(word) + begin, len(whole)) != whole or _length(word) != len(word):
            return None
    seed = hash("seed") >> 8  # another in each process, so that nobody makes words that collide
    fields = id(str), OBJECT_BYTES - 8, LENGTH, STATE
    return (*fields, *found, *begins[:2], seed) if found else None


def _bits(words: Sequence[str], known: int) -> tuple[int, int, int] | None:
    """Return the state's bits of compact words, of ASCII, and where the characters' size begins.

    Args:
        words: Of ASCII, and of characters of 1, 2 and 4 bytes.
        known: The bits that may be these; others may be anything.
    """
    of_ascii, one, two, four = (_state(word) & known for word in words)
    compact, ascii_bit = one & two & four, of_ascii ^ one
    size = one ^ compact
    if size.bit_count() != 1 or ascii_bit.bit_count() != 1 or ascii_bit & one:
        return None
    are_sizes = two == compact | 2 * size and four == compact | 4 * size
    if not are_sizes or _state(_Word(words[0])) & compact == compact:
        return None
    return compact, ascii_bit, size.bit_length() - 1


def _state(word: str) -> int:
    return ctypes.c_uint32.from_address(id(word) + STATE).value


def _length(word: str) -> int:
    return ctypes.c_ssize_t.from_address(id(word) + LENGTH).value


def addresses(words: NDArray) -> NDArray:
    """Return the addresses of objects, which live as long as the array: int64 of as many axes."""
    # A copy: whoever has the array may change it while a kernel runs without the interpreter.
    own = np.array(words, order="C")
    return np.frombuffer(own, np.int64).reshape(own.shape)


def slots_of(keys: Sequence[str]) -> NDArray | None:
    """Return the slots in which kernels find keys; ``None`` if they cannot, or one is no word.

    Slots have the keys' addresses: whoever keeps them keeps the keys.
    """
    place_keys, fields = PLACE.run, layout()
    if place_keys is None or fields is None:
        return None
    # Of few keys, most are found at the first look.
    slots = np.zeros(
        (1 << (len(keys) * (4 if len(keys) < MAX_KEYS_OF_SPARSE_TABLE else 2)).bit_length(), 4),
        np.int64,
    )
    refused = np.zeros(1, np.uint8)
    place_keys(np.array([*map(id, keys)], np.int64), *fields, slots, refused)
    return None if refused[0] else slots


@cacheable
class WordTable:
    """A table from columns of words to bytes.

    Args:
        places: Which columns of a row, in the order of what is made.
        keys: The distinct words of each.
        cells: The bytes of each word, and of what is none of them, per column [keys + 1, bytes].
    """

    def __init__(
        self, places: Sequence[int], keys: Sequence[Sequence[str]], cells: Sequence[NDArray]
    ) -> None:
        self._made_of = places, keys, cells
        self.width = sum(each.shape[1] for each in cells)
        PLACE.request()
        LOOK_UP.request()

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle its parts, because addresses are of this process."""
        return WordTable, self._made_of

    @functools.cached_property
    def _columns(self) -> tuple[NDArray, NDArray, NDArray] | None:
        """The columns, their slots and their cells; ``None`` if a key is no word."""
        columns: list[list[int]] = []
        slots: list[NDArray] = []
        begin = cell = 0
        for place, keys, cells in zip(*self._made_of, strict=True):
            own = slots_of(keys)
            if own is None:
                return None
            columns.append([place, begin, len(own), len(keys), cell, cells.shape[1]])
            slots.append(own)
            begin, cell = begin + len(own), cell + cells.size
        joined = np.concatenate([cells.reshape(-1) for cells in self._made_of[2]])
        return np.array(columns, np.int64), np.concatenate(slots), joined

    def look_up(self, words: NDArray, y: NDArray, grain: int, threads: int) -> bool:
        """Write the bytes of rows of words; return whether it did: all are words.

        Args:
            words: [N, C] of objects.
            y: [N, width] of bytes.
            grain: Rows of a task.
            threads: How many threads may do it.
        """
        run, fields = LOOK_UP.run, layout()
        if run is None or fields is None or PLACE.run is None or self._columns is None:
            return False
        refused = np.zeros(1, np.uint8)
        run(addresses(words), *fields, *self._columns, y, refused, grain, threads)
        return not refused[0]
