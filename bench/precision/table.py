"""Errors as a table in Markdown and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from bench.precision.measure import ENGINES, Row

# By how many ulp the largest error may exceed onnxruntime's on the same inputs.
ALLOWANCE = 0.25

PEER = "onnxruntime"
MINE = [engine for engine in ENGINES if engine != PEER]
TITLES = [
    "operator",
    "dtype",
    *(f"{engine} {what}" for engine in ENGINES for what in ("max", "mean")),
]
TITLES += ["worse by", "on"]


def excess(mine: Row, peer: Row) -> tuple[float, str]:
    """Return by how much an engine's largest error exceeds the peer's, and on which inputs.

    It is zero or less where it does not, or where there is no peer.
    """
    found = [
        (errors.largest - peer.errors[kind].largest, kind)
        for kind, errors in mine.errors.items()
        if kind in peer.errors
    ]
    return max(found, default=(0.0, ""))


def groups(rows: Sequence[Row]) -> list[dict[str, Row]]:
    """Return for each case and dtype what every engine's errors are."""
    return [
        {row.engine: row for row in group}
        for _, group in groupby(rows, key=lambda row: (row.case, row.dtype))
    ]


def worst(group: dict[str, Row]) -> tuple[float, str]:
    """Return by how much one of ours is worse than onnxruntime, and on which inputs."""
    return max(excess(group[engine], group[PEER]) for engine in MINE)


def marked(rows: Sequence[Row]) -> list[dict[str, Row]]:
    """Return the cases on which one of ours is worse than what is allowed."""
    return [group for group in groups(rows) if worst(group)[0] > ALLOWANCE]


def as_markdown(rows: Sequence[Row]) -> str:
    """Return the table, worse ones in bold, and a line that sums it up."""
    lines = [
        f"| {' | '.join(TITLES)} |",
        "| --- | --- |" + " ---: |" * (2 * len(ENGINES) + 1) + " --- |",
    ]
    for group in groups(rows):
        first = group[PEER]
        cells = [first.case, first.dtype]
        for engine in ENGINES:
            cells += [_number(group[engine].largest), _number(group[engine].mean)]
        more, kind = worst(group)
        if more > ALLOWANCE:
            cells += [f"**{_number(more)}**", kind]
        else:
            cells += ["", ""]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", summary(rows)]) + "\n"


def summary(rows: Sequence[Row]) -> str:
    """Return how many rows there are, and how many are marked."""
    every = groups(rows)
    both = [group for group in every if group[PEER].errors]
    return (
        f"{len(every)} rows, {len(both)} of which onnxruntime runs; in {len(marked(rows))} an "
        f"answer of ours is off by more than its largest error and {ALLOWANCE} ulp."
    )


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.2f}" if value < 1000 else f"{value:.1e}"


def save(rows: Sequence[Row], path: Path, about: dict[str, Any]) -> None:
    """Write JSON to a path, and Markdown beside it."""
    content = {"machine": about, "rows": [row.rounded() for row in rows]}
    path.write_text(json.dumps(content, ensure_ascii=False) + "\n", "utf-8")
    path.with_suffix(".md").write_text(as_markdown(rows), "utf-8")


def read(path: Path) -> list[Row]:
    """Return rows that were saved, if any."""
    if not path.exists():
        return []
    return [Row.of(each) for each in json.loads(path.read_text("utf-8"))["rows"]]
