"""The results as one table, as JSON and as a picture."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from bench.compare import Row
from bench.measure import COLUMNS, PLOTTED

WIDTH = 200
NOTE_WIDTH = 42


def ratios(group: Sequence[Row]) -> dict[str, float]:
    """Return tenonnx's values over onnxruntime's, where both are above zero."""
    values = {row.engine: row.values for row in group}
    mine, theirs = values.get("tenonnx", {}), values.get("onnxruntime", {})
    both = (key for key in COLUMNS if mine.get(key, 0) > 0 and theirs.get(key, 0) > 0)
    return {key: mine[key] / theirs[key] for key in both}


def groups(rows: Sequence[Row]) -> Iterator[tuple[str, str, list[Row]]]:
    """Yield the rows of each case and number of threads, after both."""
    for (case, threads), group in groupby(rows, key=lambda row: (row.case, row.threads)):
        yield case, str(threads or "all"), list(group)


def lines(group: Sequence[Row]) -> Iterator[list[str]]:
    """Yield the cells after case and threads: a line per engine, and one of ratios."""
    for row in group:
        cells = [show(key, row.values.get(key)) for key in COLUMNS]
        bounds = [text if ok else f"FAILS: {text}" for text, ok in row.bounds.items()]
        yield [row.engine, *cells, "; ".join(filter(None, [*bounds, row.note]))]
    if found := ratios(group):
        cells = [f"{found[key]:.3g}x" if key in found else "" for key in COLUMNS]
        yield ["ratio", *cells, ""]


def show(key: str, value: float | None) -> str:
    """Return a value in words of its size."""
    if value is None:
        return ""
    if key.endswith("_mib"):
        return f"{value:.1f}"
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value * 1e6:.3g} µs"


def print_table(rows: Sequence[Row]) -> None:
    """Print the table."""
    titles = ["case", "threads", "engine", *COLUMNS.values(), "bounds and notes"]
    body = [
        [*(("", "") if i else (case, threads)), *cells]
        for case, threads, group in groups(rows)
        for i, cells in enumerate(lines(group))
    ]
    if importlib.util.find_spec("rich"):
        _print_rich(titles, body)
        return
    widths = [max(map(len, column)) for column in zip(titles, *body, strict=True)]
    for line in (titles, *body):
        print("  ".join(map(str.ljust, line, widths)).rstrip())


def _print_rich(titles: list[str], body: list[list[str]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in titles[:-1]:
        number = title in COLUMNS.values()
        table.add_column(title, justify="right" if number else "left", no_wrap=True)
    table.add_column(titles[-1], max_width=NOTE_WIDTH)
    for line in body:
        style = "bold" if line[2] == "ratio" else "red" if "FAILS" in line[-1] else ""
        table.add_row(*map(Text, line), style=style, end_section=line[2] == "ratio")
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH)
    console.print(table)


def save_summary(rows: Sequence[Row], path: Path, remark: str = "") -> None:
    """Write what is plotted, and the bounds, as a table in Markdown, below a remark if any."""
    titles = ["case", "threads", *PLOTTED.values(), "busy", "bounds"]
    table = [titles, ["---", *["---:"] * (len(titles) - 2), "---"]]
    for case, threads, group in groups(rows):
        engines = {row.engine: row for row in group}
        if "onnxruntime" in engines:
            mine, theirs = engines["tenonnx"], engines["onnxruntime"]
            cells = [
                f"{show(key, mine.values.get(key)) or '-'} / {show(key, theirs.values.get(key))}"
                for key in PLOTTED
            ]
            cells.append(f"{theirs.values.get('busy', 0):.0f}")
            notes = [text if ok else f"**fails**: {text}" for text, ok in mine.bounds.items()]
            table.append([case, threads, *cells, "; ".join(filter(None, [*notes, mine.note]))])
    head = f"{remark}\n\n" if remark else ""
    path.write_text(head + "".join(f"| {' | '.join(line)} |\n" for line in table))


def describe_blas(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a line for each different set of BLAS libraries that tenonnx ran with."""
    seen = set()
    for row in rows:
        for pool in row.blas if row.engine == "tenonnx" else ():
            text = " ".join(str(v) for k, v in pool.items() if v and k != "num_threads")
            line = f"{row.threads or 'all'} threads: {text}, {pool.get('num_threads')} in its pool"
            if line not in seen:
                seen.add(line)
                yield line


def save_json(rows: Sequence[Row], path: Path, about: Mapping[str, Any]) -> None:
    """Write the machine, the settings and every row."""
    found = [dataclasses.asdict(row) for row in rows]
    for row in found:
        del row["blas"]
    content = {**about, "blas": list(describe_blas(rows)), "rows": found}
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
