"""A worker's counts of its requests, as plain numbers, and sums over workers.

Metrics and the page use sums over all workers, the dead included. A snapshot has dictionaries,
lists and numbers, as JSON. A request costs about a microsecond here.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import Any, Final

SECONDS: Final = (
    0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
)  # fmt: skip
"""Upper bounds of the durations' histogram; the last bucket has no bound."""

ROWS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)
"""Upper bounds of the histogram of batch sizes."""

STAGES: Final = ("request", "decode", "queue", "compute", "encode")
"""The stages of a request; the first is all of it."""


def add(total: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Adds a snapshot to a total in place, entry by entry of the same name."""
    for name, value in more.items():
        if isinstance(value, Mapping):
            add(total.setdefault(name, {}), value)
        elif isinstance(value, list):
            before = total.get(name, [0] * len(value))
            total[name] = [a + b for a, b in zip(before, value, strict=True)]
        else:
            total[name] = total.get(name, 0) + value


def summed(collected: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the sum over all workers, those that died included."""
    total: dict[str, Any] = {}
    add(total, collected["retired"])
    for worker in collected["workers"]:
        add(total, worker.get("counted", {}))
    return total


class Histogram:
    """A histogram: counts of values by size, and their sum.

    Args:
        bounds: The buckets' upper bounds; one more bucket has no bound.
    """

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total: float = 0.0

    def observe(self, value: float) -> None:
        """Counts a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def snapshot(self) -> dict[str, Any]:
        """Returns the histogram's numbers."""
        return {"counts": list(self.counts), "total": self.total}


class ModelCounts:
    """The counts of one version of a model.

    Attributes:
        stages: Durations of answered requests, in seconds.
        batches: Rows of each run.
        failed: Requests that failed.
    """

    __slots__ = ("batches", "failed", "stages")

    def __init__(self) -> None:
        self.stages = {stage: Histogram(SECONDS) for stage in STAGES}
        self.batches = Histogram(ROWS)
        self.failed = 0

    def snapshot(self) -> dict[str, Any]:
        """Returns the numbers."""
        return {
            "stages": {stage: found.snapshot() for stage, found in self.stages.items()},
            "batches": self.batches.snapshot(),
            "failed": self.failed,
        }


class Counts:
    """One worker's counts since it started."""

    def __init__(self) -> None:
        self._models: dict[tuple[str, str], ModelCounts] = {}

    def of(self, name: str, version: str) -> ModelCounts:
        """Returns the counts of a model's version; the same after a reload."""
        found = self._models.get((name, version))
        if found is None:
            found = self._models[name, version] = ModelCounts()
        return found

    def snapshot(self) -> dict[str, Any]:
        """Returns the numbers by model and version."""
        models: dict[str, Any] = {}
        for (name, version), found in self._models.items():
            models.setdefault(name, {})[version] = found.snapshot()
        return {"models": models}
