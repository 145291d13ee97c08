"""Requests that wait together become one run: their rows one after another, and apart again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tenonnx import InferenceSession

Array = np.ndarray[Any, np.dtype[Any]]
Feeds = Mapping[str, Array]
Answer = dict[str, Array]
Joined = list[Answer | Exception]
"""What each request gets: its outputs, or what went wrong with it alone."""


async def answers(session: InferenceSession, requests: Sequence[Feeds]) -> Joined:
    """Runs requests whose arrays differ in nothing but the number of rows together.

    Where that fails, or outputs have not the rows of the inputs, each runs for itself.
    """
    alike = defaultdict(list)
    for i, feeds in enumerate(requests):
        alike[_signature(feeds) or i].append(i)
    found: dict[int, Answer | Exception] = {}
    for places in alike.values():
        group = [requests[i] for i in places]
        parts = await _together(session, group) if len(group) > 1 else None
        parts = parts or [await _alone(session, feeds) for feeds in group]
        found |= zip(places, parts, strict=True)
    return [found[i] for i in range(len(requests))]


async def run(session: InferenceSession, feeds: Feeds) -> Answer:
    """Runs one request in a thread; if who waits is cancelled, so is the run."""
    names = [arg.name for arg in session.get_outputs()]
    return dict(zip(names, await session.run_async(None, feeds), strict=True))


def _signature(feeds: Feeds) -> tuple[Any, ...] | None:
    """Returns what requests must share to run together; ``None`` for one that runs alone."""
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


async def _together(session: InferenceSession, group: Sequence[Feeds]) -> Joined | None:
    """Returns each one's outputs; ``None`` if they cannot be told apart."""
    sizes = [len(next(iter(feeds.values()))) for feeds in group]
    try:
        joined = {name: np.concatenate([feeds[name] for feeds in group]) for name in group[0]}
        outputs = await run(session, joined)
    except Exception:  # one of them may be wrong: each learns for itself
        return None
    rows = sum(sizes)
    if any(
        not isinstance(each, np.ndarray) or each.shape[:1] != (rows,) for each in outputs.values()
    ):
        return None
    ends = np.cumsum(sizes)[:-1]
    pieces = {name: np.split(output, ends) for name, output in outputs.items()}
    return [{name: parts[i] for name, parts in pieces.items()} for i in range(len(group))]
