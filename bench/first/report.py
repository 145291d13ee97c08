"""The outcomes as JSON and as tables in Markdown."""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.first.outcome import COLUMNS, OPENED_MEAN, Outcome
from bench.first.states import AGAIN, PEER, STATES
from bench.first.table import ROWS, Row
from bench.report import show

RATIOS = ("ratio", "cpu_ratio")
# Of these the minimum is told, too.
SPREAD = ("opened_s", "answer_s", "answer_cpu_s", "second_s", "warm_s", *RATIOS)

EXPLAINED = (
    "Medians over fresh processes, minima in parentheses. *First answer* and *full speed after* "
    "count from the start of the process; *warm* is the median of later runs."
)


@dataclass
class Results:
    """The measurements.

    Attributes:
        machine: Where, and of which commit.
        rows: One outcome per model and state.
        installs: What installing took, by what was installed.
        table: The rows there are.
    """

    machine: dict[str, Any] = field(default_factory=dict)
    rows: list[Outcome] = field(default_factory=list)
    installs: dict[str, dict[str, float]] = field(default_factory=dict)
    table: Mapping[str, Row] = field(default_factory=lambda: ROWS)

    @property
    def opened(self) -> float | None:
        """A second process's time until its first answer, in units of onnxruntime's time.

        The geometric mean over the rows of models; ``None`` if there are none.
        """
        told = {(each.name, each.state): each.median("opened_s") for each in self.rows}
        pairs = [(told.get((name, AGAIN)), told.get((name, PEER))) for name in ROWS]
        ratios = [mine / theirs for mine, theirs in pairs if mine and theirs]
        return statistics.geometric_mean(ratios) if ratios else None

    @property
    def holds(self) -> bool:
        """Whether the bound of all rows together does."""
        return self.opened is None or self.opened <= OPENED_MEAN

    def add(self, outcomes: Iterable[Outcome]) -> None:
        """Add outcomes in place of those of the same row and state."""
        for outcome in outcomes:
            place = outcome.name, outcome.state
            self.rows = [each for each in self.rows if (each.name, each.state) != place]
            self.rows.append(outcome)
        names, states = list(self.table), list(STATES)
        self.rows.sort(key=lambda each: (names.index(each.name), states.index(each.state)))


def read(path: Path, table: Mapping[str, Row] = ROWS) -> Results:
    """Return results that were saved, of rows that there still are."""
    content = json.loads(path.read_text("utf-8"))
    names = [known.name for known in dataclasses.fields(Outcome)]
    rows = [Outcome(**{name: each[name] for name in names}) for each in content["rows"]]
    parts = ("import_s", "load_s", "first_s")
    for trial in (trial for each in rows for trial in each.trials):
        if "opened_s" not in trial and all(part in trial for part in parts):
            trial["opened_s"] = sum(trial[part] for part in parts)
    known = [each for each in rows if each.name in table and each.state in STATES]
    return Results(content["machine"], known, content["installs"], table)


def save(results: Results, path: Path) -> None:
    """Write JSON to a path, and Markdown beside it."""
    content = {
        "machine": results.machine,
        "rows": [dataclasses.asdict(each) for each in results.rows],
        "installs": results.installs,
    }
    text = json.dumps(content, indent=1, ensure_ascii=False)
    path.write_text(text + "\n", "utf-8")
    path.with_suffix(".md").write_text(as_markdown(results), "utf-8")


def as_markdown(results: Results) -> str:
    """Return the tables, and what they were measured on."""
    lines = [*_installs(results.installs), EXPLAINED, ""]
    lines += [f"| model | | {' | '.join(COLUMNS.values())} | |"]
    lines += [f"| --- | --- |{' ---: |' * len(COLUMNS)} --- |"]
    lines += [f"| {' | '.join(_cells(results.table, each))} |" for each in results.rows]
    if results.opened is not None:
        judged = "" if results.holds else "FAILS: "
        lines += ["", f"{judged}again, {COLUMNS['opened_s']} take {results.opened:.2f} ≤ "
                  f"{OPENED_MEAN:g} of onnxruntime's time (geometric mean)"]  # fmt: skip
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


def _cells(table: Mapping[str, Row], each: Outcome) -> list[str]:
    bounds = [text if ok else f"FAILS: {text}" for text, ok in each.bounds.items()]
    notes = "; ".join(filter(None, [*bounds, each.note]))
    return [table[each.name].about, each.about, *(_cell(each, key) for key in COLUMNS), notes]


def _cell(each: Outcome, column: str) -> str:
    words = _show(column, each.median(column))
    if column in SPREAD and len(each.trials) > 1 and words:
        return f"{words} ({_show(column, each.least(column))})"
    return words


def _show(column: str, value: float | None) -> str:
    return f"{value:.2f}" if column in RATIOS and value is not None else show(column, value)
