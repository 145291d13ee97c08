"""The benchmarks' files of results, as figures of one kind."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from bench.cpu import report as timed
from bench.cpu.compare import PEER_LIMIT, Outcome
from bench.cpu.table import Row, Table
from bench.first import report as first
from bench.first import table as opening
from bench.first.outcome import Outcome as Opened
from bench.first.states import AGAIN, INSTALLED, PEER
from bench.page.words import in_words
from bench.report import show

OURS = "tenonnx"
MEASURES = {"load_s": "a session", "run_s": "a run", "ran_mib": "private MiB"}
STATES = {INSTALLED: "first process", AGAIN: "second process"}


@dataclass(frozen=True)
class Other:
    """Another engine than onnxruntime.

    Attributes:
        name: Whose figure it is.
        figure: It, in words.
        ratio: tenonnx's over it.
    """

    name: str
    figure: str
    ratio: float


@dataclass(frozen=True)
class Figure:
    """One figure beside onnxruntime's.

    Attributes:
        name: What the results call the row.
        label: What it is, in words.
        kind: What is measured, and how: with how many threads, in which process.
        mine: tenonnx's figure in words.
        theirs: onnxruntime's, or why it has none.
        ratio: The one over the other; ``None`` if one of them has none.
        spread: The least and the largest ratio of a round, where these are kept.
        peer: The best of the other engines.
        note: Why there are no figures.
        against: Whose the other figure is.
    """

    name: str
    label: str
    kind: str
    mine: str = ""
    theirs: str = ""
    ratio: float | None = None
    spread: tuple[float, float] | None = None
    peer: Other | None = None
    note: str = ""
    against: str = PEER

    @property
    def lost(self) -> bool:
        """Whether onnxruntime is ahead, or another engine by more than what it may be."""
        return self.badness > 1

    @property
    def badness(self) -> float:
        """By how much a row is lost, above 1 if it is; most, if tenonnx has no figure."""
        if self.ratio is None:
            return 0.0 if self.mine else float("inf")
        return max(self.ratio, self.peer.ratio / PEER_LIMIT if self.peer else 0.0)

    @property
    def worst(self) -> Other:
        """The engine that ours is furthest behind of."""
        assert self.ratio is not None
        if self.peer is not None and self.peer.ratio > self.ratio:
            return self.peer
        return Other(self.against, self.theirs, self.ratio)


Reader = Callable[[Path], list[Figure]]


def of_table(table: Table) -> Reader:
    """Return what reads a table of ``bench.cpu``'s kind."""

    def read(path: Path) -> list[Figure]:
        outcomes = timed.read(path, table.rows).outcomes
        return [each for outcome in outcomes for each in _of(outcome, table.rows[outcome.name])]

    return read


def _of(outcome: Outcome, row: Row) -> Iterator[Figure]:
    threads = row.threads_in_words(outcome.threads)
    kind = f"{row.measured}, {threads}"
    if outcome.mine is None or outcome.theirs is None:
        yield Figure(outcome.name, row.about, kind, note=outcome.note)
        return
    mine, theirs = (timed.time_in_words(row, each) for each in (outcome.mine, outcome.theirs))
    ratio, peer = outcome.ratios["turn"], None
    if outcome.best is not None:
        name, other = outcome.best
        peer = Other(name, timed.time_in_words(row, outcome.peers[name]), other)
    yield Figure(outcome.name, row.about, kind, mine, theirs, ratio, outcome.spread, peer)
    if outcome.private_mib:
        mib = [outcome.private_mib[engine] for engine in (OURS, PEER)]
        mine, theirs = (show("_mib", each) for each in mib)
        kind = f"private MiB of a process, {threads}"
        yield Figure(outcome.name, row.about, kind, mine, theirs, mib[0] / mib[1])


def of_openings(table: opening.Table) -> Reader:
    """Return what reads a table of ``bench.first``'s kind: what a fresh process takes."""

    def read(path: Path) -> list[Figure]:
        told = {(each.name, each.state): each for each in first.read(path, table.rows).rows}
        return [
            _opened(row, measure, words, told[name, state], told[name, PEER])
            for name, row in table.rows.items()
            for measure in table.measures.items()
            for state, words in STATES.items()
            if {(name, state), (name, PEER)} <= told.keys()
        ]

    return read


def _opened(
    row: opening.Row, measure: tuple[str, str], words: str, mine: Opened, theirs: Opened
) -> Figure:
    key, kind = measure[0], f"{measure[1]}, {words}"
    ours, its = (show(key, each.median(key)) for each in (mine, theirs))
    if not mine.trials:
        return Figure(mine.name, row.about, kind, note=mine.note)
    if not theirs.trials:
        return Figure(mine.name, row.about, kind, ours, theirs.note)
    ratios = [a[key] / b[key] for a, b in zip(mine.trials, theirs.trials, strict=False)]
    spread = (min(ratios), max(ratios))
    return Figure(mine.name, row.about, kind, ours, its, statistics.median(ratios), spread)


def of_processes(path: Path) -> list[Figure]:
    """Read rows of whole processes: how long a model takes to load and to run, and its memory."""
    rows: list[dict[str, Any]] = json.loads(path.read_text("utf-8"))["rows"]
    found: list[Figure] = []
    for (case, threads), group in groupby(rows, key=lambda row: (row["case"], row.get("threads"))):
        engines = {row["engine"]: row for row in group}
        if OURS in engines and PEER in engines:
            number = "" if threads is None else f", {threads or 'all'} threads"
            found += _figures(case, number.replace(" 1 threads", " 1 thread"), engines)
    return found


def _figures(case: str, threads: str, engines: dict[str, dict[str, Any]]) -> Iterator[Figure]:
    mine, theirs = engines[OURS], engines[PEER]
    label = in_words(case)
    if note := mine["note"] or theirs["note"]:
        yield Figure(case, label, threads.lstrip(", "), note=note)
        return
    others = {name: row["values"] for name, row in engines.items() if name not in (OURS, PEER)}
    spreads = mine.get("spread", {})
    for key, measure in MEASURES.items():
        ours, its = mine["values"][key], theirs["values"][key]
        if min(ours, its) <= 0:
            continue  # memory that has been given back says nothing as a ratio
        beside = [
            Other(name, show(key, found[key]), ours / found[key])
            for name, found in others.items()
            if found.get(key)
        ]
        yield Figure(
            case, label, measure + threads, show(key, ours), show(key, its), ours / its,
            tuple(spreads[key]) if key in spreads else None, best(beside),
        )  # fmt: skip


def best(others: Sequence[Other]) -> Other | None:
    """Return the one that did best."""
    return max(others, key=lambda other: other.ratio, default=None)
