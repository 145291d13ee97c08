"""Capacity on the page of results: how much fits, and how soon it is ready."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.page.figures import Figure

Result = Mapping[str, Any]


def read(path: Path) -> list[Figure]:
    """Return the figures of a file of results."""
    told = json.loads(path.read_text("utf-8"))
    return [*_replicas(told["replicas"]), *_starts(told["starts"]), *_ray(told.get("ray", []))]


def _replicas(rows: Sequence[Result]) -> Iterator[Figure]:
    for row in rows:
        kind = f"replicas in {row['gib']} GiB, {row['models']}"
        ratio = row["copied"] / row["mapped"]
        told = str(row["mapped"]), f"{row['copied']}, copied"
        yield Figure("replicas", row["server"], kind, *told, ratio, against="copied weights")


def _starts(rows: Sequence[Result]) -> Iterator[Figure]:
    for row in rows:
        label = f"{row['nodes']} nodes of {row['each']} replicas, a model of 1 GB"
        told = f"{row['once']:.1f} s", f"{row['apart']:.1f} s, each for itself"
        ratio = row["once"] / row["apart"]
        kind = "until all are ready"
        yield Figure("starts", label, kind, *told, ratio, against="a fetch per replica")


def _ray(rows: Sequence[Result]) -> Iterator[Figure]:
    """Yield what was measured, beside the simulation: neither is better than the other."""
    for row in rows:
        told = (_shown(row["measured"]), f"{_shown(row['simulated'])} simulated")
        yield Figure("ray", "two local nodes of Ray", row["what"], *told)


def _shown(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
