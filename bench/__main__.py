"""``python -m bench [NAME ...] [--quick]`` measures, prints one table and saves it."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import sys
import tempfile
import time
from pathlib import Path

from bench import report
from bench.compare import Comparison, Row
from bench.machine import machine
from bench.options import parser
from bench.page.figures import of_processes
from bench.picture import draw
from bench.scenarios import FULL, ON_REQUEST, QUICK, SCENARIOS
from bench.suites import SUITES, run_suite

NAMES = sorted({*SCENARIOS, *SUITES})

OTHERS = {
    "capacity": "bench.capacity.__main__",
    "corners": "bench.corners.__main__",
    "all": "bench.page.__main__",
    "cpu": "bench.cpu.__main__",
    "cuda": "bench.cuda.__main__",
    "first": "bench.first.__main__",
    "folder": "bench.folder",
    "generate": "bench.generate.__main__",
    "precision": "bench.precision.__main__",
    "scale": "bench.scale",
    "serve": "bench.serve.__main__",
    "providers": "bench.providers",
    "quantizing": "bench.quantizing",
    "weight_sharing": "bench.weight_sharing.__main__",
    "stopping": "bench.stopping",
    "throughput": "bench.throughput.__main__",
    "transforms": "bench.transforms",
}
"""Benchmarks with options of their own, and their modules."""


def parse(arguments: list[str] | None) -> argparse.Namespace:
    made = parser(
        "", "Measures tenonnx beside onnxruntime, prints one table and saves it.", NAMES, "NAME"
    )
    made.epilog = (
        f"{made.epilog}\n\n{ON_REQUEST} is measured on request alone.\n"
        f"Benchmarks with options of their own: {', '.join(OTHERS)};\n"
        "`python -m bench cpu --help` tells of one."
    )
    made.add_argument("--quick", action="store_true", help="small models, one round")
    made.add_argument("--rounds", type=int, help=f"processes, {FULL.rounds} by default")
    made.add_argument(
        "--threads", type=int, nargs="+", help="numbers of them; 0, which is all, and 1 by default"
    )
    made.add_argument("--title", help="of the files written, the names by default")
    return made.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Returns 0 if tenonnx ran everything, its outputs are right and all bounds hold, else 1.

    One of ``OTHERS`` as the first argument hands the rest to that benchmark.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments and arguments[0] in OTHERS:
        other = importlib.import_module(OTHERS[arguments[0]])
        return int(other.main(arguments[1:]))
    parsed = parse(arguments)
    names = parsed.names or [*(name for name in SCENARIOS if name != ON_REQUEST), "load"]
    settings = QUICK if parsed.quick else FULL
    given = {"rounds": parsed.rounds, "threads": parsed.threads}
    settings = dataclasses.replace(settings, **{key: told for key, told in given.items() if told})
    start = time.perf_counter()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        comparison = Comparison(settings, Path(folder))
        for name in names:
            if name in SCENARIOS:
                rows += comparison.run(name)
            if name in SUITES:
                rows += run_suite(name, Path(folder), quick=parsed.quick)
    report.print_table(rows)
    for line in report.describe_blas(rows):
        print(line)
    title = parsed.title or "-".join(parsed.names or ["all"])
    title += "-quick" if parsed.quick else ""
    parsed.output.mkdir(parents=True, exist_ok=True)
    minutes = (time.perf_counter() - start) / 60
    about = {"machine": machine(), "minutes": minutes}
    report.save_json(rows, parsed.output / f"{title}.json", about)
    report.save_summary(rows, parsed.output / f"{title}.md")
    told = of_processes(parsed.output / f"{title}.json")
    draw(parsed.output / f"{title}.png", told)
    mine = [row for row in rows if row.engine == "tenonnx"]
    return int(any(row.note or not all(row.bounds.values()) for row in mine))


if __name__ == "__main__":
    sys.exit(main())
