"""A worker's counts of its requests, as plain numbers, and sums over workers.

Metrics and the page use sums over all workers, the dead included. A snapshot has dictionaries,
lists and numbers, as JSON. A request costs about a microsecond here.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import Any, Final

# Upper bounds of the durations' histogram; the last bucket has no bound.
SECONDS: Final = (
    0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
)  # fmt: skip

# Upper bounds of the histogram of batch sizes.
BATCH_BOUNDS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)

# The stages of a request; the first is all of it.
STAGES: Final = ("request", "decode", "queue", "compute", "encode")


def add(total: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Add a snapshot to a total in place, entry by entry of the same name."""
    for name, value in more.items():
        if isinstance(value, Mapping):
            add(total.setdefault(name, {}), value)
        elif isinstance(value, list):
            before = total.get(name, [0] * len(value))
            total[name] = [a + b for a, b in zip(before, value, strict=True)]
        else:
            total[name] = total.get(name, 0) + value


def summed(collected: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sum over all workers, those that died included."""
    total: dict[str, Any] = {}
    add(total, collected["retired"])
    for worker in collected["workers"]:
        add(total, worker.get("counted", {}))
    return total


def buckets(
    bounds: tuple[float, ...], histogram: Mapping[str, Any]
) -> tuple[list[tuple[str, float]], float]:
    """Return a histogram in Prometheus' form: each count includes all smaller values."""
    buckets, so_far = [], 0
    for bound, count in zip((*map(str, bounds), "+Inf"), histogram["counts"], strict=True):
        so_far += count
        buckets.append((bound, float(so_far)))
    return buckets, histogram["total"]


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
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def snapshot(self) -> dict[str, Any]:
        """Return the histogram's numbers."""
        return {"counts": list(self.counts), "total": self.total}


# The durations of a text: until its first token, between two tokens, until it has a slot of the
# caches, and all of it.
TEXT_SECONDS: Final = ("first_token", "token", "queue", "whole")

# The kinds of tokens that are counted.
TEXT_TOKENS: Final = ("prompt", "cached", "generated", "drafted", "accepted")

# The ways in which texts end, by vLLM's words.
FINISHED: Final = ("stop", "length", "abort")


class TextCounts:
    """The counts of the texts of a language model.

    Attributes:
        seconds: Histograms of durations.
        tokens: Of prompts, of these those whose caches were there, and generated ones; drafted
            ones, and of these those that came.
        finished: Texts by the way in which they ended.
    """

    __slots__ = ("finished", "seconds", "tokens")

    def __init__(self) -> None:
        self.seconds = {name: Histogram(SECONDS) for name in TEXT_SECONDS}
        self.tokens = dict.fromkeys(TEXT_TOKENS, 0)
        self.finished = dict.fromkeys(FINISHED, 0)

    def snapshot(self) -> dict[str, Any]:
        """Return the numbers."""
        return {
            "seconds": {name: found.snapshot() for name, found in self.seconds.items()},
            "tokens": dict(self.tokens),
            "finished": dict(self.finished),
        }


class ModelCounts:
    """The counts of one version of a model.

    Attributes:
        stages: Durations of answered requests, in seconds.
        batches: Rows of each run.
        failed: Requests that failed.
        texts: Of a language model, its texts.
    """

    __slots__ = ("batches", "failed", "stages", "texts")

    def __init__(self) -> None:
        self.stages = {stage: Histogram(SECONDS) for stage in STAGES}
        self.batches = Histogram(BATCH_BOUNDS)
        self.failed = 0
        self.texts: TextCounts | None = None

    def snapshot(self) -> dict[str, Any]:
        """Return the numbers."""
        texts = {} if self.texts is None else {"texts": self.texts.snapshot()}
        return texts | {
            "stages": {stage: found.snapshot() for stage, found in self.stages.items()},
            "batches": self.batches.snapshot(),
            "failed": self.failed,
        }


class Counts:
    """One worker's counts since it started."""

    def __init__(self) -> None:
        self._models: dict[tuple[str, str], ModelCounts] = {}

    def of(self, name: str, version: str) -> ModelCounts:
        """Return the counts of a model's version; the same after a reload."""
        found = self._models.get((name, version))
        if found is None:
            found = self._models[name, version] = ModelCounts()
        return found

    def texts_of(self, name: str, version: str) -> TextCounts:
        """Return the counts of the texts of a language model; the same after a reload."""
        found = self.of(name, version)
        found.texts = found.texts or TextCounts()
        return found.texts

    def snapshot(self) -> dict[str, Any]:
        """Return the numbers by model and version."""
        models: dict[str, Any] = {}
        for (name, version), found in self._models.items():
            models.setdefault(name, {})[version] = found.snapshot()
        return {"models": models}
