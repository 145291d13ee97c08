"""Runs scenarios: every measurement in fresh processes, engines taking turns."""

from __future__ import annotations

import dataclasses
import os
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.compare import difference, spread
from bench.machine import tell
from bench.measure import write_feeds
from bench.process import Failed
from bench.weight_sharing.case import Case
from bench.weight_sharing.fold import fold
from bench.weight_sharing.measure import Job, measure
from bench.weight_sharing.ort import ort
from bench.weight_sharing.qdq import qdq
from bench.weight_sharing.report import ENGINES, Row, check
from bench.weight_sharing.tied import tied

SCENARIOS = ("fold", "qdq", "tied", "ort")
# The scale of a model of the same kind that each process runs before it is measured.
TINY = 1e-4

Facts = dict[str, Any]


@dataclass(frozen=True)
class Settings:
    """The extent of the measurement.

    Attributes:
        scale: The models' size; 1 is full size.
        layers: Layers of the quantized model.
        rounds: Measurements of each engine in each case.
        threads: Threads inside an operator; 0 leaves it to the engine.
        budget: Seconds of repeated runs in each.
    """

    scale: float = 1.0
    layers: int = 8
    rounds: int = 2
    threads: int = 0
    budget: float = 1.0


def cases(scenario: str, folder: Path, settings: Settings) -> Iterator[Case]:
    """Yield the cases of a scenario; their models are written to the folder."""
    match scenario:
        case "fold":
            yield fold(folder, settings.scale)
        case "qdq":
            yield qdq(folder, settings.scale, settings.layers)
        case "tied":
            yield tied(folder, settings.scale)
        case "ort":
            yield from ort(folder, settings.scale)


class Comparison:
    """Measures scenarios.

    Args:
        folder: For models and all else that is written.
        settings: How much to measure.
    """

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.folder = folder
        self.settings = settings

    def run(self, scenario: str) -> list[Row]:
        """Return a row per case of the scenario and engine."""
        rows: list[Row] = []
        with tempfile.TemporaryDirectory(dir=self.folder) as place:
            tell(f"{scenario}: building")
            folders = [Path(place) / name for name in ("full", "tiny")]
            for each in folders:
                each.mkdir()
            small = dataclasses.replace(self.settings, scale=TINY, layers=1)
            settings = [self.settings, small]
            for case, tiny in zip(*map(cases, [scenario] * 2, folders, settings), strict=True):
                rows += self._case(case, tiny)
        return rows

    def _case(self, case: Case, tiny: Case) -> list[Row]:
        write_feeds(self.folder / "feeds.npz", case.feeds)
        write_feeds(self.folder / "tiny.npz", tiny.feeds)
        # Kernels are compiled before anything is measured, as they are once on a machine.
        if os.environ.get("TENONNX_JIT") != "0":
            self._measure(dataclasses.replace(tiny, processes=1), tiny, ENGINES[0], {})
        told: dict[str, list[Facts]] = {engine: [] for engine in ENGINES}
        for _ in range(self.settings.rounds):
            found = {engine: self._attempt(case, tiny, engine) for engine in ENGINES}
            if not any("note" in facts for facts in found.values()):
                found[ENGINES[0]]["note"] = self._difference(case, tiny)
            for engine, facts in found.items():
                told[engine].append(facts)
        rows = [summary(case, engine, each) for engine, each in told.items()]
        if rows[0].values and rows[1].values:
            rows[0].spread = spread(told[ENGINES[0]], told[ENGINES[1]])
        rows[0].bounds = check(case.bounds, *rows[:2])
        return rows

    def _difference(self, case: Case, tiny: Case) -> str:
        """Return how outputs differ from onnxruntime's where both take numbers as they are."""
        mine, default, best = ENGINES
        if case.exact:
            return difference(self._outputs(mine), self._outputs(default))
        self._measure(case, tiny, mine, {}, case.best)
        return difference(self._outputs(mine), self._outputs(best))

    def _attempt(self, case: Case, tiny: Case, engine: str) -> Facts:
        try:
            facts = self._measure(case, tiny, engine, {})
        except Failed as failure:
            tell(f"{case.name}, {engine}: {failure}")
            return {"note": str(failure)}
        load, run = facts["load_s"], facts["run_s"]
        peak, ran = facts["peak_mib"], facts["ran_mib"]
        tell(
            f"{case.name}, {engine}: load {load:.3f} s, peak {peak:.1f} MiB, "
            f"after runs {ran:.1f} MiB, run {run:.5f} s"
        )
        return {**facts, "busy": os.getloadavg()[0]}

    def _measure(
        self,
        case: Case,
        tiny: Case,
        engine: str,
        variables: dict[str, str],
        entries: Mapping[str, str] | None = None,
    ) -> dict[str, float]:
        if entries is None:
            entries = case.best if engine == ENGINES[2] else {}
        job = Job(
            engine,
            model=str(case.model),
            feeds=str(self.folder / ("feeds.npz" if case.model != tiny.model else "tiny.npz")),
            tiny=str(tiny.model),
            tiny_feeds=str(self.folder / "tiny.npz"),
            outputs=str(self._outputs(engine)),
            entries=entries,
            threads=self.settings.threads,
            budget=self.settings.budget,
        )
        # Every measurement starts without side files, as the first process on a machine does.
        with tempfile.TemporaryDirectory(dir=self.folder) as cache:
            return measure(job, case.processes, Path(cache), variables)

    def _outputs(self, engine: str) -> Path:
        return self.folder / f"outputs{ENGINES.index(engine)}.npz"


def summary(case: Case, engine: str, told: Sequence[Facts]) -> Row:
    """Return the medians of several measurements, and of run times the least."""
    row = Row(case.name, case.mib, engine)
    row.note = next(filter(None, (facts.pop("note", "") for facts in told)), "")
    if not row.note:
        row.values = {
            key: float((min if key == "run_s" else statistics.median)(f[key] for f in told))
            for key in told[0]
        }
    return row
