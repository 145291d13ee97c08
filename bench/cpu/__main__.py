"""``python -m bench cpu [ROW ...]`` times whole models on the CPU beside onnxruntime.

Both engines have their options at their defaults but the number of threads. Each is a process of
its own; they take turns, and outputs are compared first. Rows named alone replace those rows of the
results kept, so that a table can be made in parts.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from bench.cpu import report
from bench.cpu.compare import ABSENT, UNASKED, Settings, compare
from bench.cpu.roofline import measure_roofline
from bench.cpu.table import ROWS, Table
from bench.machine import joined, machine, tell
from bench.options import parser, telling_minutes
from bench.page.figures import of_table
from bench.picture import draw

ROOFLINE = "roofline"
FULL = Settings(rounds=5)
QUICK = Settings(rounds=1, seconds=0.01, small=True)
CPU = Table("cpu", __doc__, ROWS, roofline=True)


def parse(arguments: list[str] | None, table: Table = CPU) -> argparse.Namespace:
    about = {name: row.about for name, row in table.rows.items()}
    if table.roofline:
        about[ROOFLINE] = "the machine's peaks, and what kernels reach"
    made = parser(table.name, table.about, about)
    made.add_argument("--quick", action="store_true", help="small models, a moment each")
    made.add_argument(
        "--threads", type=int, nargs="+", default=table.threads, help="numbers of them; 0 is all"
    )
    made.add_argument("--rounds", type=int, help=f"turns per engine, {FULL.rounds} by default")
    made.add_argument("--seconds", type=float, help=f"length of a turn, {table.seconds} by default")
    if table.peers:
        made.add_argument(
            "--peers", nargs="*", choices=table.peers, default=list(table.peers), metavar="ENGINE",
            help=f"who takes turns besides onnxruntime, where installed: {', '.join(table.peers)}",
        )  # fmt: skip
    return made.parse_args(arguments)


def settings_of(parsed: argparse.Namespace, table: Table) -> Settings:
    """Return how much is to be measured: beside such peers as are installed."""
    given = QUICK if parsed.quick else FULL
    return Settings(
        rounds=parsed.rounds or given.rounds,
        seconds=parsed.seconds or (given.seconds if parsed.quick else table.seconds),
        small=given.small,
        peers={peer: _kept_out(parsed, peer, table) for peer in table.peers},
    )


def _kept_out(parsed: argparse.Namespace, peer: str, table: Table) -> str:
    """Return why a peer takes no turns; ``""`` if it does."""
    if peer not in parsed.peers:
        return UNASKED
    return "" if find_spec(table.peers[peer]) else ABSENT


def main(arguments: list[str] | None = None, table: Table = CPU) -> int:
    """Measure a table; return 0 if all outputs are right and all limits hold, else 1."""
    parsed = parse(arguments, table)
    settings = settings_of(parsed, table)
    names = parsed.names or [*table.rows, *[ROOFLINE] * table.roofline]
    title = f"{table.name}-quick" if parsed.quick else table.name
    parsed.output.mkdir(parents=True, exist_ok=True)
    target = parsed.output / f"{title}.json"
    if parsed.names and target.exists():
        kept = report.read(target, table.rows)
    else:
        kept = report.Results(rows=table.rows)
    kept.machine = joined(machine(), kept.machine)
    with telling_minutes(), tempfile.TemporaryDirectory(prefix="bench-") as folder:
        for number, name in enumerate(names, 1):
            tell(f"[{number}/{len(names)}] {name}")
            if name == ROOFLINE:
                kept.roofline = measure_roofline(parsed.threads, quick=parsed.quick)
                continue
            row = table.rows[name]
            kept.add(compare(name, row, parsed.threads, settings, Path(folder)))
            report.save(kept, target)
    report.save(kept, target)
    draw(target.with_suffix(".png"), of_table(table)(target))
    print(report.as_markdown(kept))
    measured = [outcome for outcome in kept.outcomes if outcome.name in names]
    return int(any(not outcome.holds for outcome in measured if not parsed.quick))


if __name__ == "__main__":
    sys.exit(main())
