"""Joins waiting requests into one run by rows, and splits the outputs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tenonnx import InferenceSession

Array = np.ndarray[Any, np.dtype[Any]]
Feeds = Mapping[str, Array]
Answer = dict[str, Array]
# A request's result: its outputs, or its own error.
Joined = list[Answer | Exception]


async def answers(session: InferenceSession, requests: Sequence[Feeds]) -> Joined:
    """Run requests together whose arrays differ only in the number of rows.

    If that fails, or the outputs' rows are not the inputs', each request runs alone.
    """
    alike = defaultdict(list)
    for i, feeds in enumerate(requests):
        alike[_signature(feeds) or i].append(i)
    found: dict[int, Answer | Exception] = {}
    for places in alike.values():
        group = [requests[i] for i in places]
        parts = await _run_joined(session, group) if len(group) > 1 else None
        parts = parts or [await _alone(session, feeds) for feeds in group]
        found |= zip(places, parts, strict=True)
    return [found[i] for i in range(len(requests))]


async def run(session: InferenceSession, feeds: Feeds) -> Answer:
    """Run one request in a thread; cancelling the caller cancels the run."""
    names = [arg.name for arg in session.get_outputs()]
    return dict(zip(names, await session.run_async(None, feeds), strict=True))


def _signature(feeds: Feeds) -> tuple[Any, ...] | None:
    """Return the key that is equal for requests that run together; ``None`` to run alone."""
    arrays = [feeds[name] for name in sorted(feeds)]
    if not all(isinstance(array, np.ndarray) and array.ndim for array in arrays):
        return None
    if len({len(array) for array in arrays}) != 1:
        return None
    return tuple((name, feeds[name].dtype, feeds[name].shape[1:]) for name in sorted(feeds))


async def _alone(session: InferenceSession, feeds: Feeds) -> Answer | Exception:
    try:
        return await run(session, feeds)
    except Exception as error:
        return error


async def _run_joined(session: InferenceSession, group: Sequence[Feeds]) -> Joined | None:
    """Return each request's outputs; ``None`` if they cannot be split."""
    sizes = [len(next(iter(feeds.values()))) for feeds in group]
    try:
        joined = {name: np.concatenate([feeds[name] for feeds in group]) for name in group[0]}
        outputs = await run(session, joined)
    except Exception:  # one request may be wrong: each then runs alone
        return None
    rows = sum(sizes)
    if any(
        not isinstance(each, np.ndarray) or each.shape[:1] != (rows,) for each in outputs.values()
    ):
        return None
    ends = np.cumsum(sizes)[:-1]
    pieces = {name: np.split(output, ends) for name, output in outputs.items()}
    return [{name: parts[i] for name, parts in pieces.items()} for i in range(len(group))]
