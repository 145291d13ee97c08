"""Runs that take less time than the handover to a thread: the event loop runs them itself.

A handover to a thread and back takes about 80 us, and longer if threads compete for the
interpreter. A signature (sizes of the inputs, outputs) whose runs were short runs in the event
loop's thread, under a time limit. A run over the limit is stopped there, runs again in a thread,
and its signature stays with threads. A model has no side effects, so nobody notices.

A run's time is its thread's CPU time, which a busy machine does not change, or a tenth of its wall
time if that is more, because runs that wait for a device are long too.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Final

from tenonnx.process.interruption import Stopped
from tenonnx_serve.model import Model
from tenonnx_serve.requests import Array, Request
from tenonnx_serve.statistics import Execution, Spent

# The longest run, in nanoseconds of CPU time, that counts as short: a little more than a handover.
MAX_SHORT_RUN_NS: Final = 100_000

# Short runs in threads after which the event loop runs a signature: one may be chance.
MIN_SHORT_RUNS: Final = 3

# The time limit of a run in the event loop: no other request is answered meanwhile.
INLINE_RUN_SECONDS: Final = 0.005

# Wall seconds that count as one CPU second.
WALL_PER_CPU_SECOND: Final = 10

# Further short runs that a signature needs after one over the limit; four times as many each
# time. The data of one request may take longer than others'.
FIRST_PENALTY_RUNS: Final = 8

# After so many short runs, another long one counts as the first.
MIN_RUNS_BETWEEN_LONG: Final = 200

# The most signatures to remember of a model, because clients choose them.
MAX_SIGNATURES: Final = 64


@dataclass(slots=True)
class RunRecord:
    """The runs of a signature so far.

    Attributes:
        short: Short runs in threads, less the cost of long ones.
        stopped: Whether a run was stopped, which a thread now repeats.
        penalty: The cost of the next long run.
        done: Runs in the event loop since the last long one.
    """

    short: int = 0
    stopped: bool = False
    penalty: int = FIRST_PENALTY_RUNS
    done: int = 0

    def took(self, ns: int) -> None:
        """Record the time of a run in a thread."""
        stopped, self.stopped = self.stopped, False
        if ns < MAX_SHORT_RUN_NS:
            self.short += 1
        elif stopped and ns > 10 * MAX_SHORT_RUN_NS:
            rare = self.done > MIN_RUNS_BETWEEN_LONG
            self.penalty = FIRST_PENALTY_RUNS if rare else min(4 * self.penalty, 1 << 30)
            self.short, self.done = MIN_SHORT_RUNS - self.penalty, 0


class InlineTimeLimit:
    """The time limit of a run in the event loop."""

    __slots__ = ("_began", "_end")

    def __init__(self) -> None:
        self._began = time.thread_time()
        self._end = time.perf_counter() + INLINE_RUN_SECONDS

    def check(self) -> None:
        """Raise ``Stopped`` if the run is over its limit."""
        if self.is_over():
            raise Stopped("a run that was short before is over its limit")

    def is_over(self) -> bool:
        """Return whether the run is over its limit."""
        over = time.perf_counter() - self._end
        if over <= 0:  # reading the wall clock takes a tenth of reading the thread's
            return False
        if over > WALL_PER_CPU_SECOND * INLINE_RUN_SECONDS:
            return True
        return time.thread_time() - self._began > INLINE_RUN_SECONDS


class InlineRuns:
    """The runs of a model in the event loop, and the record by which a signature is short.

    Attributes:
        has_short_runs: Whether any signature is short.
    """

    def __init__(self) -> None:
        self.has_short_runs = False
        self._records: dict[Any, RunRecord] = {}

    def run(self, model: Model, request: Request, rows: int) -> tuple[list[Array], Spent] | None:
        """Return the result of a short run; ``None`` if it is not known to be short."""
        record = self._records.get(_signature(request))
        if record is None or record.short < MIN_SHORT_RUNS or record.stopped:
            return None
        began, limit = time.perf_counter_ns(), InlineTimeLimit()
        try:
            outputs = model.run(request.inputs, request.names, limit)
        except Stopped:
            record.stopped = True
            return None
        ended = time.perf_counter_ns()
        record.done += 1
        # A step that checks no limit may have taken all of it.
        if ended - began > INLINE_RUN_SECONDS * 1e9 and limit.is_over():
            record.stopped = True
        run = Execution(began, began, ended, 1, rows)
        model.statistics.ran(run, ended)
        return outputs, Spent(0, rows, run)

    def note(self, request: Request, run: Execution) -> None:
        """Record the time of a run in a thread."""
        key = _signature(request)
        if (record := self._records.get(key)) is None:
            if len(self._records) >= MAX_SIGNATURES:
                return
            record = self._records[key] = RunRecord()
        record.took(max(run.busy, (run.ran - run.joined) // WALL_PER_CPU_SECOND))
        self.has_short_runs = any(one.short >= MIN_SHORT_RUNS for one in self._records.values())


def _signature(request: Request) -> tuple[Any, ...]:
    return (*[(name, array.shape) for name, array in request.inputs.items()], request.names)
