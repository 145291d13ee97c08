"""Tables that fit the terminal: cells break between words, never within one that has room.

A table that does not fit takes these steps until it does: columns of text become narrower, as far
as that reads well; columns that the caller can spare are left out; columns of text become as narrow
as their longest word; every row becomes a block with a line per column.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len, chop_cells

# Columns between two columns; one where that is all the room there is.
GAP_COLUMNS: Final = 2

# Columns that a column of text has before anything is left out, and a word before it is broken.
MIN_TEXT_COLUMNS: Final = 28

# A cell's pieces: spaces, or what ends where a path or a name may be broken.
PIECES: Final = re.compile(r"\s+|[^\s/.,_:;=(\[+]*[/.,_:;=(\[+]*")


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        name: Its heading.
        cells: Its cells, of one line each.
        right: It is aligned right, and never broken.
        spare: It may be left out; of several, the one with the greatest number is first.
    """

    name: str
    cells: tuple[str, ...]
    right: bool = False
    spare: int = 0

    @property
    def width(self) -> int:
        """Columns of the terminal that it takes without a break."""
        return max(map(cell_len, (self.name, *self.cells)))

    @property
    def readable(self) -> int:
        """Columns of the terminal that it takes before others are left out."""
        return self.width if self.right else max(self.least, min(self.width, MIN_TEXT_COLUMNS))

    @property
    def least(self) -> int:
        """Columns of the terminal that it takes at least."""
        if self.right:
            return self.width
        pieces = (cell_len(piece) for cell in self.cells for piece in PIECES.findall(cell))
        return max(cell_len(self.name), min(MIN_TEXT_COLUMNS, max(pieces, default=0)))


def columns(
    header: Sequence[str],
    rows: Sequence[Sequence[object]],
    right: Collection[str] = (),
    spare: Sequence[str] = (),
) -> list[Column]:
    """Return a table's columns; ``None`` in a row is shown as nothing."""
    texts = [[" ".join(str("" if c is None else c).splitlines()) for c in row] for row in rows]
    order = {name: number for number, name in enumerate(spare, 1)}
    return [
        Column(name, tuple(row[at] for row in texts), name in right, order.get(name, 0))
        for at, name in enumerate(header)
    ]


def fitted(table: Sequence[Column], width: int) -> tuple[list[str], list[str]]:
    """Return a table's lines, the heading first, and the names of columns that are left out."""
    kept, left_out = list(table), []
    for column in sorted(table, key=lambda column: -column.spare):
        if column.spare and _total(kept, "readable") > width:
            kept.remove(column)
            left_out.append(column.name)
    gap = GAP_COLUMNS if _total(kept, "least") <= width else 1
    if _total(kept, "least", gap) > width:
        return _blocks(table, width), []
    sizes = _sizes(kept, width, gap)
    lines = _row([c.name for c in kept], kept, sizes, gap)
    for cells in zip(*(column.cells for column in kept), strict=True):
        lines += _row(cells, kept, sizes, gap)
    return lines, left_out[::-1]


def _total(table: Sequence[Column], size: str, gap: int = GAP_COLUMNS) -> int:
    sizes: list[int] = [getattr(column, size) for column in table]
    return sum(sizes) + gap * (len(table) - 1)


def _sizes(table: Sequence[Column], width: int, gap: int) -> list[int]:
    """Take from the widest column of text until all fit."""
    sizes = [column.width for column in table]
    least = [column.least for column in table]
    excess = _total(table, "width", gap) - width
    while excess > 0:
        room = [size - low for size, low in zip(sizes, least, strict=True)]
        at = max(range(len(sizes)), key=lambda i: (room[i] > 0, sizes[i]))
        others = [sizes[i] for i in range(len(sizes)) if room[i] > 0 and i != at]
        less = min(excess, room[at], max(1, sizes[at] - max(others, default=0)))
        sizes[at] -= less
        excess -= less
    return sizes


def _row(
    cells: Sequence[str], table: Sequence[Column], sizes: Sequence[int], gap: int
) -> list[str]:
    """Return a row's lines."""
    broken = [wrapped(cell, size) for cell, size in zip(cells, sizes, strict=True)]
    lines = []
    for number in range(max(map(len, broken))):
        parts = []
        for texts, column, size in zip(broken, table, sizes, strict=True):
            text = texts[number] if number < len(texts) else ""
            room = " " * (size - cell_len(text))
            parts.append(room + text if column.right else text + room)
        lines.append((" " * gap).join(parts).rstrip())
    return lines


def _blocks(table: Sequence[Column], width: int) -> list[str]:
    """Return a block per row, its first cell above the others with their names."""
    first, *others = table
    names = max(cell_len(column.name) for column in others) if others else 0
    lines = []
    for row, title in enumerate(first.cells):
        lines += wrapped(title, width)
        for column in others:
            if not column.cells[row]:
                continue
            label = f"  {column.name}".ljust(names + 2)
            for text in wrapped(
                column.cells[row], max(width - names - 2 - GAP_COLUMNS, MIN_TEXT_COLUMNS)
            ):
                lines.append(f"{label}{' ' * GAP_COLUMNS}{text}".rstrip())
                label = " " * (names + 2)
    return lines


def wrapped(text: str, width: int) -> list[str]:
    """Return a text's lines of at most some columns, broken between words where possible."""
    if cell_len(text) <= width:
        return [text]
    lines, line = [], " " * min(len(text) - len(text.lstrip()), width // 2)
    for piece in _pieces(text, width):
        if line.strip() and cell_len(line + piece.rstrip()) > width:
            lines.append(line.rstrip())
            line = ""
        line += piece
    return [*lines, line.rstrip()]


def _pieces(text: str, width: int) -> list[str]:
    """Return words with what is between them; long ones in pieces, at last by force."""
    found = []
    for word in re.findall(r"\S+\s*", text):
        if cell_len(word.strip()) <= width:
            found.append(word)
            continue
        for piece in filter(None, PIECES.findall(word)):
            found += chop_cells(piece, width) if cell_len(piece) > width else [piece]
    return found
