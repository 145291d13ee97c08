"""How the compiler and the program share the cores: runs are to notice little of it.

A product of OpenBLAS's waits for the slowest of its threads, and these yield their core to whatever
else wants it: beside a compiler a run may take three times as long, and at the lowest priority the
compiler gets no time at all. So they take turns. In the compiler's, numpy's products leave it a
core; in the program's it is stopped. The compiler has less than half of the time: the median run
has all cores. It is not stopped where the program does nothing, or the other cores do for it.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable

from tenonnx.cores import available_cores
from tenonnx.planning.blas import leaving

TICK_SECONDS = 0.02
"""Between two looks at what the program does."""

COMPILERS_SECONDS, PROGRAMS_SECONDS = 0.08, 0.12
"""How long a turn is."""

CALM_SECONDS = 2.0
"""For how long the compiler goes on once the program was seen to need one core less."""

BUSY = 0.25
"""Of the time of a core: who takes more computes something."""

ENOUGH = 9
"""Cores of which one more or less matters little."""


class Turns:
    """Whose turn it is; to be told the time, every few hundredths of a second.

    Args:
        send: Sends the compiler a signal.
        cores: How many there are.
    """

    def __init__(self, send: Callable[[int], None], cores: int | None = None) -> None:
        self._send = send
        self._cores = cores or available_cores()
        self._left = contextlib.ExitStack()
        self._is_stopped = False
        self._end = 0.0
        self._time, self._spent = time.monotonic(), time.process_time()
        self._turn = self._time, self._spent

    def __enter__(self) -> Turns:
        self._left.enter_context(leaving(1))
        return self

    def __exit__(self, *failure: object) -> None:
        self._left.close()

    def tick(self) -> None:
        """Looks what the program did since the last time, and changes turns if it is time."""
        now, spent = time.monotonic(), time.process_time()
        is_busy = spent - self._spent > BUSY * (now - self._time)
        self._time, self._spent = now, spent
        if not 1 < self._cores < ENOUGH:
            return
        if self._is_stopped:
            if not is_busy or now >= self._end:
                self._resume(now, spent)
        elif not is_busy:
            self._end = 0.0
        elif now >= self._end:
            self._left.close()
            self._send(signal.SIGSTOP)
            self._is_stopped, self._end, self._turn = True, now + PROGRAMS_SECONDS, (now, spent)

    def _resume(self, now: float, spent: float) -> None:
        begin, before = self._turn
        needs_all = spent - before > (self._cores - 1 + BUSY) * (now - begin)
        self._end = now + (COMPILERS_SECONDS if needs_all else CALM_SECONDS)
        self._is_stopped = False
        self._left.enter_context(leaving(1))
        self._send(signal.SIGCONT)
