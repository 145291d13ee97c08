"""ELF object files: the sections, symbols and relocations that a linker needs.

The format is that of the System V ABI's "Object files" chapter, of 64 bits and little-endian; LLVM
writes it when asked for machine code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

HEADER = np.dtype(
    [("ident", "S16"), ("type", "<u2"), ("machine", "<u2"), ("version", "<u4"), ("entry", "<u8"),
     ("segments", "<u8"), ("sections", "<u8"), ("flags", "<u4"), ("size", "<u2"),
     ("segment_size", "<u2"), ("segment_count", "<u2"), ("section_size", "<u2"),
     ("section_count", "<u2"), ("names", "<u2")]
)  # fmt: skip
SECTION = np.dtype(
    [("name", "<u4"), ("type", "<u4"), ("flags", "<u8"), ("address", "<u8"), ("offset", "<u8"),
     ("size", "<u8"), ("link", "<u4"), ("info", "<u4"), ("align", "<u8"), ("entry_size", "<u8")]
)  # fmt: skip
SYMBOL = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"),
     ("size", "<u8")]
)  # fmt: skip
RELOCATION = np.dtype([("offset", "<u8"), ("kind", "<u4"), ("symbol", "<u4"), ("addend", "<i8")])

IDENT = b"\x7fELF\x02\x01\x01"
SYMBOLS, WITH_ADDENDS, ZEROS, WITHOUT_ADDENDS = 2, 4, 8, 9
"""Types of sections."""
WRITTEN, ALLOCATED, THREAD_LOCAL = 1, 2, 1 << 10
"""Flags of sections."""
UNDEFINED, COMMON = 0, 0xFFF2
"""Numbers that are no section's: a symbol's of elsewhere, and one's that lies in none yet."""


class Unlinkable(ValueError):
    """An object has something that this package's linker does not know."""


@dataclass(frozen=True)
class Section:
    """A section of memory: its bytes, and the alignment that it needs."""

    name: str
    flags: int
    align: int
    content: bytes


@dataclass(frozen=True)
class Symbol:
    """A name, and where in which section it is; ``section`` is ``COMMON`` or ``UNDEFINED``, too.

    The ``value`` of a common symbol is its alignment.
    """

    name: str
    section: int
    value: int
    size: int


@dataclass(frozen=True)
class Relocation:
    """A place in a section where something about a symbol's address is to be written."""

    section: int
    offset: int
    kind: int
    symbol: int
    addend: int


@dataclass(frozen=True)
class Object:
    """An object file: ``sections`` by their number, of those that are loaded."""

    machine: int
    sections: dict[int, Section]
    symbols: tuple[Symbol, ...]
    relocations: tuple[Relocation, ...]


def read(content: bytes) -> Object:
    """Read an object file.

    Raises:
        Unlinkable: It is none of 64 bits, or has thread-local memory, or relocations lack addends.
    """
    if not content.startswith(IDENT):
        raise Unlinkable(f"expected an ELF object of 64 bits, found {content[:4]!r}")
    header = np.frombuffer(content, HEADER, 1)[0]
    table = _rows(content, SECTION, int(header["sections"]), int(header["section_count"]))
    names = table[int(header["names"])]
    sections: dict[int, Section] = {}
    for number, row in enumerate(table):
        name = _text(content, names, int(row["name"]))
        flags = int(row["flags"])
        # Nobody unwinds the stack through a kernel: exceptions do not pass there.
        if not flags & ALLOCATED or name == ".eh_frame":
            continue
        if flags & THREAD_LOCAL:
            raise Unlinkable(f"section {name} is thread-local")
        start, size = int(row["offset"]), int(row["size"])
        given = bytes(size) if row["type"] == ZEROS else content[start : start + size]
        sections[number] = Section(name, flags, max(1, int(row["align"])), given)
    symbols: list[Symbol] = []
    relocations: list[Relocation] = []
    for row in table:
        if row["type"] == SYMBOLS:
            symbols.extend(_symbols(content, row, table[int(row["link"])]))
        elif row["info"] in sections and row["type"] == WITHOUT_ADDENDS:
            raise Unlinkable("relocations have no addends")
        elif row["info"] in sections and row["type"] == WITH_ADDENDS:
            relocations.extend(_relocations(content, row))
    return Object(int(header["machine"]), sections, tuple(symbols), tuple(relocations))


def _rows(content: bytes, kind: np.dtype[Any], offset: int, count: int) -> Any:
    return np.frombuffer(content, kind, count, offset)


def _text(content: bytes, table: Any, offset: int) -> str:
    start = int(table["offset"]) + offset
    return content[start : content.index(b"\0", start)].decode()


def _symbols(content: bytes, row: Any, names: Any) -> list[Symbol]:
    rows = _rows(content, SYMBOL, int(row["offset"]), int(row["size"]) // SYMBOL.itemsize)
    return [
        Symbol(_text(content, names, int(name)), int(section), int(value), int(size))
        for name, _, _, section, value, size in rows
    ]


def _relocations(content: bytes, row: Any) -> list[Relocation]:
    count = int(row["size"]) // RELOCATION.itemsize
    rows = _rows(content, RELOCATION, int(row["offset"]), count)
    section = int(row["info"])
    return [Relocation(section, *(int(field) for field in each)) for each in rows]
