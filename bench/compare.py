"""The side-by-side comparison: every measurement in a fresh process, engines taking turns."""

from __future__ import annotations

import statistics
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from bench.builder import FLOAT, Builder
from bench.machine import tell
from bench.measure import COLUMNS, PLOTTED, Job, measure, write_feeds
from bench.process import Failed
from bench.scenarios import ENGINES, REFERENCE, SCENARIOS, Bound, Case, Settings

TIMEOUT = 120.0
REFERENCE_TIMEOUT = 20.0
RTOL, ATOL = 1e-3, 1e-4
TRUSTED = "onnxruntime"

Facts = dict[str, Any]


@dataclass
class Row:
    """One engine in one case.

    Attributes:
        case: The case's name.
        threads: How many threads an operator may use; 0 is all.
        engine: The engine's name.
        values: Seconds and MiB by column; the median of the rounds, or the minimum for ``run_s``.
        note: Why there are no values.
        bounds: The bounds looked at, in words, and whether they hold.
        blas: The BLAS libraries in the process.
        spread: tenonnx's least and largest ratio of a round to onnxruntime, by column.
    """

    case: str
    threads: int
    engine: str
    values: dict[str, float] = field(default_factory=dict)
    note: str = ""
    bounds: dict[str, bool] = field(default_factory=dict)
    blas: list[dict[str, Any]] = field(default_factory=list)
    spread: dict[str, tuple[float, float]] = field(default_factory=dict)


class Comparison:
    """Runs scenarios; every measurement is told on stderr.

    Args:
        settings: How much to measure.
        folder: For models and whatever else lives as long as the comparison.
    """

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.settings = settings
        self.folder = folder
        b = Builder()
        b("Sigmoid", "x", out="y")
        shape = {"x": (FLOAT, [1])}, {"y": (FLOAT, [1])}
        onnx.save(b.model(*shape), folder / "tiny.onnx")
        for name in ("tiny", "feeds"):
            write_feeds(folder / f"{name}.npz", [{"x": np.zeros(1, np.float32)}])
        # Compiled byte code stays behind, so that imports take as long as they do for users.
        for engine in ENGINES:
            self._attempt(Case("warm-up", folder / "tiny.onnx", []), engine, 0, folder)

    def run(self, scenario: str) -> list[Row]:
        """Return the rows of a scenario: per case and number of threads, one per engine."""
        rows = []
        with tempfile.TemporaryDirectory(dir=self.folder) as place:
            tell(f"{scenario}: building")
            for case in SCENARIOS[scenario](Path(place), self.settings):
                with tempfile.TemporaryDirectory(dir=place) as cache:
                    rows += self.measure(case, Path(cache))
        return rows

    def measure(self, case: Case, cache: Path) -> list[Row]:
        """Return a case's rows; ``cache`` is a folder for its side files."""
        write_feeds(self.folder / "feeds.npz", case.feeds)
        rows = []
        for threads in self.settings.threads:
            if case.prepared or not self.settings.quick:
                tell(f"{case.name}: preparing")  # plans are kept by the number of threads, too
                self._attempt(case, "tenonnx", threads, cache)
            told: dict[str, list[Facts]] = defaultdict(list)
            for number in range(self.settings.rounds):
                with_reference = case.reference and not threads and not number
                engines = (*ENGINES, REFERENCE) if with_reference else ENGINES
                for engine, facts in self._round(case, engines, threads, cache).items():
                    told[engine].append(facts)
            rows += judged(case, threads, told, quick=self.settings.quick)
        return rows

    def _round(
        self, case: Case, engines: Iterable[str], threads: int, cache: Path
    ) -> dict[str, Facts]:
        """Measure each engine once; ``note`` says why one has no values."""
        found = {engine: self._attempt(case, engine, threads, cache) for engine in engines}
        for engine, facts in found.items():
            if engine != TRUSTED and not ("note" in facts or "note" in found[TRUSTED]):
                note = difference(self._outputs(engine), self._outputs(TRUSTED))
                found[engine] = {"note": note} if note else facts
        return found

    def _attempt(self, case: Case, engine: str, threads: int, cache: Path) -> Facts:
        job = Job(
            engine,
            model=str(case.model),
            feeds=str(self.folder / "feeds.npz"),
            tiny=str(self.folder / "tiny.onnx"),
            tiny_feeds=str(self.folder / "tiny.npz"),
            outputs=str(self._outputs(engine)),
            threads=threads,
            sessions=case.sessions,
            budget=self.settings.budget,
            least=1 if engine == REFERENCE else 3,
            relus=case.relus if engine == "tenonnx" else 0,
        )
        timeout = REFERENCE_TIMEOUT if engine == REFERENCE else TIMEOUT
        try:
            if case.prepared:
                facts = measure(job, cache, timeout)
            else:
                with tempfile.TemporaryDirectory(dir=cache) as empty:
                    facts = measure(job, Path(empty), timeout)
        except Failed as failure:
            facts = {"note": str(failure)}
        told = facts.get("note") or f"load {facts['load_s']:.3f} s, run {facts['run_s']:.6f} s"
        tell(f"{case.name}, {threads or 'all'} threads, {engine}: {told}")
        return facts

    def _outputs(self, engine: str) -> Path:
        return self.folder / f"{engine}.npz"


