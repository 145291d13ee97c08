"""Outcomes of a run: it raises, crashes, hangs, or its outputs are not those expected."""

from __future__ import annotations

import enum
import signal
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tenonnx.errors import TenonnxError
from tenonnx.planning.differences import Limits, differences


class Kind(enum.StrEnum):
    """The ways in which a model fails, and the one in which it does not."""

    FINE = "fine"
    RAISES = "raises"
    CRASHES = "crashes"
    HANGS = "hangs"
    DIFFERS = "differs"


@dataclass(frozen=True)
class Outcome:
    """The end of opening and running a model.

    Attributes:
        kind: The way.
        place: Where: class, file and line of what was raised, or a signal's name. Two outcomes of
            one kind and place are the same failure.
        text: A sentence for people.
        outputs: The names of the outputs that differ.
    """

    kind: Kind
    place: str = ""
    text: str = ""
    outputs: tuple[str, ...] = ()

    def is_like(self, other: Outcome) -> bool:
        """Return whether both are the same failure."""
        return (self.kind, self.place) == (other.kind, other.place)


def raised(error: BaseException) -> Outcome:
    """Return the outcome of a run that raised."""
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    # Generated code has other names and lines in every model.
    frames = [f for f in traceback.extract_tb(cause.__traceback__) if f.filename[:1] != "<"]
    where = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    said = str(error.args[0]) if isinstance(error, TenonnxError) and error.args else str(error)
    name = type(cause).__name__
    return Outcome(Kind.RAISES, f"{name}{where}", f"{type(error).__name__}: {said}")


def crashed(code: int, said: str = "") -> Outcome:
    """Return the outcome of a process that ended by a signal, or with an exit code.

    Args:
        code: As ``subprocess`` has it: a negative one is a signal's number.
        said: The end of its output.
    """
    name = f"exit code {code}"
    if code < 0:
        known = {each.value: each.name for each in signal.Signals}
        name = known.get(-code, f"signal {-code}")
    more = f"; {said}" if said else ""
    return Outcome(Kind.CRASHES, name, f"the process ended with {name}{more}")


def compared(
    names: Sequence[str],
    found: Sequence[Any],
    expected: Sequence[Any],
    limits: Sequence[Limits],
) -> Outcome:
    """Return the outcome of a run whose outputs are compared with expected ones.

    Args:
        names: The outputs' names.
        found: The outputs.
        expected: The reference's, in the same order.
        limits: The tolerances of each.
    """
    rows = [
        differences([name], [value], [wanted], *both)[0]
        for name, value, wanted, both in zip(names, found, expected, limits, strict=True)
    ]
    beyond = [(row, value) for row, value in zip(rows, found, strict=True) if not row.agrees]
    if not beyond:
        return Outcome(Kind.FINE)
    row, value = beyond[0]
    text = row.sentence(value)
    return Outcome(Kind.DIFFERS, "", text, tuple(each.name for each, _ in beyond))
