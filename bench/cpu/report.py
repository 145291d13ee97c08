"""The outcomes as JSON, as a table in Markdown and as a picture of ratios."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from bench.cpu.compare import Outcome
from bench.cpu.table import ROWS
from bench.machine import tell
from bench.report import show
from tenonnx.cli.timing import Timing

TITLES = ["model", "threads", "tenonnx", "onnxruntime", "ratio", "of medians", "of CPU time"]


@dataclass
class Results:
    """What has been measured.

    Attributes:
        machine: Where.
        outcomes: One per row and number of threads.
        roofline: What ``bench.cpu.roofline`` measured.
    """

    machine: dict[str, Any] = field(default_factory=dict)
    outcomes: list[Outcome] = field(default_factory=list)
    roofline: list[dict[str, Any]] = field(default_factory=list)

    def add(self, outcomes: Iterable[Outcome]) -> None:
        """Adds outcomes in place of those of the same row and number of threads."""
        for outcome in outcomes:
            place = outcome.name, outcome.threads
            self.outcomes = [o for o in self.outcomes if (o.name, o.threads) != place]
            self.outcomes.append(outcome)
        order = {name: position for position, name in enumerate(ROWS)}
        self.outcomes.sort(key=lambda o: (order[o.name], o.threads or 1 << 16))


def read(path: Path) -> Results:
    """Returns results that were saved."""
    content = json.loads(path.read_text("utf-8"))
    outcomes = []
    for each in content["rows"]:
        if each["name"] in ROWS:
            for key in ("mine", "theirs"):
                each[key] = each[key] and Timing(**each[key])
            facts = {known.name: each[known.name] for known in fields(Outcome)}
            outcomes.append(Outcome(**facts))
    return Results(content["machine"], outcomes, content["roofline"])


def save(results: Results, path: Path) -> None:
    """Writes JSON to a path, Markdown and a picture beside it."""
    content = {
        "machine": results.machine,
        "rows": [outcome.as_dict() for outcome in results.outcomes],
        "roofline": results.roofline,
    }
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", "utf-8")
    path.with_suffix(".md").write_text(as_markdown(results), "utf-8")
    if importlib.util.find_spec("matplotlib"):
        _draw(results.outcomes, path.with_suffix(".png"))
    else:
        tell("no picture: matplotlib is not installed")


def as_markdown(results: Results) -> str:
    """Returns both tables."""
    lines = [*_table(TITLES, (_cells(outcome) for outcome in results.outcomes)), ""]
    if results.roofline:
        titles = ["kernel", "threads", "time", "reached", "peak", "share"]
        lines += _table(titles, (_roofline_cells(each) for each in results.roofline))
    return "\n".join(lines) + "\n"


def _table(titles: list[str], rows: Iterable[list[str]]) -> Iterator[str]:
    yield f"| {' | '.join(titles)} |"
    yield f"| --- |{' ---: |' * (len(titles) - 1)}"
    for cells in rows:
        yield f"| {' | '.join(cells)} |"


def _cells(outcome: Outcome) -> list[str]:
    cells = [ROWS[outcome.name].about, str(outcome.threads or "all")]
    if outcome.mine is None or outcome.theirs is None:
        return [*cells, outcome.note, *[""] * 4]
    ratios = {key: f"{value:.2f}" for key, value in outcome.ratios.items()}
    judged = f"{ratios['turn']} ≤ {outcome.limit:g}"
    if not outcome.holds:
        judged = f"**{ratios['turn']}** > {outcome.limit:g}"
    times = [show("run_s", each.fastest) for each in (outcome.mine, outcome.theirs)]
    return [*cells, *times, judged, ratios["median"], ratios["processor"]]


def _roofline_cells(each: dict[str, Any]) -> list[str]:
    reached, unit = each["reached"], each["unit"]
    cells = [each["name"], str(each["threads"] or "all"), show("run_s", each["seconds"])]
    cells += [f"{reached:.4g} {unit}", f"{each['peak']:.4g} {unit}"]
    return [*cells, f"{reached / each['peak']:.0%}"]


def _draw(outcomes: list[Outcome], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    names = [name for name in ROWS if any(o.name == name and o.ratios for o in outcomes)][::-1]
    figure, axes = plt.subplots(figsize=(8, 1.4 + 0.36 * len(names)), layout="constrained")
    for shift, (several, title) in ((0.18, (False, "1 thread")), (-0.18, (True, "all threads"))):
        chosen = [o for o in outcomes if o.ratios and (o.threads != 1) == several]
        places = [names.index(o.name) + shift for o in chosen]
        axes.barh(places, [o.ratios["turn"] for o in chosen], height=0.34, label=title)
    for position, name in enumerate(names):
        limit = ROWS[name].limit
        axes.plot([limit, limit], [position - 0.42, position + 0.42], color="0.2", linewidth=1.5)
    axes.set_yticks(range(len(names)), [ROWS[name].about for name in names])
    axes.set_xlabel("time / onnxruntime's time; the line is the limit")
    axes.grid(axis="x", color="0.9")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=2, frameon=False)
    figure.savefig(path, dpi=120)
    plt.close(figure)
