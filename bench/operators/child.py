"""The process that measures one operator: it tells each row, and before that which one it is."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bench.child import tell
from bench.operators.declared import Operator, known
from bench.operators.draw import SIZES
from bench.operators.forms import forms_of
from bench.operators.measure import Row, brief, rows_of


@dataclass(frozen=True)
class Job:
    """The part of an operator's rows that is measured.

    Attributes:
        title: The operator's.
        kinds: Element types of its first operand; all if empty.
        sizes: The sizes' names.
        threads: Numbers of threads; 0 is all.
        seconds, turns: Seconds of a turn, and how many there are of each engine.
    """

    title: str
    kinds: list[str]
    sizes: list[str]
    threads: list[int]
    seconds: float
    turns: int


def measured(operator: Operator, job: Job) -> Iterator[Row]:
    """Yield the rows of an operator, each after a row without figures of what is to come."""
    for types in operator.types():
        kind = types[operator.operands[0].kind] if operator.operands else ""
        if job.kinds and kind not in job.kinds:
            continue
        for size in map(SIZES.__getitem__, job.sizes):
            try:
                forms = forms_of(operator, size)
            except Exception as error:
                yield Row(operator.title, kind, "", size.name, 1, note=f"no form: {brief(error)}")
                break
            for form in forms:
                if form.only and kind not in form.only:
                    continue
                begun = Row(operator.title, kind, form.name, size.name, job.threads[0])
                yield begun
                turn = job.seconds, job.turns
                try:
                    yield from rows_of(operator, form, size, types, turn, job.threads)
                except Exception as error:
                    note = f"no form: {brief(error)}"
                    yield Row(operator.title, kind, form.name, size.name, 1, note=note)


def main(job: Job) -> None:
    """Tell every row, and then that there are no more."""
    (operator,) = (each for each in known() if each.title == job.title)
    for row in measured(operator, job):
        tell("row", **row.as_dict())
    tell("done")


if __name__ == "__main__":
    facts: dict[str, Any] = json.loads(sys.argv[1])
    main(Job(**facts))
