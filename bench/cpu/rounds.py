"""Two engines timed in turn, so that whatever else the machine does falls on both."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

PAUSE_SECONDS = 0.02
"""Between turns: onnxruntime's threads spin for a while after a run and would be timed, too."""


@dataclass(frozen=True)
class Times:
    """Seconds of one engine over all turns."""

    fastest: float
    median: float
    processor: float
    """Processor seconds per run."""


def alternate(
    runs: list[Callable[[], object]], seconds: float = 0.1, turns: int = 5
) -> tuple[list[Times], list[float]]:
    """Times callables in turn.

    Args:
        runs: What to time; each has run at least once before.
        seconds: How long each runs per turn.
        turns: How often it is its turn.

    Returns:
        Their times, and for each the median over turns of its fastest run in the turn to the
        first one's.
    """
    walls: list[list[list[float]]] = [[] for _ in runs]
    spent = [0.0] * len(runs)
    for turn in range(turns):
        for position in sorted(range(len(runs)), reverse=bool(turn % 2)):
            time.sleep(PAUSE_SECONDS)
            run = runs[position]
            taken: list[float] = []
            before, stop = _processor(), time.perf_counter() + seconds
            while not taken or time.perf_counter() < stop:
                start = time.perf_counter()
                run()
                taken.append(time.perf_counter() - start)
            spent[position] += _processor() - before
            walls[position].append(taken)
    times = []
    for position, all_taken in enumerate(walls):
        flat = [t for taken in all_taken for t in taken]
        times.append(Times(min(flat), statistics.median(flat), spent[position] / len(flat)))
    ratios = [
        statistics.median(min(own) / min(first) for own, first in zip(w, walls[0], strict=True))
        for w in walls
    ]
    return times, ratios


def _processor() -> float:
    used = os.times()
    return used.user + used.system
