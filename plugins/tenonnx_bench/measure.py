"""Measuring contenders in turn, so that what disturbs one disturbs all."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tenonnx import TenonnxError
from tenonnx.cli import timing
from tenonnx.cli.memory import growth, private_bytes
from tenonnx.cli.smoke import tiny_model
from tenonnx_bench.contender import Open, Opened, Run

MIN_RUNS = 5
TURN_SECONDS = 0.05
"""How long a contender runs before it is the next one's turn, once at least."""

Show = Callable[[str, float], None]


@dataclass
class Result:
    """What was measured of one contender.

    Attributes:
        name: As given to ``--provider``.
        load_seconds: To open the model.
        compile_seconds: What kernels took that were compiled before and after the first run.
        first_seconds: The first run.
        seconds: Every measured run.
        private_bytes: Private memory that opening and the first run added, if known.
        difference: Greatest absolute difference from the first contender's outputs; ``None``
            if they cannot be subtracted.
        error: What went wrong; the contender is out of the race then.
    """

    name: str
    load_seconds: float | None = None
    compile_seconds: float = 0.0
    first_seconds: float | None = None
    seconds: list[float] = field(default_factory=list)
    private_bytes: int | None = None
    difference: float | None = None
    error: Exception | None = None
    run: Run | None = None
    outputs: list[Any] = field(default_factory=list)

    def statistics(self) -> dict[str, float]:
        """Returns the least, the median and the 90th percentile of the runs, in seconds."""
        if not self.seconds:
            return {}
        return {
            "min": min(self.seconds),
            "median": statistics.median(self.seconds),
            "p90": float(np.percentile(self.seconds, 90)),
        }


def open_all(
    openers: Mapping[str, Open],
    path: str,
    feeds: Mapping[str, Any],
    show: Show,
) -> list[Result]:
    """Opens a model for every contender and runs it there once."""
    results = []
    for name, open_model in openers.items():
        show(f"loading for {name}", 0)
        result = Result(name)
        results.append(result)
        try:
            _warm_up(open_model, show)
            before = private_bytes()
            run, result.load_seconds = timing.timed(functools.partial(open_model, path))
            result.compile_seconds = _compile(run, show)
            result.outputs, result.first_seconds = timing.timed(functools.partial(run, feeds))
            result.compile_seconds += _compile(run, show)  # what that asked for
            result.run = run
        except (TenonnxError, MemoryError) as error:
            result.error = error
            continue
        result.private_bytes = growth(before, private_bytes())
    _compare([result for result in results if result.error is None])
    return results


def _warm_up(open_model: Open, show: Show) -> None:
    """Loads the contender's code, so that times and memory are the model's alone."""
    run = open_model(tiny_model())
    _compile(run, show)
    run({"x": np.ones(4, np.float32)})


def _compile(run: Run, show: Show) -> float:
    """Waits until kernels are compiled, if the contender has some; returns how long."""
    return run.wait(show) if isinstance(run, Opened) else 0.0


def race(
    results: Sequence[Result],
    feeds: Mapping[str, Any],
    *,
    warmup: int,
    repeat: int | None,
    seconds: float,
    show: Show,
) -> None:
    """Runs the contenders in turn and notes every run's time.

    Args:
        results: Of contenders with the model open; the others stay out.
        feeds: The inputs.
        warmup: Rounds that do not count.
        repeat: Runs of each that do; as many as fit into ``seconds`` if ``None``.
        seconds: Time for each contender.
        show: Takes progress: fractions of 1.
    """
    racing = [(result.run, result.seconds) for result in results if result.run is not None]
    if not racing:
        return
    for _ in range(warmup):
        show("warming up", 0)
        for run, _ in racing:
            run(feeds)
    begin = timing.clock()
    while True:
        elapsed = (timing.clock() - begin) / len(racing)
        fewest = min(len(times) for _, times in racing)
        done = fewest / repeat if repeat else elapsed / seconds
        show("running in turn", min(done, 1))
        if done >= 1 and (repeat or fewest >= MIN_RUNS):
            return
        for run, times in racing:
            run(feeds)  # uncounted: the threads of the contender before may still spin
            left = None if repeat is None else repeat - len(times)
            times += timing.repeat(functools.partial(run, feeds), TURN_SECONDS, 1, left)


def _compare(results: Sequence[Result]) -> None:
    for result in results[1:]:
        pairs = zip(results[0].outputs, result.outputs, strict=True)
        differences = [_difference(a, b) for a, b in pairs]
        known = [d for d in differences if d is not None]
        result.difference = max(known) if len(known) == len(differences) and known else None


def _difference(a: Any, b: Any) -> float | None:
    if not (isinstance(a, np.ndarray) and isinstance(b, np.ndarray)):
        return None
    if a.shape != b.shape or a.dtype == object or b.dtype == object:
        return None
    if not a.size:
        return 0.0
    a, b = a.astype(np.complex128), b.astype(np.complex128)
    with np.errstate(invalid="ignore"):
        apart = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0, np.abs(a - b))
    return float(apart.max())
