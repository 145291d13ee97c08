"""``python -m bench weight_sharing [SCENARIO ...]``: shared weights, beside onnxruntime."""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
import time
from pathlib import Path

from bench.machine import machine
from bench.options import parser
from bench.page.figures import of_processes
from bench.picture import draw
from bench.weight_sharing import report
from bench.weight_sharing.compare import SCENARIOS, Comparison, Settings


def parse(arguments: list[str] | None) -> argparse.Namespace:
    made = parser("weight_sharing", __doc__, SCENARIOS, "SCENARIO")
    default = Settings()
    made.add_argument("--scale", type=float, default=default.scale, help="size; 1 is full size")
    made.add_argument(
        "--layers", type=int, default=default.layers, help="of the quantized model; it has 32"
    )
    made.add_argument("--rounds", type=int, default=default.rounds)
    made.add_argument("--threads", type=int, default=default.threads, help="0: as engines choose")
    made.add_argument("--budget", type=float, default=default.budget, help="seconds of runs")
    return made.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Return 0 if tenonnx ran everything, its outputs are right and all bounds hold, else 1."""
    parsed = parse(arguments)
    settings = Settings(
        **{item.name: getattr(parsed, item.name) for item in dataclasses.fields(Settings)}
    )
    start = time.perf_counter()
    rows = []
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        comparison = Comparison(Path(folder), settings)
        for name in parsed.names or SCENARIOS:
            rows += comparison.run(name)
    report.print_table(rows)
    about = {
        "machine": machine(),
        "settings": dataclasses.asdict(settings),
        "minutes": (time.perf_counter() - start) / 60,
    }
    report.save(rows, parsed.output, about)
    told = of_processes(parsed.output / "weight_sharing.json")
    draw(parsed.output / "weight_sharing.png", told)
    mine = [row for row in rows if row.engine == "tenonnx"]
    return int(any(row.note or not all(row.bounds.values()) for row in mine))


if __name__ == "__main__":
    sys.exit(main())
