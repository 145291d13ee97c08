"""One row: a model is built, and processes that open and run it take turns, each a fresh one."""

from __future__ import annotations

import contextlib
import json
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from bench.cpu.turns import difference
from bench.first.outcome import Outcome, judge, trial
from bench.first.states import AGAIN, INSTALLED, PEER, State
from bench.first.table import Row
from bench.machine import tell
from bench.measure import environment, watch, write_feeds
from bench.process import Failed
from bench.weight_sharing.ort import BEST, convert

TIMEOUT = 300.0


@dataclass(frozen=True)
class Settings:
    """The extent of the measurement.

    Attributes:
        rounds: Processes per state.
        budget: Seconds of warm runs in each.
        threads: Of every engine; 0 leaves it to the engine.
        small: Take the small models.
    """

    rounds: int
    budget: float
    threads: int = 0
    small: bool = False


class Comparison:
    """Measures rows.

    Args:
        states: What is measured, by name.
        settings: How much.
        python: The interpreter whose packages are measured.
        folder: For models and whatever else lives as long as the comparison.
    """

    def __init__(
        self, states: Mapping[str, State], settings: Settings, python: str, folder: Path
    ) -> None:
        self.states = states
        self.settings = settings
        self.python = python
        self.folder = folder
        self.prepared = False

    def run(self, name: str, row: Row) -> list[Outcome]:
        """Return a row's outcomes, one per state."""
        with tempfile.TemporaryDirectory(dir=self.folder) as given:
            place = Path(given)
            proto, feeds = (row.small if self.settings.small else row.build)()
            onnx.save(proto, path := place / "model.onnx")
            del proto
            if row.ort:
                convert(path, path.with_suffix(".ort"))
                path.unlink()
            write_feeds(place / "feeds.npz", [feeds])
            self._prepare(place)
            found = {s: Outcome(name, s, state.about) for s, state in self.states.items()}
            for state in turns(self.states, self.settings.rounds):
                if not found[state].note:
                    self._measure(found[state], place, row.tolerance)
        judge(found, row)
        return list(found.values())

    def _prepare(self, place: Path) -> None:
        """Have what later processes find made: compiled kernels, Python's bytecode, side files."""
        first = [state for state in (INSTALLED, AGAIN) if state in self.states][:1]
        if PEER in self.states and not self.prepared:
            first.append(PEER)  # once is enough: it keeps nothing of a model
            self.prepared = True
        for state in first:
            with contextlib.suppress(Failed):  # which is told when it is measured
                self._facts(state, place)
        if AGAIN in self.states:
            with contextlib.suppress(Failed):
                self._facts(AGAIN, place)

    def _measure(self, outcome: Outcome, place: Path, tolerance: float) -> None:
        begun = time.perf_counter()
        try:
            facts = self._facts(outcome.state, place)
            if outcome.state != PEER and PEER in self.states:
                mine, theirs = (place / f"{s}.npz" for s in (outcome.state, PEER))
                if note := difference(mine, theirs, tolerance)[1]:
                    raise Failed(note)
        except Failed as failure:
            outcome.note, outcome.trials = str(failure), []
            tell(f"  {outcome.about}: {failure}")
            return
        outcome.trials.append(made := trial(facts, begun))
        asked, there = facts["kernels"]
        words = [f"{there} of {asked} kernels"] if asked else []
        if there < asked:
            outcome.note = f"{there} of {asked} kernels"
        words += [f"answer {made['answer_s']:.2f} s", f"second / warm {made['ratio']:.2f}"]
        tell(f"  {outcome.about}: {', '.join(words)}, warm {made['warm_s'] * 1e3:.3g} ms")

    def _facts(self, name: str, place: Path, **extra: str) -> dict[str, Any]:
        """Run a process in a state, which says what files of an earlier one it finds."""
        state, settings = self.states[name], self.settings
        (model,) = (path for path in place.glob("model.*"))
        with contextlib.ExitStack() as stack:
            (empty := place / "kept").mkdir(exist_ok=True)
            if not state.kept:
                empty = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=place)))
            job = {
                "engine": state.engine,
                "threads": settings.threads,
                "entries": BEST if name == PEER and model.suffix == ".ort" else {},
                "model": str(model),
                "feeds": str(place / "feeds.npz"),
                "outputs": str(place / f"{name}.npz"),
                "budget": settings.budget,
            }
            command = [self.python, "-m", "bench.first.child", json.dumps(job)]
            variables = environment(settings.threads, empty) | state.variables(empty)
            return watch(command, TIMEOUT, {**variables, **extra})


def turns(states: Mapping[str, State], rounds: int) -> Iterator[str]:
    """Yield whose turn it is: the order is reversed in every other round."""
    for number in range(rounds):
        order: Sequence[str] = [*states]
        yield from reversed(order) if number % 2 else order
