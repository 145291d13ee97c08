"""``python -m bench first [ROW ...]`` measures what a user meets who has just installed.

Every measurement is a fresh process that finds no file of an earlier one but kernels that are
installed, or stand for these in the user's cache. Engines take turns. For each model it tells how
long the import, the first answer, the second and the tenth run take, when full speed is reached,
and private memory: of onnxruntime, and of tenonnx with its kernels, again after a process that
opened the same model, and on numpy alone. What is measured replaces that of the results kept.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.first import report
from bench.first.compare import Comparison, Settings
from bench.first.install import has_kernels, measure_installs, said
from bench.first.states import AGAIN, INSTALLED, STATES, cached
from bench.first.table import ROWS, Table
from bench.machine import joined, tell
from bench.options import parser, telling_minutes
from bench.page.figures import of_openings
from bench.picture import draw
from bench.process import ROOT

FULL = Settings(rounds=3, budget=0.3)
QUICK = Settings(rounds=1, budget=0.01, small=True)
FIRST = Table("first", __doc__, ROWS)


def parse(arguments: list[str] | None, table: Table = FIRST) -> argparse.Namespace:
    about = {name: row.about for name, row in table.rows.items()}
    made = parser(table.name, table.about, about)
    states = "\n".join(f"  {name:20} {state.about}" for name, state in STATES.items())
    made.epilog = f"{made.epilog}\n\nSTATE:\n{states}"
    made.add_argument("--quick", action="store_true", help="small models, a moment each")
    made.add_argument(
        "--states",
        nargs="+",
        choices=STATES,
        default=list(table.states),
        metavar="STATE",
        help=f"what to measure it in; {', '.join(table.states)} by default",
    )
    made.add_argument("--rounds", type=int, help=f"processes, {FULL.rounds} by default")
    made.add_argument("--threads", type=int, default=0, help="0, the default: as engines choose")
    made.add_argument(
        "--install",
        action="store_true",
        help="install this clone, its wheel and onnxruntime into new environments first, and "
        "measure those; takes minutes and a network",
    )
    made.add_argument(
        "--python",
        default=sys.executable,
        metavar="PATH",
        help="measure what this interpreter has, not the one that runs this",
    )
    return made.parse_args(arguments)


def settings_of(parsed: argparse.Namespace) -> Settings:
    """Return how much is to be measured."""
    given = QUICK if parsed.quick else FULL
    return Settings(
        rounds=parsed.rounds or given.rounds,
        budget=given.budget,
        small=given.small,
        threads=parsed.threads,
    )


def about(python: str) -> dict[str, Any]:
    """Describe the machine, what an interpreter has, and which commit was measured."""
    code = "import json; from bench.machine import machine; print(json.dumps(machine()))"
    told: dict[str, Any] = json.loads(said([python, "-c", code], ROOT))
    return told


def main(arguments: list[str] | None = None, table: Table = FIRST) -> int:
    """Measure a table; return 0 if all outputs are right and all bounds hold, else 1."""
    parsed = parse(arguments, table)
    settings = settings_of(parsed)
    parsed.output.mkdir(parents=True, exist_ok=True)
    target = parsed.output / f"{table.name}{'-quick' if parsed.quick else ''}.json"
    results = report.Results(table=table.rows)
    if target.exists():
        results = report.read(target, table.rows)
    names = parsed.names or list(table.rows)
    with telling_minutes(), tempfile.TemporaryDirectory(prefix="bench-") as folder:
        python = parsed.python
        if parsed.install:
            python, results.installs = measure_installs(Path(folder))
        results.machine = joined(about(python), results.machine if parsed.names else {})
        chosen = {name: STATES[name] for name in STATES if name in parsed.states}
        if not has_kernels(python):
            chosen |= {name: cached(chosen[name]) for name in (INSTALLED, AGAIN) if name in chosen}
        comparison = Comparison(chosen, settings, python, Path(folder))
        for number, name in enumerate(names, 1):
            tell(f"[{number}/{len(names)}] {name}")
            results.add(comparison.run(name, table.rows[name]))
            report.save(results, target)
    draw(target.with_suffix(".png"), of_openings(table)(target))
    print(report.as_markdown(results))
    measured = [each for each in results.rows if each.name in names]
    holds = all(each.holds for each in measured) and results.holds
    return int(not (parsed.quick or holds))


if __name__ == "__main__":
    sys.exit(main())