def difference(mine: Path, theirs: Path) -> str:
    """Return how two files of outputs differ beyond what rounding explains; ``""`` if not."""
    with np.load(mine) as ours, np.load(theirs) as expected:
        for key in expected.files:
            a, b = ours[key], expected[key]
            if (a.shape, a.dtype) != (b.shape, b.dtype):
                return f"output {key} is {a.dtype}{a.shape}, not {b.dtype}{b.shape}"
            scale = float(np.abs(b).max(initial=0))
            if not np.allclose(a, b, rtol=RTOL, atol=ATOL * scale, equal_nan=True):
                error = np.abs(a.astype(np.float64) - b.astype(np.float64)).max()
                return f"output {key} differs by {error:.3g} where values reach {scale:.3g}"
    return ""


def judged(case: Case, threads: int, told: Mapping[str, list[Facts]], *, quick: bool) -> list[Row]:
    """Return the rows of a case from what its processes told, with the bounds looked at."""
    rows = {engine: summary(case.name, threads, engine, each) for engine, each in told.items()}
    mine = rows["tenonnx"]
    if mine.values and rows[TRUSTED].values:
        mine.spread = spread(told["tenonnx"], told[TRUSTED])
    for bound in case.bounds:
        # One round over small models says nothing of time.
        if not quick or (bound.column.endswith("_mib") and not bound.of):
            mine.bounds |= check(bound, rows)
    if "bare_s" in mine.values:
        bare = {"run_s": mine.values.pop("bare_s")}
        rows["numpy"] = Row(case.name, threads, "numpy", bare)
    return list(rows.values())


def summary(case: str, threads: int, engine: str, trials: list[Facts]) -> Row:
    """Return the row of some trials: values only if all succeeded."""
    if notes := [facts["note"] for facts in trials if "note" in facts]:
        return Row(case, threads, engine, note=notes[0])
    blas = trials[0].pop("blas")
    values = {
        key: float((min if key == "run_s" else statistics.median)(f[key] for f in trials))
        for key in trials[0]
    }
    return Row(case, threads, engine, values, blas=blas)


def spread(mine: Sequence[Facts], theirs: Sequence[Facts]) -> dict[str, tuple[float, float]]:
    """Return the least and the largest ratio of a round, by the columns that are compared."""
    found = {}
    for key in PLOTTED:
        pairs = [(a[key], b[key]) for a, b in zip(mine, theirs, strict=True) if key in a]
        if len(pairs) > 1 and min(map(min, pairs)) > 0:
            ratios = [a / b for a, b in pairs]
            found[key] = min(ratios), max(ratios)
    return found


def check(bound: Bound, rows: Mapping[str, Row]) -> dict[str, bool]:
    """Return whether tenonnx keeps a bound; nothing if it cannot be told."""
    value = rows["tenonnx"].values.get(bound.column)
    unit = rows[bound.of].values.get(bound.column) if bound.of else 1.0
    if value is None or unit is None:
        return {}
    title = COLUMNS.get(bound.column, "times bare numpy")
    of = f" of {bound.of}" if bound.of else " MiB" if bound.column.endswith("_mib") else ""
    return {f"{title} {value / unit:.3g} ≤ {bound.limit:g}{of}": value <= bound.limit * unit}
