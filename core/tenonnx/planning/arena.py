"""One allocation for arrays that are not all needed at one time."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import NamedTuple


class Lifetime(NamedTuple):
    """Memory that is needed for a while.

    Attributes:
        nbytes: How much.
        first: The first moment at which it is needed.
        last: The last one.
    """

    nbytes: int
    first: int
    last: int


def pack(lifetimes: Sequence[Lifetime], alignment: int) -> tuple[list[int], int]:
    """Returns where in an arena each goes, and how many bytes the arena has.

    What is needed at one time is apart; the largest are placed first.

    Args:
        lifetimes: What goes there.
        alignment: Of each beginning, in bytes.
    """
    offsets = [0] * len(lifetimes)
    placed: list[tuple[int, int, int, int]] = []
    for i in sorted(range(len(lifetimes)), key=lambda i: -lifetimes[i].nbytes):
        size, first, last = lifetimes[i]
        at = 0
        for begin, end, since, until in placed:
            if since <= last and first <= until:
                if at + size <= begin:
                    break
                at = max(at, end)
        offsets[i] = at
        bisect.insort(placed, (at, at + -(-size // alignment) * alignment, first, last))
    return offsets, max((end for _, end, _, _ in placed), default=0)
