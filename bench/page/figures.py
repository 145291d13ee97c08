"""What the benchmarks' files of results say, in figures of one kind."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from bench.cpu import report as timed
from bench.cpu.compare import PEER_LIMIT
from bench.cpu.table import Table
from bench.first import report as first
from bench.first.outcome import Outcome
from bench.first.states import AGAIN, INSTALLED, PEER
from bench.first.table import ROWS
from bench.report import show

OURS = "tenonnx"
MEASURES = {"load_s": "load", "run_s": "run", "ran_mib": "private MiB"}


@dataclass(frozen=True)
class Figure:
    """One figure beside onnxruntime's.

    Attributes:
        label: The row's.
        kind: In which way it was measured: threads, a state.
        mine: tenonnx's figure in words.
        theirs: onnxruntime's.
        ratio: The one over the other; ``None`` if there is none.
        spread: The least and the largest ratio of a round, where these are kept.
        peer: The best of other engines, and the ratio to its figure.
        note: Why there are no figures.
    """

    label: str
    kind: str
    mine: str = ""
    theirs: str = ""
    ratio: float | None = None
    spread: tuple[float, float] | None = None
    peer: tuple[str, float] | None = None
    note: str = ""

    @property
    def lost(self) -> bool:
        """Whether onnxruntime is ahead, or another engine by more than what it may be."""
        if self.ratio is None:
            return True
        return self.ratio > 1 or (self.peer is not None and self.peer[1] > PEER_LIMIT)


Reader = Callable[[Path], list[Figure]]


def of_table(table: Table) -> Reader:
    """Returns what reads a table of ``bench.cpu``'s kind."""

    def read(path: Path) -> list[Figure]:
        found = []
        for each in timed.read(path, table.rows).outcomes:
            row = table.rows[each.name]
            label, kind = row.about, row.threads_in_words(each.threads)
            if each.mine is None or each.theirs is None:
                found.append(Figure(label, kind, note=each.note))
                continue
            mine, theirs = (timed.time_in_words(row, timing) for timing in (each.mine, each.theirs))
            ratio = each.ratios["turn"]
            found.append(Figure(label, kind, mine, theirs, ratio, each.spread, each.best))
        return found

    return read


def of_first_runs(path: Path) -> list[Figure]:
    """Reads how long fresh processes take from the import to the first answer."""
    outcomes = {(each.name, each.state): each for each in first.read(path).rows}
    found = []
    for name, row in ROWS.items():
        theirs = outcomes.get((name, PEER))
        for state in (INSTALLED, AGAIN):
            mine = outcomes.get((name, state))
            if mine is None or theirs is None:
                continue
            ours, others = _opened(mine), _opened(theirs)
            if not ours or not others:
                found.append(Figure(row.about, mine.about, note=mine.note or theirs.note))
                continue
            ratios = [a / b for a, b in zip(ours, others, strict=False)]
            told, its = (show("s", each.median("opened_s")) for each in (mine, theirs))
            ratio, spread = statistics.median(ratios), (min(ratios), max(ratios))
            found.append(Figure(row.about, mine.about, told, its, ratio, spread))
    return found


def _opened(outcome: Outcome) -> list[float]:
    return [trial["opened_s"] for trial in outcome.trials]


def of_processes(path: Path) -> list[Figure]:
    """Reads rows of whole processes: how long a model takes to load and to run, and its memory."""
    rows: list[dict[str, Any]] = json.loads(path.read_text("utf-8"))["rows"]
    found: list[Figure] = []
    for (case, threads), group in groupby(rows, key=lambda row: (row["case"], row.get("threads"))):
        engines = {row["engine"]: row for row in group}
        if OURS in engines and PEER in engines:
            number = "" if threads is None else f"{threads or 'all'} threads, "
            found += _figures(case, number.replace("1 threads", "1 thread"), engines)
    return found


def _figures(case: str, threads: str, engines: dict[str, dict[str, Any]]) -> Iterator[Figure]:
    mine, theirs = engines[OURS], engines[PEER]
    if note := mine["note"] or theirs["note"]:
        yield Figure(case, threads.rstrip(", "), note=note)
        return
    others = {name: row["values"] for name, row in engines.items() if name not in (OURS, PEER)}
    for key, title in MEASURES.items():
        ours, its = mine["values"][key], theirs["values"][key]
        if min(ours, its) <= 0:
            continue  # memory that has been given back says nothing as a ratio
        ratios = {name: ours / found[key] for name, found in others.items() if found.get(key)}
        peer = max(ratios.items(), key=lambda item: item[1]) if ratios else None
        yield Figure(case, threads + title, show(key, ours), show(key, its), ours / its, peer=peer)
