"""One allocation for arrays that are not all needed at one time."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
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
    """Return where in an arena each goes, and how many bytes the arena has.

    Blocks that are used at the same time do not overlap; the largest are placed first.

    Args:
        lifetimes: Its blocks.
        alignment: Of each beginning, in bytes.
    """
    offsets = [0] * len(lifetimes)
    moments = max((each.last for each in lifetimes), default=-1) + 1
    used: list[list[tuple[int, int]]] = [[] for _ in range(moments)]
    nbytes = 0
    # Small blocks fit into the gaps between large ones, hardly ever the other way round.
    for i in sorted(range(len(lifetimes)), key=lambda i: -lifetimes[i].nbytes):
        size, first, last = lifetimes[i]
        during = used[first : last + 1]
        at = 0
        # A block that lasts for several of these moments is listed at each of them.
        for begin, end in sorted({block for blocks in during for block in blocks}):
            if at + size <= begin:
                break
            at = max(at, end)
        offsets[i], end = at, at + -(-size // alignment) * alignment
        nbytes = max(nbytes, end)
        for blocks in during:
            blocks.append((at, end))
    return offsets, nbytes


def moments_of(used: Iterable[Iterable[int]]) -> dict[int, tuple[int, int]]:
    """Return the first and the last launch that reads or writes each result.

    Args:
        used: The results of each launch, in order.
    """
    moments: dict[int, tuple[int, int]] = {}
    for moment, some in enumerate(used):
        for n in some:
            moments[n] = moments.get(n, (moment,))[0], moment
    return moments


def assign(
    sizes: Sequence[int],
    moments: Mapping[int, tuple[int, int]],
    kept: Collection[int],
    alignment: int,
) -> tuple[dict[int, tuple[int, int]], int]:
    """Return where the results of launches go, and how many bytes the arena has.

    Those that are kept have an allocation each, in their order; an arena behind them has the others
    that launches use, as long as they do. A place is an allocation and bytes from its beginning.

    Args:
        sizes: Of the results, in bytes.
        moments: The first and the last launch that reads or writes each result.
        kept: The results that are needed afterwards.
        alignment: Of each beginning, in bytes.
    """
    inner = [n for n in moments if n not in kept]
    offsets, nbytes = pack([Lifetime(sizes[n], *moments[n]) for n in inner], alignment)
    places = {n: (i, 0) for i, n in enumerate(sorted(kept))}
    places |= {n: (len(kept), offset) for n, offset in zip(inner, offsets, strict=True)}
    return places, nbytes
