"""``python -m bench cpu [ROW ...]`` times whole models on the CPU beside onnxruntime.

Both engines have their options at their defaults but the number of threads. Each is a process of
its own; they take turns, and outputs are compared first. Rows named alone replace those rows of the
results kept, so that a table can be made in parts.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from bench.cpu import report
from bench.cpu.compare import Settings, compare
from bench.cpu.roofline import measure_roofline
from bench.cpu.table import ROWS
from bench.machine import machine, tell
from bench.options import parser, telling_minutes

ROOFLINE = "roofline"
FULL = Settings(rounds=5, seconds=0.3)
QUICK = Settings(rounds=1, seconds=0.01, small=True)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    about = {name: row.about for name, row in ROWS.items()}
    about[ROOFLINE] = "the machine's peaks, and what kernels reach"
    made = parser("cpu", __doc__, about)
    made.add_argument("--quick", action="store_true", help="small models, a moment each")
    made.add_argument(
        "--threads", type=int, nargs="+", default=[1, 0], help="numbers of threads; 0 is all"
    )
    made.add_argument("--rounds", type=int, help=f"turns per engine, {FULL.rounds} by default")
    made.add_argument("--seconds", type=float, help=f"length of a turn, {FULL.seconds} by default")
    return made.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Returns 0 if all outputs are right and all limits hold, else 1."""
    parsed = parse(arguments)
    given = QUICK if parsed.quick else FULL
    settings = Settings(
        rounds=parsed.rounds or given.rounds,
        seconds=parsed.seconds or given.seconds,
        small=given.small,
    )
    names = parsed.names or [*ROWS, ROOFLINE]
    title = "cpu-quick" if parsed.quick else "cpu"
    parsed.output.mkdir(parents=True, exist_ok=True)
    target = parsed.output / f"{title}.json"
    kept = report.read(target) if parsed.names and target.exists() else report.Results()
    kept.machine = machine()
    with telling_minutes(), tempfile.TemporaryDirectory(prefix="bench-") as folder:
        for number, name in enumerate(names, 1):
            tell(f"[{number}/{len(names)}] {name}")
            if name == ROOFLINE:
                kept.roofline = measure_roofline(parsed.threads, quick=parsed.quick)
            else:
                kept.add(compare(name, parsed.threads, settings, Path(folder)))
    report.save(kept, target)
    print(report.as_markdown(kept))
    measured = [outcome for outcome in kept.outcomes if outcome.name in names]
    return int(any(not outcome.holds for outcome in measured if not parsed.quick))


if __name__ == "__main__":
    sys.exit(main())
