"""The rows as a table on the terminal and in Markdown, as JSON and as a picture."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from bench.report import WIDTH, show
from bench.weight_sharing.case import Bound

# The figures of a measurement, and their titles; `*_mib` is in MiB.
COLUMNS = {
    "base_mib": "engine itself",
    "load_s": "load",
    "peak_mib": "peak at load",
    "loaded_mib": "loaded",
    "ran_mib": "after runs",
    "run_peak_mib": "peak of runs",
    "pss_mib": "PSS of all",
    "first_s": "first run",
    "run_s": "run",
}

ENGINES = ("tenonnx", "onnxruntime", "onnxruntime, best options")


@dataclass
class Row:
    """One engine in one case.

    Attributes:
        case: The case's name.
        mib: The size of its files.
        engine: One of ``ENGINES``.
        values: Seconds and MiB by column.
        note: Why there are no values.
        bounds: The bounds looked at, in words, and whether they hold.
        spread: tenonnx's least and largest ratio of a round to onnxruntime, by column.
    """

    case: str
    mib: float
    engine: str
    values: dict[str, float] = field(default_factory=dict)
    note: str = ""
    bounds: dict[str, bool] = field(default_factory=dict)
    spread: dict[str, tuple[float, float]] = field(default_factory=dict)


def check(bounds: Sequence[Bound], mine: Row, default: Row) -> dict[str, bool]:
    """Return which of the bounds hold; one that cannot be told does not."""
    held = {}
    for bound in bounds:
        value = mine.values.get(bound.column, float("inf"))
        title = COLUMNS[bound.column]
        if bound.relative:
            share = value / default.values.get(bound.column, float("nan"))
            held[f"{title} {share:.3f} ≤ {bound.limit:g} of onnxruntime's"] = share <= bound.limit
        else:
            held[f"{title} {value:.1f} ≤ {bound.limit:.4g} MiB"] = value <= bound.limit
    return held


def lines(rows: Sequence[Row]) -> list[list[str]]:
    """Return the table's cells, with its titles as the first line."""
    found = [["case", "engine", *COLUMNS.values(), "bounds"]]
    for row in rows:
        bounds = [text if ok else f"FAILS: {text}" for text, ok in row.bounds.items()]
        cells = [show(key, row.values.get(key)) for key in COLUMNS]
        name = f"{row.case} ({row.mib:,.0f} MiB)"
        found.append([name, row.engine, *cells, "; ".join(filter(None, [*bounds, row.note]))])
    return found


def print_table(rows: Sequence[Row]) -> None:
    """Print the table."""
    titles, *body = lines(rows)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for position, title in enumerate(titles):
        table.add_column(title, justify="right" if 1 < position < len(titles) - 1 else "left")
    for line in body:
        table.add_row(*line, style="red" if "FAILS" in line[-1] else "")
    console = Console()
    (console if console.is_terminal else Console(width=WIDTH)).print(table)


def save(rows: Sequence[Row], folder: Path, about: Mapping[str, Any]) -> None:
    """Write ``weight_sharing.md`` and ``weight_sharing.json``."""
    folder.mkdir(parents=True, exist_ok=True)
    titles, *body = lines(rows)
    table = [titles, ["---", "---", *["---:"] * len(COLUMNS), "---"], *body]
    text = "".join(f"| {' | '.join(line)} |\n" for line in table)
    (folder / "weight_sharing.md").write_text(text)
    content = {**about, "rows": [dataclasses.asdict(row) for row in rows]}
    (folder / "weight_sharing.json").write_text(
        json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    )
