"""The outcomes as JSON and as tables in Markdown."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.first.outcome import COLUMNS, Outcome
from bench.first.states import STATES
from bench.first.table import ROWS
from bench.report import show

RATIOS = ("ratio", "cpu_ratio")
SPREAD = ("answer_s", "answer_cpu_s", "second_s", "warm_s", *RATIOS)
"""Of these the minimum is told, too."""

EXPLAINED = (
    "Medians over fresh processes, minima in parentheses. *First answer* and *full speed after* "
    "count from the start of the process; *warm* is the median run once all kernels are there."
)


@dataclass
class Results:
    """What has been measured.

    Attributes:
        machine: Where, and of which commit.
        rows: One outcome per model and state.
        installs: What installing took, by what was installed.
    """

    machine: dict[str, Any] = field(default_factory=dict)
    rows: list[Outcome] = field(default_factory=list)
    installs: dict[str, dict[str, float]] = field(default_factory=dict)

    def add(self, outcomes: Iterable[Outcome]) -> None:
        """Adds outcomes in place of those of the same row and state."""
        for outcome in outcomes:
            place = outcome.name, outcome.state
            self.rows = [each for each in self.rows if (each.name, each.state) != place]
            self.rows.append(outcome)
        names, states = list(ROWS), list(STATES)
        self.rows.sort(key=lambda each: (names.index(each.name), states.index(each.state)))


def read(path: Path) -> Results:
    """Returns results that were saved."""
    content = json.loads(path.read_text("utf-8"))
    names = [known.name for known in dataclasses.fields(Outcome)]
    rows = [Outcome(**{name: each[name] for name in names}) for each in content["rows"]]
    known = [each for each in rows if each.name in ROWS and each.state in STATES]
    return Results(content["machine"], known, content["installs"])


def save(results: Results, path: Path) -> None:
    """Writes JSON to a path, and Markdown beside it."""
    text = json.dumps(dataclasses.asdict(results), indent=1, ensure_ascii=False)
    path.write_text(text + "\n", "utf-8")
    path.with_suffix(".md").write_text(as_markdown(results), "utf-8")


def as_markdown(results: Results) -> str:
    """Returns the tables, and what they were measured on."""
    lines = [*_installs(results.installs), EXPLAINED, ""]
    lines += [f"| model | | {' | '.join(COLUMNS.values())} | |"]
    lines += [f"| --- | --- |{' ---: |' * len(COLUMNS)} --- |"]
    lines += [f"| {' | '.join(_cells(each))} |" for each in results.rows]
    about = ", ".join(f"{key} {value}" for key, value in results.machine.items())
    return "\n".join([*lines, "", about, ""])


def _installs(installs: dict[str, dict[str, float]]) -> Iterator[str]:
    if installs:
        yield "| installing | seconds | of processors | MiB on disk | MiB of the wheel |"
        yield "| --- | ---: | ---: | ---: | ---: |"
        for name, told in installs.items():
            wheel = f"{told['wheel_mib']:.1f}" if "wheel_mib" in told else ""
            seconds = f"{told['seconds']:.1f} | {told['cpu_s']:.1f}"
            yield f"| {name} | {seconds} | {told['disk_mib']:.0f} | {wheel} |"
        yield ""


def _cells(each: Outcome) -> list[str]:
    bounds = [text if ok else f"FAILS: {text}" for text, ok in each.bounds.items()]
    notes = "; ".join(filter(None, [*bounds, each.note]))
    return [ROWS[each.name].about, each.about, *(_cell(each, key) for key in COLUMNS), notes]


def _cell(each: Outcome, column: str) -> str:
    words = _show(column, each.median(column))
    if column in SPREAD and len(each.trials) > 1 and words:
        return f"{words} ({_show(column, each.least(column))})"
    return words


def _show(column: str, value: float | None) -> str:
    return f"{value:.2f}" if column in RATIOS and value is not None else show(column, value)
