"""The outcomes as JSON, as a table in Markdown and as a picture of ratios."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from bench.cpu.compare import PEER_LIMIT, Outcome
from bench.cpu.table import ROWS, Row
from bench.report import show
from tenonnx.cli.timing import Timing

TITLES = ["model", "threads", "tenonnx", "onnxruntime", "ratio", "of medians", "of CPU time"]


@dataclass
class Results:
    """The measurements.

    Attributes:
        machine: Where.
        outcomes: One per row and number of threads.
        roofline: What ``bench.cpu.roofline`` measured.
        rows: The table's.
    """

    machine: dict[str, Any] = field(default_factory=dict)
    outcomes: list[Outcome] = field(default_factory=list)
    roofline: list[dict[str, Any]] = field(default_factory=list)
    rows: Mapping[str, Row] = field(default_factory=lambda: ROWS)

    def add(self, outcomes: Iterable[Outcome]) -> None:
        """Add outcomes in place of those of the same row and number of threads."""
        for outcome in outcomes:
            place = outcome.name, outcome.threads
            self.outcomes = [o for o in self.outcomes if (o.name, o.threads) != place]
            self.outcomes.append(outcome)
        order = {name: position for position, name in enumerate(self.rows)}
        self.outcomes.sort(key=lambda o: (order[o.name], o.threads or 1 << 16))


def read(path: Path, rows: Mapping[str, Row] = ROWS) -> Results:
    """Return results that were saved, of rows that there still are."""
    content = json.loads(path.read_text("utf-8"))
    outcomes = []
    for each in content["rows"]:
        if each["name"] in rows:
            for key in ("mine", "theirs"):
                each[key] = each[key] and Timing(**each[key])
            peers = each.get("peers", {})
            each["peers"] = {peer: Timing(**told) for peer, told in peers.items()}
            facts = {f.name: each[f.name] for f in fields(Outcome) if f.name in each}
            outcomes.append(Outcome(**facts))
    return Results(content["machine"], outcomes, content["roofline"], rows)


def save(results: Results, path: Path) -> None:
    """Write JSON to a path, and Markdown beside it."""
    content = {
        "machine": results.machine,
        "rows": [outcome.as_dict() for outcome in results.outcomes],
        "roofline": results.roofline,
    }
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", "utf-8")
    path.with_suffix(".md").write_text(as_markdown(results), "utf-8")


def as_markdown(results: Results) -> str:
    """Return both tables."""
    peers = any(outcome.peers or outcome.refusing for outcome in results.outcomes)
    titles = [*TITLES, "best of the others"] if peers else TITLES
    if any(results.rows[outcome.name].at_once for outcome in results.outcomes):
        titles = ["at once" if title == "threads" else title for title in titles]
    cells = (_cells(results.rows, outcome)[: len(titles)] for outcome in results.outcomes)
    lines = [*_table(titles, cells), ""]
    if results.roofline:
        titles = ["kernel", "threads", "time", "reached", "peak", "share"]
        lines += _table(titles, (_roofline_cells(each) for each in results.roofline))
    return "\n".join(lines) + "\n"


def _table(titles: list[str], rows: Iterable[list[str]]) -> Iterator[str]:
    yield f"| {' | '.join(titles)} |"
    yield f"| --- |{' ---: |' * (len(titles) - 1)}"
    for cells in rows:
        yield f"| {' | '.join(cells)} |"


def _cells(rows: Mapping[str, Row], outcome: Outcome) -> list[str]:
    row = rows[outcome.name]
    cells = [row.about, str(outcome.threads or "all")]
    if outcome.mine is None or outcome.theirs is None:
        return [*cells, outcome.note, *[""] * 5]
    ratios = outcome.ratios
    low, high = outcome.spread
    judged = f"{_judged(ratios['turn'], outcome.limit)} ({low:.2f}–{high:.2f})"
    times = [time_in_words(row, each) for each in (outcome.mine, outcome.theirs)]
    best = outcome.best
    beside = f"{best[0]}: {_judged(best[1], PEER_LIMIT)}" if best else ""
    if not best and outcome.refusing:
        beside = f"not taken by {', '.join(outcome.refusing)}"
    return [*cells, *times, judged, f"{ratios['median']:.2f}", f"{ratios['processor']:.2f}", beside]


def time_in_words(row: Row, timing: Timing) -> str:
    return f"{1 / timing.fastest:.4g} / s" if row.at_once else show("run_s", timing.fastest)


def _judged(ratio: float, limit: float) -> str:
    return f"{ratio:.2f} ≤ {limit:g}" if ratio <= limit else f"**{ratio:.2f}** > {limit:g}"


def _roofline_cells(each: dict[str, Any]) -> list[str]:
    reached, unit = each["reached"], each["unit"]
    cells = [each["name"], str(each["threads"] or "all"), show("run_s", each["seconds"])]
    cells += [f"{reached:.4g} {unit}", f"{each['peak']:.4g} {unit}"]
    return [*cells, f"{reached / each['peak']:.0%}"]
