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

# The longest run in seconds that counts as short.
SHORT_NS: Final = 100_000

# Short runs after which a signature is known to be short.
NEEDED: Final = 3

# The time limit in seconds of a run in the event loop.
LIMIT: Final = 0.005

# Wall seconds that count as one CPU second.
WAITING: Final = 10

# Further short runs that a signature needs after one over the limit; four times as many each
# time. The data of one request may take longer than others'.
PENALTY: Final = 8

# After so many short runs, another long one counts as the first.
SELDOM: Final = 200

# The most signatures to remember of a model, because clients choose them.
MAX_SIGNATURES: Final = 64


@dataclass(slots=True)
class Known:
    """The record of a signature.

    Attributes:
        short: Short runs in threads, less the cost of long ones.
        stopped: Whether a run was stopped, which a thread now repeats.
        penalty: The cost of the next long run.
        done: Runs in the event loop since the last long one.
    """

    short: int = 0
    stopped: bool = False
    penalty: int = PENALTY
    done: int = 0

    def took(self, ns: int) -> None:
        """Record the time of a run in a thread."""
        stopped, self.stopped = self.stopped, False
        if ns < SHORT_NS:
            self.short += 1
        elif stopped and ns > 10 * SHORT_NS:
            self.penalty = PENALTY if self.done > SELDOM else min(4 * self.penalty, 1 << 30)
            self.short, self.done = NEEDED - self.penalty, 0


class Brief:
    """The time limit of a run in the event loop."""

    __slots__ = ("_began", "_end")

    def __init__(self) -> None:
        self._began = time.thread_time()
        self._end = time.perf_counter() + LIMIT

    def check(self) -> None:
        """Raise ``Stopped`` if the run is over its limit."""
        if self.is_over():
            raise Stopped("a run that was short before is over its limit")

    def is_over(self) -> bool:
        """Return whether the run is over its limit."""
        over = time.perf_counter() - self._end
        if over <= 0:
            return False
        return over > WAITING * LIMIT or time.thread_time() - self._began > LIMIT


class Quick:
    """The judgment of which runs of a model are short.

    Attributes:
        hopeful: Whether any signature is short.
    """

    def __init__(self) -> None:
        self.hopeful = False
        self._known: dict[Any, Known] = {}

    def run(self, model: Model, request: Request, rows: int) -> tuple[list[Array], Spent] | None:
        """Return the result of a short run; ``None`` if it is not known to be short."""
        known = self._known.get(_signature(request))
        if known is None or known.short < NEEDED or known.stopped:
            return None
        began, brief = time.perf_counter_ns(), Brief()
        try:
            outputs = model.run(request.inputs, request.names, brief)
        except Stopped:
            known.stopped = True
            return None
        ended = time.perf_counter_ns()
        known.done += 1
        if ended - began > LIMIT * 1e9 and brief.is_over():  # in a step that checks no limit
            known.stopped = True
        run = Execution(began, began, ended, 1, rows)
        model.statistics.ran(run, ended)
        return outputs, Spent(0, rows, run)

    def note(self, request: Request, run: Execution) -> None:
        """Record the time of a run in a thread."""
        key = _signature(request)
        if (known := self._known.get(key)) is None:
            if len(self._known) >= MAX_SIGNATURES:
                return
            known = self._known[key] = Known()
        known.took(max(run.busy, (run.ran - run.joined) // WAITING))
        self.hopeful = any(one.short >= NEEDED for one in self._known.values())


def _signature(request: Request) -> tuple[Any, ...]:
    return (*[(name, array.shape) for name, array in request.inputs.items()], request.names)
