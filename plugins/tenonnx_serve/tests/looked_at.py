"""Counts of two workers, with names that need escapes in a page or a metric."""

from __future__ import annotations

import time
from typing import Any

from tenonnx_serve.counts import Counts

HOSTILE = "<script>alert(1)</script>\"'\n\\&amp;"


def counted(requests: int) -> dict[str, Any]:
    """Return a worker's snapshot after so many requests of 3 ms to each of two models."""
    counts = Counts()
    for name in ("plain", HOSTILE):
        found = counts.of(name, "1")
        for _ in range(requests):
            for stage, seconds in (("request", 0.003), ("queue", 0.0004), ("compute", 0.002)):
                found.stages[stage].observe(seconds)
            found.batches.observe(4)
        found.failed += 1
    return counts.snapshot()


def collected() -> dict[str, Any]:
    """Return what a supervisor of two workers, one of which died before, collects."""
    memory = {"private": 50 << 20, "mapped": 200 << 20, "pss": 90 << 20}
    workers = [
        {
            "number": number,
            "pid": 1000 + number,
            "serving": number == 0,
            "memory": memory,
            "counted": counted(10),
            "now": {"in_flight": 2},
        }
        for number in range(2)
    ]
    return {
        "started": time.time() - 3700,
        "deaths": 1,
        "wanted": 2,
        "retired": counted(5),
        "workers": workers,
    }


MODELS = [
    {"name": "plain", "version": "1", "state": "READY"},
    {"name": HOSTILE, "version": "1", "state": "READY"},
    {"name": "a" * 200, "state": "UNAVAILABLE", "reason": "<b>it</b> is damaged"},
]
