"""What a worker counts of its requests, per model and version, as plain numbers.

Metrics, the protocol's statistics and the page are made of sums of these over all workers, the dead
included (``tenonnx_serve.counters`` adds them up). A request costs about a microsecond here.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any, Final

SECONDS: Final = (
    0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
)  # fmt: skip
"""Upper bounds of what durations are counted by; what is longer is counted by none."""

ROWS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)
"""Upper bounds of what batches are counted by."""

STAGES: Final = ("request", "decode", "queue", "compute", "encode")
"""What a request goes through; the first is all of it."""


class Histogram:
    """Counts of values by size, and their sum.

    Args:
        bounds: The upper bounds of the sizes; one more size has no bound.
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
        """Returns the numbers."""
        return {"counts": list(self.counts), "total": self.total}


class ModelStatistics:
    """What was counted of one version of a model.

    Attributes:
        stages: Durations of requests that succeeded, in seconds.
        batches: Rows of each run.
        failures: Requests that did not, by the name of their error.
        failed_seconds: How long those took, together.
    """

    __slots__ = ("batches", "failed_seconds", "failures", "stages")

    def __init__(self) -> None:
        self.stages = {stage: Histogram(SECONDS) for stage in STAGES}
        self.batches = Histogram(ROWS)
        self.failures: dict[str, int] = {}
        self.failed_seconds = 0.0

    def succeeded(self, decode: float, queue: float, compute: float, encode: float) -> None:
        """Counts a request by the seconds that it spent in each stage."""
        stages = self.stages
        stages["request"].observe(decode + queue + compute + encode)
        stages["decode"].observe(decode)
        stages["queue"].observe(queue)
        stages["compute"].observe(compute)
        stages["encode"].observe(encode)

    def failed(self, why: str, seconds: float) -> None:
        """Counts a request that did not succeed."""
        self.failures[why] = self.failures.get(why, 0) + 1
        self.failed_seconds += seconds

    def ran(self, rows: int) -> None:
        """Counts a run of the model, of one request or of several."""
        self.batches.observe(rows)

    def snapshot(self) -> dict[str, Any]:
        """Returns the numbers."""
        return {
            "stages": {stage: found.snapshot() for stage, found in self.stages.items()},
            "batches": self.batches.snapshot(),
            "failures": dict(self.failures),
            "failed_seconds": self.failed_seconds,
        }


class Statistics:
    """What one worker has counted since it started."""

    def __init__(self) -> None:
        self._models: dict[tuple[str, str], ModelStatistics] = {}

    def of(self, name: str, version: str) -> ModelStatistics:
        """Returns what is counted of a version of a model; the same after a reload."""
        found = self._models.get((name, version))
        if found is None:
            found = self._models[name, version] = ModelStatistics()
        return found

    def snapshot(self) -> dict[str, Any]:
        """Returns the numbers by model and version."""
        models: dict[str, Any] = {}
        for (name, version), found in self._models.items():
            models.setdefault(name, {})[version] = found.snapshot()
        return {"models": models}
