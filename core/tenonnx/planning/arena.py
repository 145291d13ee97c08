"""One allocation for arrays that are not all needed at one time."""

from __future__ import annotations

import bisect
from collections.abc import Collection, Iterable, Sequence

from tenonnx.records import NamedTuple


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

    Blocks that are used at the same time do not overlap; the largest are placed first.

    Args:
        lifetimes: Its blocks.
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


def assign(
    sizes: Sequence[int], used: Iterable[Iterable[int]], kept: Collection[int], alignment: int
) -> tuple[dict[int, tuple[int, int]], int]:
    """Returns where the results of launches go, and how many bytes the arena has.

    Those that are kept have an allocation each, in their order; an arena behind them has the others
    that launches use, as long as they do. A place is an allocation and bytes from its beginning.

    Args:
        sizes: Of the results, in bytes.
        used: The results that each launch reads or writes, in order.
        kept: The results that are needed afterwards.
        alignment: Of each beginning, in bytes.
    """
    when: dict[int, list[int]] = {}
    for moment, some in enumerate(used):
        for n in some:
            when.setdefault(n, []).append(moment)
    inner = [n for n in when if n not in kept]
    lifetimes = [Lifetime(sizes[n], when[n][0], when[n][-1]) for n in inner]
    offsets, nbytes = pack(lifetimes, alignment)
    places = {n: (i, 0) for i, n in enumerate(sorted(kept))}
    places |= {n: (len(kept), offset) for n, offset in zip(inner, offsets, strict=True)}
    return places, nbytes
