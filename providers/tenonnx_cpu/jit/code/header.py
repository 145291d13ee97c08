"""The header of a code object: where everything is. Nothing of it is believed unchecked."""

from __future__ import annotations

import itertools
import mmap
import struct
from collections.abc import Sequence
from typing import NamedTuple

from tenonnx_cpu.jit.code.code_object import Damaged

COUNTS = struct.Struct("<QIIIIII")
"""Bytes of code; exports, words inside, symbols outside, words of these, needs; bytes of names."""
WORD_BYTES = 8


class Header(NamedTuple):
    """Instructions for loading a code object. Offsets count from the code's beginning.

    Attributes:
        code: Bytes of code: whole pages. Data follows.
        exports: Symbols that others may find, and where they are.
        inside: Where in the data there is an offset that is to become an address.
        outside: Symbols of elsewhere, and where in the data their addresses are to be.
        needs: Names of the code objects that define some of them.
    """

    code: int
    exports: dict[str, int]
    inside: tuple[int, ...]
    outside: dict[str, tuple[int, ...]]
    needs: tuple[str, ...]

    def pack(self) -> bytes:
        """Return the header as it lies in a file."""
        names = "\n".join((*self.exports, *self.outside, *self.needs)).encode("ascii")
        words = tuple(itertools.chain.from_iterable(self.outside.values()))
        lists: Sequence[Sequence[int]] = (
            tuple(self.exports.values()),
            self.inside,
            tuple(map(len, self.outside.values())),
            words,
        )
        numbers = tuple(itertools.chain.from_iterable(lists))
        counts = (*map(len, lists), len(self.needs), len(names))
        return COUNTS.pack(self.code, *counts) + struct.pack(f"<{len(numbers)}I", *numbers) + names


def unpack(content: memoryview, size: int) -> Header:
    """Read a header.

    Args:
        content: It, and zeros to the end of a page.
        size: Bytes of code and data that the file has.

    Raises:
        Damaged: It says what cannot be.
    """
    try:
        code, *counts = COUNTS.unpack_from(content)
        *sizes, needed, length = counts
        numbers = struct.unpack_from(f"<{sum(sizes)}I", content, COUNTS.size)
        start = COUNTS.size + 4 * len(numbers)
        names = bytes(content[start : start + length]).decode("ascii").split("\n")
    except (struct.error, UnicodeDecodeError, MemoryError) as error:
        raise Damaged(str(error)) from None
    exported, inner, symbols, outer = sizes
    first, second, third = exported, exported + inner, exported + inner + symbols
    offsets, inside = numbers[:first], numbers[first:second]
    repeats, words = numbers[second:third], numbers[third:]
    needs = names[exported + symbols :]
    if (
        len(names) != max(1, exported + symbols + needed)
        or len(set(names)) != len(names)
        or sum(repeats) != outer
        or not 0 < code <= size
        or code % mmap.PAGESIZE
        or max(offsets, default=0) >= size
        or min((*inside, *words), default=code) < code
        or max((*inside, *words), default=0) > size - WORD_BYTES
        or any("/" in name for name in needs)
    ):
        raise Damaged("the header says what cannot be")
    outside, place = {}, 0
    for name, count in zip(names[exported:], repeats, strict=False):
        outside[name] = words[place : place + count]
        place += count
    exports = dict(zip(names, offsets, strict=False))
    return Header(code, exports, inside, outside, tuple(needs) if needed else ())
