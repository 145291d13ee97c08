"""``python -m bench folder DIR`` runs every model of a folder beside onnxruntime.

A model's inputs are the arrays of the ``.npz`` of the same name beside it, by name, or random ones.
Every measurement is a fresh process; no time is shown where outputs differ from onnxruntime's.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import tenonnx
from bench import report
from bench.builder import Feeds
from bench.compare import Comparison, Row
from bench.machine import tell
from bench.scenarios import FULL, QUICK, Case
from tenonnx.cli.feeds import make_feeds, parse_dims

TITLES = ("model", "threads", "outcome", "load", "first run", "private MiB", "run", "ratio")
SHOWN = ("load_s", "first_s", "ran_mib", "run_s")


# Stands for the engines that a model is not run on.
NOBODY = "not compared"


class NotCompared(Exception):
    """A model gives something else than arrays of numbers."""


def main(arguments: list[str]) -> int:
    """Return 0 if tenonnx ran everything that onnxruntime runs, and its outputs are right."""
    parser = argparse.ArgumentParser(prog="python -m bench folder", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="DIR", help=".onnx and .ort, at any depth")
    parser.add_argument(
        "--dim",
        action="append",
        default=[],
        metavar="NAME=SIZE",
        help="size of a symbolic dimension of random inputs; others are 1",
    )
    parser.add_argument("--quick", action="store_true", help="one short round with all threads")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the table here, too")
    parsed = parser.parse_args(arguments)
    settings = QUICK if parsed.quick else FULL
    dims = parse_dims(parsed.dim)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="bench-") as place:
        comparison = Comparison(settings, Path(place))
        for path in models_in(parsed.folder):
            name = str(path.relative_to(parsed.folder))
            try:
                case = Case(name, path, [feeds_of(path, dims)], prepared=True)
            except (tenonnx.TenonnxError, NotCompared) as error:
                tell(f"{name}: {error}")
                who = NOBODY if isinstance(error, NotCompared) else "tenonnx"
                rows.append(Row(name, 0, who, note=str(error).splitlines()[0]))
                continue
            with tempfile.TemporaryDirectory(dir=place) as cache:
                rows += comparison.measure(case, Path(cache))
    table = as_markdown(rows)
    print(table, end="")
    if parsed.output:
        parsed.output.write_text(table, "utf-8")
    return int(any(is_failure(group) for _, _, group in report.groups(rows)))


def models_in(folder: Path) -> list[Path]:
    """Return the models of a folder, by name."""
    return sorted(path for path in folder.rglob("*") if path.suffix in (".onnx", ".ort"))


def feeds_of(path: Path, dims: dict[str, int]) -> Feeds:
    """Return what to feed a model.

    Raises:
        TenonnxError: It does not load, or no random inputs can be made for it.
        NotCompared: It gives something else than arrays of numbers.
    """
    plain = tenonnx.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = tenonnx.InferenceSession(
        path, tenonnx.SessionOptions(graph_optimization_level=plain), providers=["cpu"]
    )
    for output in session.get_outputs():
        if not output.type.startswith("tensor(") or output.type == "tensor(string)":
            raise NotCompared(f"output {output.name} is {output.type}")
    beside = path.with_suffix(".npz")
    if not beside.exists():
        names = {n for arg in session.get_inputs() for n in arg.shape if isinstance(n, str)}
        known = {name: size for name, size in dims.items() if name in names}
        return make_feeds(session.model.graph, ["random"], known, seed=0)
    with np.load(beside) as arrays:
        return {name: arrays[name] for name in arrays.files}


def is_failure(group: list[Row]) -> bool:
    """Return whether tenonnx fails where onnxruntime does not."""
    return all(bool(row.note) == (row.engine == "tenonnx") for row in group)


def as_markdown(rows: list[Row]) -> str:
    """Return a line per model and number of threads, tenonnx's values before onnxruntime's."""
    lines: list[tuple[str, ...]] = [TITLES, ("---",) * 3 + ("---:",) * 5]
    lines += [tuple(cells(*group)) for group in report.groups(rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def cells(case: str, threads: str, group: list[Row]) -> Iterator[str]:
    """Yield the cells of a line."""
    engines = {row.engine: row for row in group}
    notes = [f"{engine}: {row.note}" for engine, row in engines.items() if row.note]
    yield from (case, threads, "; ".join(notes).replace("|", "/") or "same outputs")
    for key in SHOWN:
        yield " : ".join(report.show(key, row.values.get(key)) or "-" for row in engines.values())
    ratio = report.ratios(group).get("run_s")
    yield f"{ratio:.2f}" if ratio else ""
