"""``python -m bench precision [OPERATOR ...]`` tells how far from exact answers are, in ulp.

Each operator runs alone, on numpy, by kernels and on onnxruntime, in every dtype. Operators named
alone replace their rows in the results kept.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from bench.machine import machine, tell
from bench.options import parser, telling_minutes
from bench.precision import models, pointwise, products, rows, table, windows
from bench.precision.case import DTYPES
from bench.precision.measure import ENGINES, Row, errors_of

CASES = [*pointwise.CASES, *rows.CASES, *products.CASES, *windows.CASES, *models.CASES]
OPERATORS = sorted({case.op for case in CASES})


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    made = parser("precision", __doc__, OPERATORS, "OPERATOR")
    made.add_argument("--dtype", choices=DTYPES, action="append", help="all by default")
    return made.parse_args(arguments)


def measured(names: Sequence[str], dtypes: Sequence[str]) -> list[Row]:
    """Return the errors of every engine, on every case of some operators."""
    found: list[Row] = []
    for case in CASES:
        if names and case.op not in names:
            continue
        for dtype in case.dtypes:
            if dtype not in dtypes:
                continue
            group = {engine: errors_of(case, dtype, engine) for engine in ENGINES}
            found += group.values()
            more, kind = table.worst(group)
            if more > table.ALLOWANCE:
                tell(f"{case.title}, {dtype}: worse by {more:.2f} ulp on {kind!r}")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if no error exceeds onnxruntime's by more than what is allowed, else 1."""
    parsed = parse(arguments)
    with telling_minutes():
        found = measured(parsed.names, parsed.dtype or list(DTYPES))
    print(table.as_markdown(found), end="")
    parsed.output.mkdir(parents=True, exist_ok=True)
    target = parsed.output / "precision.json"
    table.save(_merged(table.read(target), found), target, machine())
    return int(bool(table.marked(found)))


def _merged(kept: Sequence[Row], found: Sequence[Row]) -> list[Row]:
    """Return rows in the cases' order, new ones in place of old ones."""
    rows = {(row.case, row.dtype, row.engine): row for row in [*kept, *found]}
    order = [
        (case.title, dtype, engine) for case in CASES for dtype in case.dtypes for engine in ENGINES
    ]
    return [rows[key] for key in order if key in rows]


if __name__ == "__main__":
    sys.exit(main())
