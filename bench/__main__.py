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
from bench.kernels import build_missing_kernels, without_kernels
from bench.machine import machine
from bench.options import parser
from bench.page.figures import of_processes
from bench.picture import draw
from bench.scenarios import FULL, ON_REQUEST, QUICK, SCENARIOS
from bench.suites import SUITES, run_suite

NAMES = sorted({*SCENARIOS, *SUITES})

# Benchmarks with options of their own: the module of each, and what it measures.
OTHERS = {
    "all": ("bench.page.__main__", "every area, and the page of all results"),
    "capacity": ("bench.capacity.__main__", "how many models, sessions and requests fit"),
    "corners": ("bench.corners.__main__", "what few models have, beside other engines, too"),
    "cpu": ("bench.cpu.__main__", "whole models on the CPU"),
    "cuda": ("bench.cuda.__main__", "networks on a GPU, beside torch"),
    "first": ("bench.first.__main__", "import, session and first run, as after an install"),
    "folder": ("bench.folder", "every model of a folder"),
    "generate": ("bench.generate.__main__", "language models, beside onnxruntime-genai"),
    "operators": ("bench.operators.__main__", "every operator alone"),
    "precision": ("bench.precision.__main__", "how far from exact answers are"),
    "providers": ("bench.providers", "the same models on every installed provider"),
    "quantizing": ("bench.quantizing", "models that onnxruntime's tools quantized"),
    "scale": ("bench.scale", "graphs of many nodes and of many weights"),
    "serve": ("bench.serve.__main__", "servers under load"),
    "shapes": ("bench.shapes.__main__", "first runs, and runs of new shapes"),
    "throughput": ("bench.throughput.__main__", "runs a second, many at once"),
    "transforms": ("bench.transforms", "what each graph transform gains"),
    "weight_sharing": ("bench.weight_sharing.__main__", "shared weights: time and memory"),
}

# For `--help`: the measurement behind each name.
ABOUT = {
    "architectures": "two layers of each exported architecture; only if named",
    "dispatch": "what the runtime adds to a node, a lookup, a compilation",
    "external-1g": "1 GiB of weights beside the model",
    "inline-aligned-1g": "1 GiB of weights in the model, aligned for mapping",
    "inline-unaligned-1g": "1 GiB of weights in the model, at odd addresses",
    "load": "the time until a session is there",
    "models": "small models in a warm session",
    "ten-sessions": "ten sessions of one file of 512 MiB",
    "tied-if-1g": "an If whose branches share 1 GiB",
}


def parse(arguments: list[str] | None) -> argparse.Namespace:
    about = "Measures tenonnx beside onnxruntime, prints one table and saves it."
    made = parser("", about, {name: ABOUT[name] for name in NAMES}, "NAME")
    others = "\n".join(f"  {name:20} {words}" for name, (_, words) in OTHERS.items())
    made.epilog = (
        f"{made.epilog}\n\nbenchmarks with options of their own, as in "
        f"`python -m bench cpu --help`:\n{others}"
    )
    made.add_argument("--quick", action="store_true", help="small models, one round")
    made.add_argument("--rounds", type=int, help=f"processes, {FULL.rounds} by default")
    made.add_argument(
        "--threads",
        type=int,
        nargs="+",
        help="numbers of threads to measure with; 0 means all cores; 1 and 0 by default",
    )
    made.add_argument("--title", help="of the files written, the names by default")
    return made.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Return 0 if tenonnx ran everything, its outputs are right and all bounds hold, else 1.

    One of ``OTHERS`` as the first argument hands the rest to that benchmark.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    build_missing_kernels()
    if remark := without_kernels():
        print(remark)
    if arguments and arguments[0] in OTHERS:
        other = importlib.import_module(OTHERS[arguments[0]][0])
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
    report.save_summary(rows, parsed.output / f"{title}.md", remark)
    told = of_processes(parsed.output / f"{title}.json")
    draw(parsed.output / f"{title}.png", told)
    mine = [row for row in rows if row.engine == "tenonnx"]
    return int(any(row.note or not all(row.bounds.values()) for row in mine))


if __name__ == "__main__":
    sys.exit(main())
