"""A provider's score in ONNX's suite: passed cases, where they run, and its gaps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from types import ModuleType
from typing import Final

import onnx

from tenonnx.session import InferenceSession

# Stands for the operator of a model that has several nodes.
SEVERAL: Final = ""


class Outcome(StrEnum):
    """The outcome of a case."""

    SUPPORTED = "runs on the provider"
    HELPED = "runs on the provider, but numpy computes"
    BODY = "runs on the provider by the operator's function body"
    PARTLY = "runs partly on the provider"
    ELSEWHERE = "runs on another provider"
    LACKS = "the array library lacks"
    FAILED = "fails"
    SKIPPED = "skipped"


@dataclass
class Score:
    """A provider's results in the suite, with the CPU's behind it.

    Attributes:
        passed: Cases that pass, by how many of their nodes were the provider's: "all", "some"
            or "none".
        failed: Cases that fail, with what went wrong.
        skipped: Cases that a missing package keeps from running, with which one.
        rows: The table's rows: the number of cases with an outcome, and their operators. The text
            names the functions that the library lacks, or says why cases are skipped.
    """

    passed: dict[str, int] = field(default_factory=lambda: {"all": 0, "some": 0, "none": 0})
    failed: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    rows: dict[tuple[Outcome, str], Counter[str]] = field(default_factory=dict)

    @property
    def cases(self) -> int:
        """The number of cases that ran."""
        return sum(self.passed.values()) + len(self.failed)

    @property
    def surprises(self) -> dict[str, str]:
        """Cases that fail, but not for a function that the library lacks."""
        return {case: why for case, why in self.failed.items() if not why.startswith(Outcome.LACKS)}

    def count(self, outcome: Outcome, operator: str, detail: str = "") -> None:
        """Add a case to the table."""
        self.rows.setdefault((outcome, detail), Counter())[operator] += 1

    def table(self) -> list[tuple[int, str, str]]:
        """Return rows of a number of cases, their outcome, and their operators."""
        order = list(Outcome)
        found = sorted(self.rows.items(), key=lambda row: (order.index(row[0][0]), row[0][1]))
        return [
            (operators.total(), f"{outcome}: {detail}" if detail else outcome, _names(operators))
            for (outcome, detail), operators in found
        ]

    def __str__(self) -> str:
        """Return one line."""
        skipped = f"; {len(self.skipped)} skipped" if self.skipped else ""
        return (
            f"{sum(self.passed.values())} of {self.cases} pass: {self.passed['all']} on the "
            f"provider alone, {self.passed['some']} partly, {self.passed['none']} on others"
            f"{skipped}"
        )


# Operators that a row names.
MAX_NAMES: Final = 6


def _names(operators: Counter[str]) -> str:
    names = sorted(operators.keys() - {SEVERAL})
    left = len(names) - MAX_NAMES
    several = ["models of several nodes"] if operators[SEVERAL] else []
    shown = names if left <= 1 else [*names[:MAX_NAMES], f"{left} other operators"]
    return ", ".join(shown + several)


def operator_of(model: onnx.ModelProto) -> str:
    """Return the operator that a case is about; ``SEVERAL`` if it has more than one node."""
    (first, *others) = model.graph.node
    return SEVERAL if others else f"{first.domain}::{first.op_type}".removeprefix("::")


def has_node(session: InferenceSession, operator: str) -> bool:
    """Return whether an operator runs as itself, not as the body that its schema gives it."""
    name = operator.rpartition("::")[2]
    return any(assignment.node.op_type == name for assignment in session.placement)


def why_declined(session: InferenceSession, provider: str) -> str:
    """Return a provider's reason for the first node that it declined, if there is one."""
    reasons = (each.reasons.get(provider) for each in session.placement.elsewhere())
    return next(filter(None, reasons), "")


def by_numpy(session: InferenceSession, provider: str) -> str:
    """Return the functions that numpy computed in a library's place, of a provider's nodes."""
    found: set[str] = set()
    for each in session._providers:
        if each.name == provider:
            found.update(getattr(getattr(each, "xp", None), "by_numpy", ()))
    return ", ".join(sorted(found))


def missing_package(error: BaseException) -> str | None:
    """Return what a kernel says that is to be installed.

    Such an ``ImportError`` is raised in words and names no module. One that Python raises does:
    it may be a misspelt import, and fails the case.
    """
    for cause in _causes(error):
        if isinstance(cause, ImportError) and cause.name is None:
            return str(cause)
    return None


def missing_function(error: BaseException, library: str) -> str | None:
    """Return the name that a kernel asked of a library, or of its arrays, in vain.

    Args:
        error: A case's exception.
        library: The module that has numpy's names.
    """
    root = library.partition(".")[0]
    for cause in _causes(error):
        if not isinstance(cause, AttributeError) or cause.name is None:
            continue
        where = cause.obj if isinstance(cause.obj, ModuleType) else type(cause.obj)
        home = where.__name__ if isinstance(where, ModuleType) else where.__module__
        if home.partition(".")[0] == root:
            return f"{where.__name__}.{cause.name}"
    return None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
