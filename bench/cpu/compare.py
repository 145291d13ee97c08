"""One row: a model is built, engines load it, outputs are compared, then they take turns."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import onnx

from bench.cpu.table import Row
from bench.cpu.turns import PAUSE_SECONDS, difference, opened, turn
from bench.machine import tell
from bench.measure import write_feeds
from bench.process import Child, Failed
from tenonnx.cli.timing import Timing, take_turns

ENGINES = ("onnxruntime", "tenonnx")
TRUSTED, OURS = ENGINES
UNASKED, ABSENT = "not asked for", "not installed"

# The greatest ratio allowed to the time of the best of other engines.
PEER_LIMIT = 1.1


@dataclass(frozen=True)
class Settings:
    """The extent of the measurement.

    Attributes:
        rounds: Turns of each engine.
        seconds: How long a turn is, or longer for two runs.
        small: Take the small models.
        peers: Engines besides onnxruntime, and why some take no turns.
    """

    rounds: int
    seconds: float = 0.3
    small: bool = False
    peers: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Outcome:
    """The outcome of a row with a number of threads.

    Attributes:
        name: The row's.
        threads: How many; 0 is all.
        limit: What ``ratio`` must not exceed.
        mine: tenonnx's times.
        theirs: onnxruntime's times.
        error: The largest difference of outputs, in units of the largest value.
        note: Why there are no times.
        peers: The times of other engines.
        declined: Why some of them have none.
        private_mib: Private memory of a process of each engine after its turns, where there are
            several: the median of them.
    """

    name: str
    threads: int
    limit: float
    mine: Timing | None = None
    theirs: Timing | None = None
    error: float = 0.0
    note: str = ""
    peers: dict[str, Timing] = field(default_factory=dict)
    declined: dict[str, str] = field(default_factory=dict)
    private_mib: dict[str, float] = field(default_factory=dict)

    @property
    def ratios(self) -> dict[str, float]:
        """The times in units of onnxruntime's; ``turn`` compares turns that followed each other."""
        mine, theirs = self.mine, self.theirs
        return {} if mine is None or theirs is None else mine.ratios(theirs)

    @property
    def spread(self) -> tuple[float, float]:
        """The least and the largest ratio of two turns that followed each other."""
        assert self.mine is not None
        assert self.theirs is not None
        pairs = zip(self.mine.turns, self.theirs.turns, strict=True)
        found = [mine / theirs for mine, theirs in pairs]
        return min(found), max(found)

    @property
    def best(self) -> tuple[str, float] | None:
        """The other engine that takes the least, and the time in units of its."""
        if self.mine is None or not self.peers:
            return None
        found = {name: self.mine.ratios(theirs)["turn"] for name, theirs in self.peers.items()}
        return max(found.items(), key=lambda item: item[1])

    @property
    def refusing(self) -> list[str]:
        """The other engines that do not take the model, or give another answer."""
        return [peer for peer, why in self.declined.items() if why not in (UNASKED, ABSENT)]

    @property
    def holds(self) -> bool:
        """Whether the limits hold for the median turn."""
        peer = self.best is None or self.best[1] <= PEER_LIMIT
        return bool(self.ratios) and self.ratios["turn"] <= self.limit and peer

    def as_dict(self) -> dict[str, object]:
        """Return everything, ratios among it."""
        return {**dataclasses.asdict(self), "ratios": self.ratios, "holds": self.holds}


def compare(
    name: str, row: Row, threads: Sequence[int], settings: Settings, folder: Path
) -> Iterator[Outcome]:
    """Yield a row's outcome for every number of threads."""
    if row.missing:
        tell(f"  {row.missing}")
        yield from (Outcome(name, number, row.limit, note=row.missing) for number in threads)
        return
    with tempfile.TemporaryDirectory(dir=folder) as place:
        proto, feeds = (row.small if settings.small else row.build)()
        model = Path(place, "model.onnx")
        onnx.save(proto, model)
        del proto
        write_feeds(feed := Path(place, "feeds.npz"), [feeds])
        job: dict[str, object] = {"model": str(model), "feeds": str(feed), "loading": row.loading}
        for number in threads:
            outcome = Outcome(name, number, row.limit)
            try:
                _fill(outcome, row, job, settings, Path(place))
            except Failed as failure:
                outcome.note = str(failure)
            tell(f"  {row.threads_in_words(number)}: {_words(outcome)}")
            yield outcome


def _fill(
    outcome: Outcome, row: Row, job: dict[str, object], settings: Settings, place: Path
) -> None:
    outcome.declined = {peer: why for peer, why in settings.peers.items() if why}
    engines = (*ENGINES, *(peer for peer, why in settings.peers.items() if not why))
    outputs = {engine: place / f"{engine}.npz" for engine in engines}
    (cache := place / "cache").mkdir(exist_ok=True)
    job = {**job, "threads": 1 if row.at_once else outcome.threads}
    count = outcome.threads if row.at_once == "processes" else 1
    callers = {None: 0, "threads": outcome.threads, "processes": 1}[row.at_once]
    with contextlib.ExitStack() as stack:
        children: dict[str, list[Child]] = {}
        for engine, path in outputs.items():
            try:
                own = {**job, "engine": engine, "outputs": str(path)}
                found = [stack.enter_context(opened(own, cache)) for _ in range(count)]
                error, note = difference(path, outputs[TRUSTED], row.tolerance)
                if engine == OURS:
                    outcome.error = error
                if note:
                    raise Failed(note)
                children[engine] = found
            except Failed as failure:
                if engine in ENGINES:
                    raise
                outcome.declined[engine] = str(failure)
        turns = [functools.partial(turn, e, settings.seconds, callers) for e in children.values()]
        timings = take_turns(turns, settings.rounds, pause=PAUSE_SECONDS)
        told = dict(zip(children, timings, strict=True))
        if row.at_once == "processes":
            outcome.private_mib = {
                engine: statistics.median(each.private_mib for each in processes)
                for engine, processes in children.items()
            }
    outcome.theirs, outcome.mine, outcome.peers = told.pop(TRUSTED), told.pop(OURS), told


def _words(outcome: Outcome) -> str:
    if outcome.mine is None or outcome.theirs is None:
        return outcome.note
    mine, theirs, ratios = outcome.mine, outcome.theirs, outcome.ratios
    words = (
        f"{mine.fastest * 1e3:.4g} ms, onnxruntime {theirs.fastest * 1e3:.4g} ms: "
        f"{ratios['turn']:.2f} (at most {outcome.limit:g})"
    )
    if outcome.best is not None:
        words += "; beside {} {:.2f}".format(*outcome.best)
    return "; ".join([words, *(f"{peer}: {outcome.declined[peer]}" for peer in outcome.refusing)])
