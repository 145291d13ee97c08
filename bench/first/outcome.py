"""Reports of processes, and their medians."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.first.states import AGAIN, INSTALLED, PEER
from bench.first.table import Row
from bench.report import show

# A second process may take so much of onnxruntime's time from the import to its first answer, or so
# many seconds more than onnxruntime if that is longer.
OPENED_RATIO, OPENED_SECONDS = 1.3, 0.06

# The limit of the geometric mean of all rows, in units of onnxruntime's time.
OPENED_MEAN = 0.7

# A second process may take so much of onnxruntime's time to open an `.ort` file and run it.
ORT_OPENED = 1.5

# A first process may take so much of onnxruntime's time from the import to its first answer, if its
# model is large.
FIRST_RATIO = 1.5

# A run is at full speed if it takes at most so much of the warm time.
SLOWER = 1.1

# Runs whose median tells whether full speed is reached: one alone may be anything.
WINDOW = 5

# The figures of a process, and their titles.
#
# `answer_s` and `full_s` are counted from the start of the process. `warm_s` is the median of later
# runs.
COLUMNS = {
    "import_s": "import",
    "load_s": "session",
    "session_s": "answer after numpy",
    "opened_s": "import, session, first run",
    "answer_s": "first answer",
    "answer_cpu_s": "its CPU time",
    "second_s": "second run",
    "tenth_s": "tenth run",
    "warm_s": "warm",
    "ratio": "second / warm",
    "cpu_ratio": "of CPU time",
    "full_s": "full speed after",
    "ran_mib": "private MiB",
}


@dataclass
class Outcome:
    """A model in a state.

    Attributes:
        name: The row's.
        state: A key of ``states``.
        about: The state in words.
        trials: What each process came to, by column.
        note: Why there are none, or what is to be said of them.
        bounds: What was looked at, in words, and whether it holds.
    """

    name: str
    state: str
    about: str
    trials: list[dict[str, float]] = field(default_factory=list)
    note: str = ""
    bounds: dict[str, bool] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        """Whether there are values, and all bounds hold."""
        return bool(self.trials) and all(self.bounds.values())

    def median(self, column: str) -> float | None:
        """Return the median over processes; ``None`` if one of them has no such value."""
        found = [trial.get(column) for trial in self.trials]
        given = [value for value in found if value is not None]
        return statistics.median(given) if given and len(given) == len(found) else None

    def least(self, column: str) -> float | None:
        """Return the minimum over processes; ``None`` if one of them has no such value."""
        known = self.median(column) is not None
        return min(trial[column] for trial in self.trials) if known else None


def trial(facts: dict[str, Any], begun: float) -> dict[str, float]:
    """Return what a process came to.

    Args:
        facts: What it told.
        begun: When it was started, by the clock that it has, too.
    """
    early, warm = facts["early"], statistics.median(facts["warm"])
    answer = facts["answered"] - begun - facts["feeds_s"]
    found = {
        "import_s": facts["import_s"],
        "load_s": facts["load_s"],
        "first_s": facts["first_s"],
        "session_s": facts["import_s"] - facts["numpy_s"] + facts["load_s"] + facts["first_s"],
        "opened_s": facts["import_s"] + facts["load_s"] + facts["first_s"],
        "answer_s": answer,
        "second_s": early[0],
        "tenth_s": early[8],
        "warm_s": warm,
        "ratio": early[0] / warm,
        "answer_cpu_s": facts["answer_cpu_s"],
        "cpu_ratio": facts["second_cpu_s"] / facts["warm_cpu_s"],
        "ran_mib": facts["ran_mib"],
        "busy": facts["busy"],
    }
    found["full_s"] = answer + until_full_speed([*early, *facts["warm"]], warm)
    return found


def until_full_speed(runs: Sequence[float], warm: float) -> float:
    """Return the seconds of runs before the first from which they take the warm time."""
    for first in range(len(runs) - WINDOW + 1):
        if statistics.median(runs[first : first + WINDOW]) <= SLOWER * warm:
            return sum(itertools.islice(runs, first))
    return sum(runs)


def judge(outcomes: dict[str, Outcome], row: Row) -> None:
    """Look at the bounds of a row, whose outcomes are given by state."""
    mine = outcomes.get(INSTALLED)
    if mine is not None:
        mine.bounds |= _limited(mine, {"session_s": row.first_answer})
    again, peer = outcomes.get(AGAIN), outcomes.get(PEER)
    theirs = None if peer is None else peer.median("opened_s")
    if mine is not None and theirs is not None and row.is_large:
        mine.bounds |= _limited(mine, {"opened_s": FIRST_RATIO * theirs})
    if again is not None and again.trials:
        again.bounds |= _opening(again, peer, row)


def _opening(again: Outcome, peer: Outcome | None, row: Row) -> dict[str, bool]:
    """Look at how long a second process takes until its first answer."""
    bounds: dict[str, bool] = {}
    if peer is not None and (theirs := peer.median("opened_s")) is not None:
        limit = max(OPENED_RATIO * theirs, theirs + OPENED_SECONDS)
        bounds |= _limited(again, {"opened_s": limit})
    if row.ort and peer is not None and (ratio := session_ratio(again, peer)) is not None:
        bounds[f"session and first run {ratio:.2f} ≤ {ORT_OPENED:g}"] = ratio <= ORT_OPENED
    return bounds


def _limited(outcome: Outcome, limits: dict[str, float | None]) -> dict[str, bool]:
    """Look at seconds by column; those without a limit are left out, and those not known."""
    bounds = {}
    for column, limit in limits.items():
        mine = outcome.median(column)
        if mine is not None and limit is not None:
            text = f"{COLUMNS[column]} {show(column, mine)} ≤ {show(column, limit)}"
            bounds[text] = mine <= limit
    return bounds


def session_ratio(mine: Outcome, theirs: Outcome) -> float | None:
    """Return the time from the session's making to the first answer, in units of another's."""
    found = [each.median("load_s") for each in (mine, theirs)]
    runs = [each.median("first_s") for each in (mine, theirs)]
    if None in (*found, *runs):
        return None
    ours, others = (load + run for load, run in zip(found, runs, strict=True))  # type: ignore[operator] # neither is None
    return ours / others
