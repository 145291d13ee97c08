"""One row: a model is built, both engines load it, outputs are compared, then they take turns."""

from __future__ import annotations

import dataclasses
import functools
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx

from bench.cpu.table import ROWS
from bench.cpu.turns import PAUSE_SECONDS, difference, opened, turn
from bench.machine import tell
from bench.measure import write_feeds
from bench.process import Failed
from tenonnx.cli.timing import Timing, take_turns

ENGINES = ("onnxruntime", "tenonnx")


@dataclass(frozen=True)
class Settings:
    """How much is measured.

    Attributes:
        rounds: Turns of each engine.
        seconds: How long a turn is, or longer for two runs.
        small: Take the small models.
    """

    rounds: int
    seconds: float
    small: bool = False


@dataclass
class Outcome:
    """What came of a row with a number of threads.

    Attributes:
        name: The row's.
        threads: How many; 0 is all.
        limit: What ``ratio`` must not exceed.
        mine: tenonnx's times.
        theirs: onnxruntime's times.
        error: The largest difference of outputs, in units of the largest value.
        note: Why there are no times.
    """

    name: str
    threads: int
    limit: float
    mine: Timing | None = None
    theirs: Timing | None = None
    error: float = 0.0
    note: str = ""

    @property
    def ratios(self) -> dict[str, float]:
        """The times in units of onnxruntime's; ``turn`` compares turns that followed each other."""
        mine, theirs = self.mine, self.theirs
        return {} if mine is None or theirs is None else mine.ratios(theirs)

    @property
    def holds(self) -> bool:
        """Whether the limit holds for the median turn."""
        return bool(self.ratios) and self.ratios["turn"] <= self.limit

    def as_dict(self) -> dict[str, object]:
        """Returns everything, ratios among it."""
        return {**dataclasses.asdict(self), "ratios": self.ratios, "holds": self.holds}


def compare(
    name: str, threads: Sequence[int], settings: Settings, folder: Path
) -> Iterator[Outcome]:
    """Yields a row's outcome for every number of threads."""
    row = ROWS[name]
    with tempfile.TemporaryDirectory(dir=folder) as place:
        proto, feeds = (row.small if settings.small else row.build)()
        model = Path(place, "model.onnx")
        onnx.save(proto, model)
        del proto
        write_feeds(feed := Path(place, "feeds.npz"), [feeds])
        for number in threads:
            job = {"model": str(model), "feeds": str(feed), "threads": number}
            outcome = Outcome(name, number, row.limit)
            try:
                _fill(outcome, job, settings, row.tolerance, Path(place))
            except Failed as failure:
                outcome.note = str(failure)
            tell(f"  {number or 'all'} threads: {_words(outcome)}")
            yield outcome


def _fill(
    outcome: Outcome, job: dict[str, object], settings: Settings, tolerance: float, place: Path
) -> None:
    outputs = {engine: place / f"{engine}.npz" for engine in ENGINES}
    (cache := place / "cache").mkdir(exist_ok=True)
    with opened(ENGINES, job, outputs, cache) as children:
        outcome.error, outcome.note = difference(
            outputs["tenonnx"], outputs["onnxruntime"], tolerance
        )
        if not outcome.note:
            turns = [functools.partial(turn, each, settings.seconds) for each in children.values()]
            outcome.theirs, outcome.mine = take_turns(turns, settings.rounds, pause=PAUSE_SECONDS)


def _words(outcome: Outcome) -> str:
    if outcome.mine is None or outcome.theirs is None:
        return outcome.note
    mine, theirs, ratios = outcome.mine, outcome.theirs, outcome.ratios
    return (
        f"{mine.fastest * 1e3:.4g} ms, onnxruntime {theirs.fastest * 1e3:.4g} ms: "
        f"{ratios['turn']:.2f} (at most {outcome.limit:g})"
    )
