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

SHORT_NS: Final = 100_000
"""A run that is worth it."""

NEEDED: Final = 3
"""Short runs that a signature is known after."""

LIMIT: Final = 0.005
"""Seconds of its thread's processor time that the event loop lets one take: on a busy machine more
than that may go by without the thread doing anything."""

PENALTY: Final = 8
"""Short runs more that a signature needs after one that took too long; four times as many each
time. The machine may have been busy, or the data of one request ask for more."""

MOST: Final = 64
"""Signatures that are known of a model: clients choose them."""


@dataclass(slots=True)
class Known:
    """What is known of a signature.

    Attributes:
        short: Short runs in threads, less what long ones cost.
        penalty: What the next long one costs.
    """

    short: int = 0
    penalty: int = PENALTY

    def was_long(self) -> None:
        """Notes a run that took too long for the event loop."""
        self.short = NEEDED - self.penalty
        self.penalty = min(4 * self.penalty, 1 << 30)


class Allowance:
    """A limit of a run that counts the time of its thread's processor."""

    __slots__ = ("_end",)

    def __init__(self) -> None:
        self._end = time.thread_time() + LIMIT

    def check(self) -> None:
        """Raises ``Stopped`` if it is used up."""
        if self.is_used_up():
            raise Stopped("this run is not as short as it was")

    def is_used_up(self) -> bool:
        """Says whether it is."""
        return time.thread_time() > self._end


class Quick:
    """Which runs of a model are short."""

    def __init__(self) -> None:
        self._known: dict[Any, Known] = {}

    def run(self, model: Model, request: Request, rows: int) -> tuple[list[Array], Spent] | None:
        """Returns what a short run comes to; ``None`` if it is not known to be short."""
        known = self._known.get(_signature(request))
        if known is None or known.short < NEEDED:
            return None
        allowance, began = Allowance(), time.perf_counter_ns()
        try:
            outputs = model.run(request.inputs, request.names, allowance)
        except Stopped:
            known.was_long()
            return None
        ended = time.perf_counter_ns()
        if ended - began > LIMIT * 1e9 and allowance.is_used_up():  # by a step that asks no limits
            known.was_long()
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
        known.short += run.ran - run.joined < SHORT_NS


def _signature(request: Request) -> tuple[Any, ...]:
    return (*[(name, array.shape) for name, array in request.inputs.items()], request.names)
