"""Timing calls: in turn, so that a disturbance of the machine falls on all of them.

This imports the standard library alone: processes whose memory is measured use it, too.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

Call: TypeAlias = Callable[[], object]
Result = TypeVar("Result")

clock = time.perf_counter
# Between turns: the threads of the call before spin for a while and would be timed, too.
PAUSE_SECONDS = 0.02


def timed(call: Callable[[], Result]) -> tuple[Result, float]:
    """Return what a call returns, and the seconds it takes."""
    start = clock()
    result = call()
    return result, clock() - start


def seconds(call: Call) -> float:
    """Return how long a call takes."""
    return timed(call)[1]


def rounds(budget: float, least: int = 1, most: int | None = None) -> Iterator[int]:
    """Count rounds until some seconds are over, from the first one on.

    Args:
        budget: The seconds.
        least: Rounds there are at least, however long they take.
        most: Rounds there are at most.
    """
    end, number = clock() + budget, 0
    while (number < least or clock() < end) and number != most:
        yield number
        number += 1


def repeat(call: Call, budget: float, least: int = 1, most: int | None = None) -> Iterator[float]:
    """Yield how long each of many calls takes; the other arguments are those of ``rounds``."""
    for _ in rounds(budget, least, most):
        yield seconds(call)


@dataclass(frozen=True)
class Turn:
    """Runs of a call that follow each other.

    Attributes:
        runs: How many.
        fastest: Seconds of the fastest run.
        median: Seconds of the median run.
        processor: CPU seconds per run, of all threads of the process.
    """

    runs: int
    fastest: float
    median: float
    processor: float


def turn(call: Call, budget: float, least: int = 1) -> Turn:
    """Time a call for some seconds."""
    before = time.process_time()
    taken = list(repeat(call, budget, least))
    processor = (time.process_time() - before) / len(taken)
    return Turn(len(taken), min(taken), statistics.median(taken), processor)


@dataclass(frozen=True)
class Timing:
    """Seconds per run over all turns.

    Attributes:
        fastest: The fastest run.
        median: The median over turns of their median run.
        processor: CPU seconds per run.
        turns: The fastest run of each turn.
    """

    fastest: float
    median: float
    processor: float
    turns: tuple[float, ...]

    @classmethod
    def of(cls, turns: Sequence[Turn]) -> Timing:
        """Return what turns come to."""
        runs = sum(each.runs for each in turns)
        return cls(
            fastest=min(each.fastest for each in turns),
            median=statistics.median(each.median for each in turns),
            processor=sum(each.processor * each.runs for each in turns) / runs,
            turns=tuple(each.fastest for each in turns),
        )

    def ratios(self, base: Timing) -> dict[str, float]:
        """Return these times in units of another's; ``turn`` compares turn with turn."""
        pairs = zip(self.turns, base.turns, strict=True)
        return {
            "turn": statistics.median(mine / theirs for mine, theirs in pairs),
            "fastest": self.fastest / base.fastest,
            "median": self.median / base.median,
            "processor": self.processor / max(base.processor, 1e-9),
        }


def take_turns(
    turns: Sequence[Callable[[], Turn]],
    least: int,
    budget: float = 0.0,
    pause: float = PAUSE_SECONDS,
) -> list[Timing]:
    """Time in turn, the order reversed in every other round.

    Args:
        turns: What takes each turn.
        least: Rounds, or more of them until the budget is spent.
        budget: Seconds for all of them together.
        pause: Seconds before each turn.
    """
    told: list[list[Turn]] = [[] for _ in turns]
    for number in rounds(budget, least):
        for position in sorted(range(len(turns)), reverse=bool(number % 2)):
            if pause:
                time.sleep(pause)
            told[position].append(turns[position]())
    return [Timing.of(each) for each in told]


def alternate(
    calls: Sequence[Call],
    turn_seconds: float = 0.1,
    least: int = 5,
    budget: float = 0.0,
    pause: float = PAUSE_SECONDS,
) -> list[Timing]:
    """Time calls in turn, as ``take_turns``; each has run at least once before."""
    turns = [functools.partial(turn, call, turn_seconds) for call in calls]
    return take_turns(turns, least, budget, pause)


# Turns in a row without a gain, after which a call is as fast as it gets.
MAX_TURNS_WITHOUT_GAIN = 2

# The least gain: the part by which a turn's fastest run is faster than all runs before it.
MIN_GAIN = 0.03


@dataclass(frozen=True)
class Settling:
    """The time that a call took to become as fast as it gets.

    Attributes:
        seconds: How long it was run.
        runs: How often.
        settled: It gets no faster; it still did when the time was over if not.
    """

    seconds: float
    runs: int
    settled: bool


def settle(call: Call, budget: float, least: int = 0, turn_seconds: float = 0.1) -> Settling:
    """Run a call until it gets no faster.

    Memory, caches and threads are not what they will be in the first runs, and what is compiled or
    captured meanwhile comes later still.

    Args:
        call: What is to be timed afterwards.
        budget: Seconds after which to give up.
        least: Runs there are at least.
        turn_seconds: How long it runs between two looks.
    """
    start, best, still, runs = clock(), float("inf"), 0, 0
    while still < MAX_TURNS_WITHOUT_GAIN or runs < least:
        if clock() - start >= budget and runs >= least:
            return Settling(clock() - start, runs, settled=False)
        last = turn(call, turn_seconds)
        runs += last.runs
        still = still + 1 if last.fastest >= best * (1 - MIN_GAIN) else 0
        best = min(best, last.fastest)
    return Settling(clock() - start, runs, settled=True)
