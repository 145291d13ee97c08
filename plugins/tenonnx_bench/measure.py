"""Measurements of contenders in turn, so that a disturbance affects all of them."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tenonnx import TenonnxError
from tenonnx.cli import timing
from tenonnx.cli.smoke import tiny_model
from tenonnx.planning.differences import differences, largest
from tenonnx_bench.peers import Open, Run

MIN_RUNS = 5
# A contender's turn in seconds; it has one run at least.
TURN_SECONDS = 0.05

Show = Callable[[str, float], None]


@dataclass
class Result:
    """The measurements of one contender.

    Attributes:
        name: The name given to ``--provider``.
        load_seconds: To open the model.
        first_seconds: The first run.
        settling: The time until runs got no faster.
        seconds: Every measured run.
        difference: Greatest absolute difference from the first contender's outputs; ``None``
            if they cannot be subtracted.
        error: The error that ended its part in the comparison.
    """

    name: str
    load_seconds: float | None = None
    first_seconds: float | None = None
    settling: timing.Settling | None = None
    seconds: list[float] = field(default_factory=list)
    difference: float | None = None
    error: Exception | None = None
    run: Run | None = None
    outputs: list[Any] = field(default_factory=list)

    def statistics(self) -> dict[str, float]:
        """Return the ``percentiles`` of the measured runs."""
        return percentiles(self.seconds)


def percentiles(seconds: Sequence[float]) -> dict[str, float]:
    """Return percentiles of runs in seconds, and the runs per second."""
    if not seconds:
        return {}
    return {
        "min": min(seconds),
        "median": statistics.median(seconds),
        "p90": float(np.percentile(seconds, 90)),
        "p99": float(np.percentile(seconds, 99)),
        "runs_per_second": len(seconds) / sum(seconds),
    }


def open_all(
    openers: Mapping[str, Open],
    path: str,
    feeds: Mapping[str, Any],
    show: Show,
) -> list[Result]:
    """Open a model for every contender and run it once."""
    results = []
    for name, open_model in openers.items():
        show(f"loading for {name}", 0)
        result = Result(name)
        results.append(result)
        try:
            _warm_up(open_model)
            run, result.load_seconds = timing.timed(functools.partial(open_model, path))
            result.outputs, result.first_seconds = timing.timed(functools.partial(run, feeds))
            result.run = run
        except (TenonnxError, MemoryError) as error:
            result.run, result.error = None, error
    _compare([result for result in results if result.error is None])
    return results


def settle_all(
    results: Sequence[Result], feeds: Mapping[str, Any], budget: float, least: int, show: Show
) -> None:
    """Run every contender until it gets no faster.

    Args:
        results: Contenders with an open model; others are left out.
        feeds: The inputs.
        budget: Seconds for each of them.
        least: Runs of each, at least.
        show: Takes progress: fractions of 1.
    """
    for result in results:
        if (run := result.run) is None:
            continue
        show("warming up", 0)
        result.settling = timing.settle(functools.partial(run, feeds), budget, least)


def _warm_up(open_model: Open) -> None:
    """Load the contender's code, so that it does not count as the model's time."""
    open_model(tiny_model())({"x": np.ones(4, np.float32)})


def race(
    results: Sequence[Result],
    feeds: Mapping[str, Any],
    *,
    repeat: int | None,
    seconds: float,
    show: Show,
) -> None:
    """Run the contenders in turn and record every run's time.

    Args:
        results: Contenders with an open model; others are left out.
        feeds: The inputs.
        repeat: Measured runs of each; as many as fit into ``seconds`` if ``None``.
        seconds: Time for each contender.
        show: Takes progress: fractions of 1.
    """
    racing = [(result.run, result.seconds) for result in results if result.run is not None]
    if not racing:
        return
    begin = timing.clock()
    while True:
        elapsed = (timing.clock() - begin) / len(racing)
        fewest = min(len(times) for _, times in racing)
        done = fewest / repeat if repeat else elapsed / seconds
        show("running in turn", min(done, 1))
        if done >= 1 and (repeat or fewest >= MIN_RUNS):
            return
        for run, times in racing:
            run(feeds)  # not counted: the other contender's threads may still spin
            left = None if repeat is None else repeat - len(times)
            times += timing.repeat(functools.partial(run, feeds), TURN_SECONDS, 1, left)


def _compare(results: Sequence[Result]) -> None:
    for result in results[1:]:
        names = [str(number) for number in range(len(result.outputs))]
        result.difference = largest(differences(names, result.outputs, results[0].outputs))
