"""Orders of long rows, sorted in parts between which a run can be stopped."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tenonnx.interruption import check, pieces
from tenonnx.operators import Array

LONGEST = 1 << 18
"""Elements that are sorted at once, if few are equal."""

OBJECTS = 1 << 14
"""Strings that are."""

SAMPLED = 32
"""Elements of the sample for each part: none is much longer than the others."""


def stable_order(keys: Array, count: int | None = None) -> Array:
    """Returns where the least keys of a row are, in order; equal ones as they stand.

    A sorted sample cuts the keys into those below, at and above its elements (Frazer and McKellar,
    Samplesort, 1970): those at one are all equal, the others are sorted.

    Args:
        keys: One row, of a dtype that numpy sorts; NaN is the greatest.
        count: How many are wanted; all by default.
    """
    count = len(keys) if count is None else count
    longest = OBJECTS if keys.dtype == object else LONGEST
    if len(keys) <= longest or _in_runs(keys):
        return np.argsort(keys, kind="stable")[:count]
    order, filled = np.empty(count, np.intp), 0
    for own, equal in _parts(keys, longest):
        check()
        if not equal:
            own = own[np.argsort(keys[own], kind="stable")]
        own = own[: count - filled]
        order[filled : filled + len(own)] = own
        filled += len(own)
        if filled == count:
            break
    return order


def _in_runs(keys: Array) -> bool:
    """Says whether numpy is soon done with a row, whose order changes hardly anywhere."""
    if keys.dtype.kind in "biu" and keys.itemsize <= 2:  # it sorts these by their digits
        return True
    before, after = keys[:-1], keys[1:]
    some = pieces(len(before), len(before), LONGEST)
    rises = sum(int(np.count_nonzero(before[each] <= after[each])) for each in some)
    return min(rises, len(before) - rises) <= len(keys) // LONGEST


def _parts(keys: Array, longest: int) -> Iterator[tuple[Array, bool]]:
    """Yields the places of keys of rising ranges, and whether they are all equal."""
    parts = 2 * -(-len(keys) // longest)
    sample = np.sort(keys[:: max(1, len(keys) // (SAMPLED * parts))])
    cuts = np.unique(sample[SAMPLED // 2 :: SAMPLED])
    edges, where, ends = np.append(cuts, cuts[-1]), [], []
    for some in pieces(len(keys), len(keys), longest):
        part = keys[some]
        number = np.searchsorted(cuts, part)
        number += number + (edges[number] == part)
        number = number.astype(np.uint16 if len(cuts) < 1 << 15 else np.uint32)
        where.append(np.argsort(number, kind="stable") + some.start)
        ends.append(np.cumsum(np.bincount(number, minlength=2 * len(cuts) + 1)))
    for i in range(2 * len(cuts) + 1):
        starts = [end[i - 1] if i else 0 for end in ends]
        found = [at[s : end[i]] for at, s, end in zip(where, starts, ends, strict=True)]
        yield np.concatenate(found), bool(i % 2)
