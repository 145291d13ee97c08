"""How the compiler and the program share the cores."""

from __future__ import annotations

import signal

import pytest

from tenonnx.planning import blas
from tenonnx_cpu.jit import sharing
from tenonnx_cpu.jit.sharing import TICK_SECONDS, Turns


class Clock:
    """Time that passes when it is told to, and a program that computes meanwhile."""

    def __init__(self) -> None:
        self.now = self.spent = 0.0

    def monotonic(self) -> float:
        return self.now

    def process_time(self) -> float:
        return self.spent


def compilers_share(
    monkeypatch: pytest.MonkeyPatch, busy: float, cores: int, seconds: float = 10
) -> float:
    """Returns the share of the time in which the compiler runs beside a program.

    Args:
        monkeypatch: Of the test.
        busy: How many cores the program keeps busy if it can.
        cores: How many there are.
        seconds: How long to look.
    """
    clock, signals, ran = Clock(), [signal.SIGCONT], 0
    monkeypatch.setattr(sharing, "time", clock)
    turns = Turns(signals.append, cores)
    ticks = round(seconds / TICK_SECONDS)
    with turns:
        for _ in range(ticks):
            runs = signals[-1] == signal.SIGCONT
            ran += runs
            clock.now += TICK_SECONDS
            clock.spent += TICK_SECONDS * min(busy, cores - 1 if runs else cores)
            turns.tick()
    return ran / ticks


@pytest.mark.parametrize(
    ("busy", "cores", "least", "most"),
    [
        (0.0, 2, 1, 1),  # nothing runs
        (0.1, 2, 1, 1),
        (1.0, 2, 0.9, 1),  # one thread: the compiler has the other core
        (2.0, 2, 0.35, 0.45),
        (3.0, 4, 0.9, 1),
        (4.0, 4, 0.35, 0.45),
        (16.0, 16, 1, 1),
        (1.0, 1, 1, 1),  # by priority alone
    ],
)
def test_runs_have_all_cores_more_than_half_of_the_time(
    busy: float, cores: int, least: float, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert least <= compilers_share(monkeypatch, busy, cores) <= most


def test_products_leave_the_compiler_a_core_in_its_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    library = blas.openblas()
    if library is None or library.own or library.get() < 2:
        pytest.skip("numpy's products use one thread here, or another library's")
    clock, before = Clock(), library.get()
    monkeypatch.setattr(sharing, "time", clock)
    seen = set()

    def send(number: int) -> None:
        seen.add((number, library.get() == before))

    with Turns(send, 2) as turns:
        assert library.get() == before - 1
        for _ in range(50):
            clock.now += TICK_SECONDS
            clock.spent += 2 * TICK_SECONDS
            turns.tick()
    assert seen == {(signal.SIGSTOP, True), (signal.SIGCONT, False)}
    assert library.get() == before
