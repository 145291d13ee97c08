"""The results as a page: the geometric mean, then the worst rows first, and as JSON."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.operators.measure import Row
from bench.page.figures import Figure
from bench.report import show

# The bounds: of the mean ratio, of any row's, and of those of all rows but a share.
GEOMETRIC_MEAN, WORST, BEHIND, SHARE = 0.8, 1.5, 1.1, 0.02


def mean(ratios: Iterable[float]) -> float:
    """Return the geometric mean; 0 of nothing."""
    found = [math.log(ratio) for ratio in ratios]
    return math.exp(math.fsum(found) / len(found)) if found else 0.0


def holds(rows: Sequence[Row]) -> bool:
    """Return whether the bounds hold, and all answers are right."""
    timed = [row.ratio for row in rows if row.ratio]
    behind = sum(ratio > BEHIND for ratio in timed)
    within = mean(timed) <= GEOMETRIC_MEAN and max(timed, default=0) <= WORST
    return within and behind <= SHARE * len(timed)


def summary(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a line for all rows, and one for each size and number of threads."""
    groups: dict[str, list[Row]] = {"all rows": [row for row in rows if row.ratio]}
    for row in groups["all rows"]:
        threads = f"{row.threads or 'all'} thread{'s' if row.threads != 1 else ''}"
        groups.setdefault(f"{row.size}, {threads}", []).append(row)
    yield "| rows | number | geometric mean | over 1.1 | over 1.5 | worst |"
    yield "|---|---:|---:|---:|---:|---:|"
    for name, group in groups.items():
        ratios = [row.ratio for row in group]
        over = [f"{sum(ratio > limit for ratio in ratios)}" for limit in (BEHIND, WORST)]
        cells = [
            name,
            f"{len(ratios)}",
            f"{mean(ratios):.2f}",
            *over,
            f"{max(ratios, default=0):.1f}",
        ]
        yield f"| {' | '.join(cells)} |"


def by_operator(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    """Return the timed rows of each operator, the worst operator first."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row.ratio:
            groups[row.operator].append(row)
    return sorted(groups.items(), key=lambda item: -mean(row.ratio for row in item[1]))


def as_markdown(rows: Sequence[Row], most: int = 200) -> str:
    """Return the page.

    Args:
        rows: The rows.
        most: Rows over the bound that it lists at most.
    """
    lines = [
        *summary(rows),
        "",
        "| operator | rows | geometric mean | worst row | |",
        "|---|---:|---:|---:|---|",
    ]
    for name, group in by_operator(rows):
        worst = max(group, key=lambda row: row.ratio)
        cells = [
            name,
            f"{len(group)}",
            f"{mean(row.ratio for row in group):.2f}",
            f"{worst.ratio:.1f}",
        ]
        lines.append(f"| {' | '.join([*cells, _what(worst)])} |")
    slow = sorted((row for row in rows if row.ratio > BEHIND), key=lambda row: -row.ratio)
    lines += ["", f"The worst of {len(slow)} rows over {BEHIND}:", ""]
    lines += [
        "| operator | call | onnxruntime | tenonnx | ratio | of CPU time |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for row in slow[:most]:
        times = [show("_s", row.theirs), show("_s", row.mine)]
        cells = [row.operator, _what(row), *times, f"{row.ratio:.2f}", f"{row.processor:.2f}"]
        lines.append(f"| {' | '.join(cells)} |")
    noted = dict.fromkeys((row.operator, row.kind, row.form, row.note) for row in rows if row.note)
    lines += ["", "Without figures, or with other answers:", ""] if noted else []
    lines += [f"- {operator} {kind} {form}: {note}" for operator, kind, form, note in noted]
    return "\n".join(lines) + "\n"


def _what(row: Row) -> str:
    threads = "1 thread" if row.threads == 1 else f"{row.threads or 'all'} threads"
    return ", ".join(filter(None, [row.kind, row.form, row.size, threads]))


def save(rows: Sequence[Row], path: Path, about: dict[str, Any]) -> None:
    """Write JSON to a path, and Markdown beside it."""
    content = {"machine": about, "rows": [row.as_dict() for row in rows]}
    path.write_text(json.dumps(content, ensure_ascii=False) + "\n", "utf-8")
    path.with_suffix(".md").write_text(as_markdown(rows), "utf-8")


def read(path: Path) -> tuple[dict[str, Any], list[Row]]:
    """Return the machine and the rows that were saved, if any."""
    if not path.exists():
        return {}, []
    content = json.loads(path.read_text("utf-8"))
    return content["machine"], [row_of(each) for each in content["rows"]]


def row_of(facts: dict[str, Any]) -> Row:
    """Return the row that ``Row.as_dict`` wrote."""
    return Row(**{"kind": "", "form": "", "size": "", "threads": 0, **facts})


def figures(path: Path) -> list[Figure]:
    """Return a figure per operator and number of threads, for the page of all results."""
    found = []
    for name, group in by_operator(read(path)[1]):
        for threads in sorted({row.threads for row in group}, reverse=True):
            rows = [row for row in group if row.threads == threads]
            ratios = [row.ratio for row in rows]
            kind = f"a run, {'1 thread' if threads == 1 else 'all threads'}"
            label = f"{name}, {len(rows)} calls"
            spread = min(ratios), max(ratios)
            found.append(Figure(name, label, kind, "", "", mean(ratios), spread))
    return found
