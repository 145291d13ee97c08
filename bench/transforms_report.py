"""The gains of transforms, as JSON, as a table in Markdown and as a picture."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.kernels import without_kernels
from bench.report import show

ALL = "all of these"
TITLES = ["model", "transform", "nodes", "run", "without", "ratio", "MiB", "without"]
# The limits of a ratio of times, and of additional private memory in MiB.
#
# Processes differ by 3 % and by 0.2 MiB, and a transform's own code takes as much.
SLOWER, LARGER = 1.03, 0.5


@dataclass(frozen=True)
class Row:
    """A model with all transforms, and without one of them.

    Attributes:
        model: Its name.
        transform: The name of what is left out.
        matched: What it changed, in words.
        mine_s: Shortest run with all transforms.
        other_s: Shortest run without.
        mine_mib: Private memory after runs, with all transforms.
        other_mib: The same without.
    """

    model: str
    transform: str
    matched: str
    mine_s: float = math.inf
    other_s: float = math.inf
    mine_mib: float = math.inf
    other_mib: float = math.inf

    def least(self, **seen: float) -> Row:
        """Return a row whose numbers are the smaller ones of these and of others."""
        return dataclasses.replace(
            self, **{name: min(value, getattr(self, name)) for name, value in seen.items()}
        )

    @property
    def time_ratio(self) -> float:
        """The time with the transform in units of that without."""
        return self.mine_s / self.other_s

    @property
    def more_mib(self) -> float:
        """Private memory that the transform costs."""
        return self.mine_mib - self.other_mib

    @property
    def holds(self) -> bool:
        """Whether the model is neither slower nor larger with the transform."""
        return self.time_ratio <= SLOWER and self.more_mib <= LARGER


def read(path: Path) -> list[Row]:
    """Return rows that were saved, if any."""
    if not path.exists():
        return []
    return [Row(**each) for each in json.loads(path.read_text("utf-8"))["rows"]]


def save(rows: Sequence[Row], path: Path, machine: dict[str, Any]) -> None:
    """Write JSON to a path, Markdown and a picture beside it."""
    content = {"machine": machine, "rows": [dataclasses.asdict(row) for row in rows]}
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", "utf-8")
    path.with_suffix(".md").write_text(as_markdown(rows), "utf-8")
    if rows and importlib.util.find_spec("matplotlib"):
        _draw(rows, path.with_suffix(".png"))


def as_markdown(rows: Sequence[Row]) -> str:
    """Return the table, what gains least first, and a line that sums it up."""
    lines = [f"| {' | '.join(TITLES)} |", f"| --- | --- |{' ---: |' * (len(TITLES) - 2)}"]
    for row in sorted(rows, key=lambda row: -row.time_ratio):
        ratio, memory = f"{row.time_ratio:.3f}", f"{row.mine_mib:.1f}"
        cells = [row.model, row.transform, row.matched]
        cells += [show("run_s", row.mine_s), show("run_s", row.other_s)]
        cells.append(ratio if row.time_ratio <= SLOWER else f"**{ratio}**")
        cells.append(memory if row.more_mib <= LARGER else f"**{memory}**")
        lines.append(f"| {' | '.join([*cells, f'{row.other_mib:.1f}'])} |")
    return "\n".join([*lines, "", summary(rows)]) + "\n"


def summary(rows: Sequence[Row]) -> str:
    """Return how many transforms of how many models were looked at, and which do not hold."""
    single = [row for row in rows if row.transform != ALL]
    whole = [row.time_ratio for row in rows if row.transform == ALL]
    slower = [row for row in rows if row.time_ratio > SLOWER]
    larger = [row for row in rows if row.more_mib > LARGER]
    mean = math.exp(sum(map(math.log, whole)) / len(whole)) if whole else math.nan
    return (
        f"{len(single)} pairs of a transform and one of {len(whole)} models: {len(slower)} are "
        f"slower by more than {SLOWER - 1:.0%}, {len(larger)} larger by more than {LARGER} MiB. "
        f"All transforms together: {mean:.2f} of the time without any, in the geometric mean."
    )


def _draw(rows: Sequence[Row], path: Path) -> None:
    """Draw every ratio on a logarithmic axis, a line for each transform."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import FuncFormatter

    names = sorted({row.transform for row in rows}, key=lambda name: (name != ALL, name))
    figure, axes = plt.subplots(figsize=(8, 1.2 + 0.28 * len(names)), layout="constrained")
    places = [names.index(row.transform) for row in rows]
    axes.plot([row.time_ratio for row in rows], places, "o", alpha=0.5)
    axes.axvline(1, color="0.4", linewidth=1)
    axes.set_xscale("log")
    for show_ticks in (axes.xaxis.set_major_formatter, axes.xaxis.set_minor_formatter):
        show_ticks(FuncFormatter(lambda x, _: f"{x:g}x"))
    axes.set_yticks(range(len(names)), names)
    axes.grid(axis="both", color="0.9")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel("run with the transform / run without, a dot for each model")
    figure.suptitle(without_kernels(), fontsize="medium")
    figure.savefig(path, dpi=120)
    plt.close(figure)
