"""The README's figures are those of the benchmarks' results."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
README = " ".join((ROOT / "README.md").read_text().split())
UNITS = {"ms": 1e-3, "s": 1.0}


def results(name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((ROOT / f"bench/results/{name}.json").read_text())[
        "rows"
    ]
    return rows


def told(pattern: str) -> list[str]:
    found = re.search(pattern, README)
    assert found is not None, pattern
    return list(found.groups())


def agree(shown: Iterable[str], exact: Iterable[float]) -> None:
    """Each figure is the exact one, rounded to the digits that are shown."""
    for text, value in zip(shown, exact, strict=True):
        assert text == f"{value:.{len(text.partition('.')[2])}f}"


def openings(state: str) -> dict[str, float]:
    """Return each model's median of import, session and first run."""
    return {
        row["name"]: statistics.median(trial["opened_s"] for trial in row["trials"])
        for row in results("first")
        if row["state"] == state
    }


def test_runs() -> None:
    ratios = [row["ratios"]["turn"] for row in results("cpu") if row["ratios"]]
    mean = told(r"A run takes ([\d.]+) of onnxruntime's time")
    limits = told(r"forests \(\[([\d.]+) to ([\d.]+)\]")
    agree([*mean, *limits], [statistics.geometric_mean(ratios), min(ratios), max(ratios)])


def test_first_runs() -> None:
    theirs, again, first = map(openings, ("onnxruntime", "again", "installed"))
    ratios = [again[name] / theirs[name] for name in theirs]
    mean = told(r"first run together take ([\d.]+) of its time")
    limits = told(r"second process on \(\[([\d.]+) to ([\d.]+)\]")
    agree([*mean, *limits], [statistics.geometric_mean(ratios), min(ratios), max(ratios)])
    (int4,) = (first[name] / theirs[name] for name in theirs if "int4" in name)
    agree(told(r"first process they take ([\d.]+) of its time for an int4 decoder"), [int4])
    worst = max(first[name] / theirs[name] for name in theirs)
    agree(told(r"and [\d.]+ to ([\d.]+) times its time for small and int8 models"), [worst])


def test_the_table() -> None:
    table = re.findall(
        r"^\| (.+?) \| (.+?) \| (.+?) \| (.+?) \|$", (ROOT / "README.md").read_text(), re.M
    )
    cases = {"4-bit": "qdq-int4", "1.5 GB": "fold", "an `If`": "tied-if", "an `.ort`": "ort x8"}
    rows = {(row["case"], row["engine"]): row["values"] for row in results("weight_sharing")}
    for begin, case in cases.items():
        (cells,) = (cells for about, *cells in table if about.startswith(begin))
        private = "pss_mib" if "PSS" in cells[1] else "ran_mib"
        for cell, key in zip(cells, ("load_s", private, "run_s"), strict=True):
            for shown, engine in zip(seconds(cell), ("tenonnx", "onnxruntime"), strict=True):
                value = rows[case, engine][key]
                assert abs(shown - value) <= 0.05 * value + (0.5 if "mib" in key else 0.0005)


def seconds(cell: str) -> list[float]:
    """Return a cell's two numbers: seconds, or MiB as they are."""
    ours, theirs = cell.replace(",", "").removesuffix(" (PSS)").split(" : ")
    unit = theirs.split()[1]
    numbers = [part.split() for part in (ours, theirs)]
    return [float(number) * UNITS.get(rest[0] if rest else unit, 1.0) for number, *rest in numbers]
