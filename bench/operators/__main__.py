"""``python -m bench operators [--only NAME ...]`` times every operator alone, beside onnxruntime.

Rows follow from the declarations of both engines: each operator with a CPU kernel in onnxruntime,
each element type that both take, 1,000 elements and 1,000,000 (or less, for 10 ms of work), each
kind of axes, permutation and broadcast; on one thread and on all. A whole run takes half an hour.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence

from bench.machine import joined, machine, tell
from bench.operators import report
from bench.operators.declared import Operator, operators
from bench.operators.draw import SIZES
from bench.operators.forms import forms_of
from bench.operators.measure import Row, brief, rows_of
from bench.options import parser, telling_minutes
from tenonnx.operators import OperatorTable
from tenonnx_array import TABLE
from tenonnx_contrib.listing import LISTING


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    made = parser("operators", __doc__, [])
    made.add_argument("--only", nargs="+", default=[], metavar="NAME", help="operators' names")
    made.add_argument("--limit", type=int, help="operators at most, in order of their names")
    made.add_argument("--kinds", nargs="+", default=[], help="element types of the first operand")
    made.add_argument("--sizes", nargs="+", default=list(SIZES), choices=SIZES)
    made.add_argument("--threads", type=int, nargs="+", default=[1, 0], help="0 is all")
    made.add_argument("--seconds", type=float, default=0.006, help="of a turn")
    made.add_argument("--turns", type=int, default=3, help="of each engine")
    return made.parse_args(arguments)


def measured(operator: Operator, parsed: argparse.Namespace) -> Iterator[Row]:
    """Yield the rows of an operator."""
    for types in operator.types():
        kind = types[operator.operands[0].kind] if operator.operands else ""
        if parsed.kinds and kind not in parsed.kinds:
            continue
        for size in map(SIZES.__getitem__, parsed.sizes):
            try:
                forms = forms_of(operator, size)
            except Exception as error:
                yield Row(operator.title, kind, "", size.name, 1, note=f"no form: {brief(error)}")
                break
            for form in forms:
                if form.only and kind not in form.only:
                    continue
                turn = parsed.seconds, parsed.turns
                try:
                    yield from rows_of(operator, form, size, types, turn, parsed.threads)
                except Exception as error:
                    note = f"no form: {brief(error)}"
                    yield Row(operator.title, kind, form.name, size.name, 1, note=note)


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if the bounds hold, else 1."""
    parsed = parse(arguments)
    contrib = OperatorTable.listed("tenonnx_contrib", LISTING, "com.microsoft")
    known = list(operators(TABLE.copy().update(contrib)))
    names = {name for each in known for name in (each.name, each.title)}
    if unknown := sorted(set(parsed.only) - names):
        raise SystemExit(f"onnxruntime or tenonnx has no operator {', '.join(unknown)}")
    wanted = [o for o in known if not parsed.only or {o.name, o.title} & set(parsed.only)]
    parsed.output.mkdir(parents=True, exist_ok=True)
    target = parsed.output / "operators.json"
    about, kept = report.read(target)
    about, every = joined(machine(), about), {}
    if parsed.only or parsed.kinds:
        every = {row.key: row for row in kept}
    found: list[Row] = []
    with telling_minutes():
        for number, operator in enumerate(wanted[: parsed.limit], 1):
            rows = list(measured(operator, parsed))
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
