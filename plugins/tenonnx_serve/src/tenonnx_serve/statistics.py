"""Statistics of a model's requests: how many, and the time of each stage."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from tenonnx_serve.counts import add

# A request's stages, by Triton's names: waiting, decoding and joining, the run, and splitting and
# encoding.
STAGES = ("queue", "compute_input", "compute_infer", "compute_output")

# The most batch sizes to tell apart, because clients choose them.
MOST_SIZES = 1024


@dataclass(slots=True)
class Duration:
    """A count, and a sum of nanoseconds."""

    count: int = 0
    ns: int = 0

    def add(self, ns: int) -> None:
        """Add one duration."""
        self.count += 1
        self.ns += ns

    def as_json(self) -> dict[str, int]:
        """Return the protocol's form."""
        return {"count": self.count, "ns": self.ns}


@dataclass(slots=True)
class Execution:
    """A run of one or several requests, in nanoseconds.

    Attributes:
        began: When a thread began it.
        joined: When its inputs were concatenated.
        ran: When its outputs were ready.
        requests: The number of its requests.
        rows: The number of their rows.
        busy: The thread's CPU time; 0 if it was not measured.
        counted: Whether one of the requests' observers has counted it; each request has one.
    """

    began: int
    joined: int
    ran: int
    requests: int
    rows: int
    busy: int = 0
    counted: bool = False


@dataclass(slots=True)
class Spent:
    """The times of a request, in nanoseconds; ``decoded`` and ``encoded`` are durations."""

    queue: int
    rows: int
    execution: Execution
    decoded: int = 0
    encoded: int = 0


@dataclass(slots=True)
class Batches:
    """Statistics of the runs of one batch size."""

    compute_input: Duration = field(default_factory=Duration)
    compute_infer: Duration = field(default_factory=Duration)
    compute_output: Duration = field(default_factory=Duration)


class Statistics:
    """Statistics of one version of a model, since it was loaded.

    Attributes:
        inferences: Rows of answered requests.
        executions: Runs.
        cancelled: Requests whose clients disconnected.
        last: When the last request was answered, in milliseconds since 1970.
    """

    def __init__(self) -> None:
        self.inferences = 0
        self.executions = 0
        self.cancelled = 0
        self.last = 0
        self.success = Duration()
        self.fail = Duration()
        self.stages = {stage: Duration() for stage in STAGES}
        self.batches: dict[int, Batches] = {}

    def ran(self, run: Execution, ended: int) -> None:
        """Count a run; its requests had its outputs at the given moment."""
        self.executions += 1
        batches = self.batches.get(run.rows)
        if batches is None:
            if len(self.batches) >= MOST_SIZES:
                return
            batches = self.batches[run.rows] = Batches()
        batches.compute_input.add(run.joined - run.began)
        batches.compute_infer.add(run.ran - run.joined)
        batches.compute_output.add(ended - run.ran)

    def succeeded(self, spent: Spent, ns: int) -> None:
        """Count a request that was answered, ``ns`` after it came."""
        run = spent.execution
        self.inferences += spent.rows
        self.last = time.time_ns() // 1_000_000
        self.success.add(ns)
        stages = self.stages
        stages["queue"].add(spent.queue)
        stages["compute_input"].add(spent.decoded + run.joined - run.began)
        stages["compute_infer"].add(run.ran - run.joined)
        stages["compute_output"].add(spent.encoded)

    def as_json(self, name: str, version: str) -> dict[str, Any]:
        """Return the protocol's form."""
        zero = Duration().as_json()
        return {
            "name": name,
            "version": version,
            "last_inference": self.last,
            "inference_count": self.inferences,
            "execution_count": self.executions,
            "inference_stats": {
                "success": self.success.as_json(),
                "fail": self.fail.as_json(),
                **{stage: duration.as_json() for stage, duration in self.stages.items()},
                "cache_hit": zero,
                "cache_miss": zero,
            },
            "batch_stats": [
                {
                    "batch_size": rows,
                    "compute_input": runs.compute_input.as_json(),
                    "compute_infer": runs.compute_infer.as_json(),
                    "compute_output": runs.compute_output.as_json(),
                }
                for rows, runs in sorted(self.batches.items())
            ],
        }


def summed(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Return the sum of the protocol's forms of a version from two processes."""
    sizes: dict[int, list[dict[str, Any]]] = {}
    for batch in (*one["batch_stats"], *other["batch_stats"]):
        sizes.setdefault(batch["batch_size"], []).append(batch)
    return {
        **one,
        "last_inference": max(one["last_inference"], other["last_inference"]),
        "inference_count": one["inference_count"] + other["inference_count"],
        "execution_count": one["execution_count"] + other["execution_count"],
        "inference_stats": _added([one["inference_stats"], other["inference_stats"]]),
        "batch_stats": [
            {**_added(found), "batch_size": size} for size, found in sorted(sizes.items())
        ],
    }


def _added(several: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the sums of durations by name."""
    total: dict[str, Any] = {}
    for told in several:
        durations = {name: found for name, found in told.items() if isinstance(found, dict)}
        add(total, durations)
    return total
