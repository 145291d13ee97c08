"""Attributes of thousands of numbers or words, as trees have, read without looking at each of them.

A list lies in a file as its items one behind the other, each with a tag: a run. protobuf makes an
object of every item, and onnx_ir another; here numpy reads the run where it is.

https://protobuf.dev/programming-guides/encoding/; field numbers are those of ``onnx.proto``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias, overload

import numpy as np

NDArray: TypeAlias = np.ndarray[Any, Any]

# Tags of an attribute's name, and of each item of a list.
NAME, FLOAT, INT, WORD = 1 << 3 | 2, 7 << 3 | 5, 8 << 3, 9 << 3 | 2

# Types of attributes that are lists.
FLOATS, INTS, STRINGS = 6, 7, 8

# Characters below are in no word here, so that in a run each such byte is a length.
CONTROL: Final = 0x20

# Different words that a list may have, of up to 31 bytes each.
MAX_DISTINCT_WORDS: Final = 16


class LongList(Sequence[Any]):
    """The items of a list: floats, integers, or few different words.

    Args:
        array: float32 or int64; of words, which of the names each is.
        names: The different words; none if the items are numbers.
    """

    __slots__ = ("array", "names")

    def __init__(self, array: NDArray, names: Sequence[str] = ()) -> None:
        array.flags.writeable = False
        self.array = array
        self.names = names

    def __len__(self) -> int:
        return len(self.array)

    @overload
    def __getitem__(self, place: int) -> Any: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Any, ...]: ...
    def __getitem__(self, place: int | slice) -> Any:
        if isinstance(place, slice):
            return tuple(LongList(self.array[place], self.names))
        item = self.array[place].item()
        return self.names[item] if self.names else item

    def __iter__(self) -> Iterator[Any]:
        items = self.array.tolist()
        return map(self.names.__getitem__, items) if self.names else iter(items)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray:
        if self.names:
            return np.array(self.names, object).take(self.array).astype(dtype or object)
        return np.array(self.array, dtype or self.array.dtype, copy=copy)

    def __repr__(self) -> str:
        return repr(tuple(self))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LongList):
            return isinstance(other, tuple) and tuple(self) == other
        same = self.names == other.names and self.array.dtype == other.array.dtype
        return same and self.array.tobytes() == other.array.tobytes()

    def __hash__(self) -> int:
        return hash((len(self), *self[:8]))


def read(attribute: memoryview) -> tuple[int, LongList] | None:
    """Return a list, and where the run of its items begins, of a serialized attribute.

    Returns:
        ``None`` if it is not a name, a run of one of the lists, and a type of three bytes; or if
        there are too many different words.
    """
    begin, stop = 2 + attribute[1], len(attribute) - 3
    if attribute[0] != NAME or attribute[1] > 127 or begin >= stop:
        return None
    readers = {FLOATS: (FLOAT, _floats), INTS: (INT, _ints), STRINGS: (WORD, _words)}
    tag, reader = readers.get(attribute[-1], (0, None))
    if reader is None or attribute[begin] != tag:
        return None
    items = reader(attribute[begin:stop])
    return None if items is None else (begin, items)


def _floats(run: memoryview) -> LongList | None:
    if len(run) % 5:
        return None
    items = np.frombuffer(run, [("tag", np.uint8), ("value", "<f4")])
    return LongList(items["value"].copy()) if (items["tag"] == FLOAT).all() else None


def _ints(run: memoryview) -> LongList | None:
    """Read numbers of seven bits a byte, the lowest first, the last byte of each below 128."""
    data = np.frombuffer(run, np.uint8)
    if not len(data) % 2 and (data[::2] == INT).all() and data[1::2].max() < 128:
        return LongList(data[1::2].astype(np.int64))  # a byte each
    ends = np.flatnonzero(data < 128)
    if len(ends) % 2 or data[-1] >= 128:
        return None
    tags, ends = ends[::2], ends[1::2]
    sizes = ends - tags
    if tags[0] or (tags[1:] != ends[:-1] + 1).any() or (data[tags] != INT).any():
        return None
    if (longest := sizes.max()) > 10:
        return None
    values = data[ends].astype(np.uint64)
    for size in range(1, longest):
        longer = np.flatnonzero(sizes > size)
        more = data[ends[longer] - size] & 127
        values[longer] = values[longer] << np.uint64(7) | more
    return LongList(values.view(np.int64))


def _words(run: memoryview) -> LongList | None:
    """Read words by replacing each different one, with its tag and its length, by a number.

    A tag followed by a byte below ``CONTROL`` is a word's beginning and nothing else, as long as no
    word has such a byte: numbers are such bytes, so that a word around another is found out.
    """
    left, names = bytes(run), list[bytes]()
    while (place := left.find(WORD)) >= 0:
        word = left[place : place + 2 + left[place + 1]] if place + 1 < len(left) else b""
        if (
            len(names) == MAX_DISTINCT_WORDS
            or not 2 < len(word) == 2 + word[1] < 2 + CONTROL
            or min(word[2:]) < CONTROL
        ):
            return None
        left = left.replace(word, bytes([len(names)]))
        names.append(word)
    places = np.frombuffer(left, np.uint8)
    counts = np.bincount(places, minlength=len(names))
    if len(counts) > len(names) or counts @ [len(name) for name in names] != len(run):
        return None
    try:
        return LongList(places.copy(), [name[2:].decode() for name in names])
    except UnicodeDecodeError:
        return None
