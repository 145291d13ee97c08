"""Runs that take less time than a thread takes to begin one: the event loop does them itself.

Handing a run to a thread and back takes about 80 us, and waits longer where threads compete for
the interpreter. A signature (sizes of the inputs, outputs) whose runs were found to be short runs
in the event loop's thread, under a limit: if it takes longer this time, it is stopped there, done
again in a thread, and stays with threads. A model has no effects, so that nobody notices.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Final

from tenonnx.interruption import Stopped
from tenonnx_serve.model import Model
from tenonnx_serve.requests import Array, Request
from tenonnx_serve.statistics import Execution, Spent
from tenonnx_serve.threads import Stop

SHORT_NS: Final = 100_000
"""A run that is worth it."""

NEEDED: Final = 3
"""Short runs that a signature is known after."""

LIMIT: Final = 0.005
"""Seconds that the event loop lets one take."""

PENALTY: Final = 8
"""Short runs more that a signature needs after one that took too long; four times as many each
time. The machine may have been busy, or the data of one request ask for more."""

SELDOM: Final = 200
"""Short runs between two long ones that make the second one count as the first."""

MOST: Final = 64
"""Signatures that are known of a model: clients choose them."""


@dataclass(slots=True)
class Known:
    """What is known of a signature.

    Attributes:
        short: Short runs in threads, less what long ones cost.
        stopped: Whether one took too long, which a thread now does again.
        penalty: What the next long one costs.
        done: Runs in the event loop since the last long one.
    """

    short: int = 0
    stopped: bool = False
    penalty: int = PENALTY
    done: int = 0

    def took(self, ns: int) -> None:
        """Notes how long a run in a thread took."""
        stopped, self.stopped = self.stopped, False
        if ns < SHORT_NS:
            self.short += 1
        elif stopped and ns > 10 * SHORT_NS:  # it was not the machine that was busy
            self.penalty = PENALTY if self.done > SELDOM else min(4 * self.penalty, 1 << 30)
            self.short, self.done = NEEDED - self.penalty, 0


class Quick:
    """Which runs of a model are short."""

    def __init__(self) -> None:
        self._known: dict[Any, Known] = {}

    def run(self, model: Model, request: Request, rows: int) -> tuple[list[Array], Spent] | None:
        """Returns what a short run comes to; ``None`` if it is not known to be short."""
        known = self._known.get(_signature(request))
        if known is None or known.short < NEEDED or known.stopped:
            return None
        began = time.perf_counter_ns()
        try:
            outputs = model.run(request.inputs, request.names, Stop(LIMIT))
        except Stopped:
            known.stopped = True
            return None
        ended = time.perf_counter_ns()
        known.done += 1
        if ended - began > 2 * LIMIT * 1e9:  # maybe by a step that asks no limits
            known.stopped = True
        run = Execution(began, began, ended, 1, rows)
        model.statistics.ran(run, ended)
        return outputs, Spent(0, rows, run)

    def note(self, request: Request, run: Execution) -> None:
        """Notes how long a run in a thread took."""
        key = _signature(request)
        if (known := self._known.get(key)) is None:
            if len(self._known) >= MOST:
                return
            known = self._known[key] = Known()
        known.took(run.ran - run.joined)


def _signature(request: Request) -> tuple[Any, ...]:
    return (*[(name, array.shape) for name, array in request.inputs.items()], request.names)
