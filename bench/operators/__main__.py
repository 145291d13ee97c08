"""``python -m bench operators [--only NAME ...]`` times every operator alone, beside onnxruntime.

Rows follow from the declarations of both engines: each operator with a CPU kernel in onnxruntime,
each element type that both take, 1,000 elements and 1,000,000 (or less, for 10 ms of work), each
kind of axes, permutation and broadcast; on one thread and on all. Each operator has a process and
a time limit: what ends a process, or is left out, is told as a row. A whole run takes half an hour.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace

from bench.machine import joined, machine, tell
from bench.operators import report
from bench.operators.child import Job
from bench.operators.declared import known
from bench.operators.draw import SIZES
from bench.operators.measure import Row
from bench.options import parser, telling_minutes
from bench.process import Child, Failed

# Seconds for an operator: Cast has the most rows, which take a third of that at rest.
OPERATOR_SECONDS = 300.0

# Starts the process of an operator.
COMMAND = (sys.executable, "-m", "bench.operators.child")

# Options that say what is measured of each operator.
CHOSEN = ("kinds", "sizes", "threads", "seconds", "turns")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    made = parser("operators", __doc__, [])
    made.add_argument("--only", nargs="+", default=[], metavar="NAME", help="operators' names")
    made.add_argument("--limit", type=int, help="operators at most, in order of their names")
    made.add_argument("--kinds", nargs="+", default=[], help="element types of the first operand")
    made.add_argument("--sizes", nargs="+", default=list(SIZES), choices=SIZES)
    made.add_argument("--threads", type=int, nargs="+", default=[1, 0], help="0 is all")
    made.add_argument("--seconds", type=float, default=0.006, help="of a turn")
    made.add_argument("--turns", type=int, default=3, help="of each engine")
    made.add_argument(
        "--longest", type=float, default=OPERATOR_SECONDS, metavar="SECONDS",
        help=f"for an operator's rows, {OPERATOR_SECONDS:g} by default: the rest is left out",
    )  # fmt: skip
    return made.parse_args(arguments)


def measured(job: Job, longest: float) -> Iterator[Row]:
    """Yield the rows of an operator, measured in a process of its own.

    If that ends before it has done, the last row says why, of the call that it was about.

    Args:
        job: What is measured.
        longest: Seconds after which the process is ended.
    """
    command = [*COMMAND, json.dumps(asdict(job))]
    begun = Row(job.title, "", "", "", 1)
    with contextlib.closing(Child(command, os.environ, longest)) as child:
        try:
            while (facts := child.hear()).pop("phase") == "row":
                row = report.row_of(facts)
                child.send()
                if row.ratio or row.note:
                    yield row
                begun = row
        except Failed as error:
            yield replace(begun, theirs=0, mine=0, ratio=0, processor=0, note=f"ended: {error}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if the bounds hold, else 1."""
    parsed = parse(arguments)
    every_operator = list(known())
    names = {name for each in every_operator for name in (each.name, each.title)}
    if unknown := sorted(set(parsed.only) - names):
        raise SystemExit(f"onnxruntime or tenonnx has no operator {', '.join(unknown)}")
    wanted = [o for o in every_operator if not parsed.only or {o.name, o.title} & set(parsed.only)]
    parsed.output.mkdir(parents=True, exist_ok=True)
    target = parsed.output / "operators.json"
    about, kept = report.read(target)
    about, every = joined(machine(), about), {}
    if parsed.only or parsed.kinds:
        every = {row.key: row for row in kept}
    chosen = {name: getattr(parsed, name) for name in CHOSEN}
    found: list[Row] = []
    with telling_minutes():
        for number, operator in enumerate(wanted[: parsed.limit], 1):
            rows = list(measured(Job(operator.title, **chosen), parsed.longest))
            found += rows
            every |= {row.key: row for row in rows}
            report.save(list(every.values()), target, about)
            ratio = report.mean([row.ratio for row in rows if row.ratio])
            told = f"{ratio:.2f}" if ratio else "no figures"
            tell(f"[{number}/{len(wanted)}] {operator.title}: {told} over {len(rows)} rows")
    print(report.as_markdown(found), end="")
    return int(not report.holds(found))


if __name__ == "__main__":
    sys.exit(main())
