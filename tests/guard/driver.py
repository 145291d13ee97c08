"""Processes that run trials, and others that go on where one has ended."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import pickle
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
PATIENCE = 300
"""Seconds that a trial may take: the first of a kernel compiles it."""


@dataclasses.dataclass(frozen=True)
class Job:
    """The way trials are run.

    Attributes:
        selection: Which, as ``selection.trials`` names them.
        copying: Whether each argument of each launch is guarded, or all that a session works in.
        before: Whether arrays begin behind the page that is not mapped, and not end before it.
        threads: How many threads sessions have.
        part: Which part of them, of so many ``parts``.
        parts: See ``part``.
    """

    selection: str
    copying: bool = True
    before: bool = False
    threads: int = 1
    part: int = 0
    parts: int = 1


@functools.cache
def contracts() -> dict[str, Any]:
    """Return the contract of every kernel; ``None`` of one that takes no arrays."""
    from tenonnx_cpu.jit.aot.objects import declared

    return {name: kernel.contract for name, kernel in declared().items()}


def apart() -> dict[str, list[str]]:
    """Return the kernels that take no arrays, and those that get addresses of some instead."""
    found = contracts().items()
    return {
        "arrayless": [name for name, each in found if each is None],
        "addressed": [name for name, each in found if each is not None and each.addressed],
    }


class Report:
    """The outcome of trials: findings, and the launches of each kernel."""

    def __init__(self) -> None:
        self.findings: list[str] = []
        self.trials = 0
        self.launches: Counter[str] = Counter()
        self.shared: Counter[str] = Counter()
        self.captured: Counter[str] = Counter()


def run(job: Job, folder: Path, tell: Callable[[str], object] = str) -> Report:
    """Run a job; a process that ends is a finding, and the next goes on behind its trial.

    Args:
        job: What to run.
        folder: For logs and weights.
        tell: Called with each finding.
    """
    report, first = Report(), 0

    def found(*findings: str) -> None:
        report.findings += findings
        for each in findings:
            tell(each)

    while True:
        out = folder / f"{first}.log"
        out.unlink(missing_ok=True)
        asked = folder / "job.json"
        asked.write_text(json.dumps(dataclasses.asdict(job) | {"first": first} | apart()))
        ended = _process(asked, out, folder)
        last = None
        for place, kind, what in _entries(out):
            last = place, kind, what
            if kind == "end":
                name, wrong, (launches, shared), captured = what
                found(*(f"{name}: {each}" for each in wrong))
                report.trials += 1
                report.launches.update(launches)
                report.shared.update(shared)
                report.captured.update(captured)
        if last is not None and last[1] == "done":
            return report
        if last is None or last[1] != "begin":
            found(f"the process ended between trials: {ended}")
            return report
        found(f"{last[2]}: the process ended: {ended}")
        first = last[0] + 1


def _process(asked: Path, out: Path, folder: Path) -> str:
    """Run a worker to its end; return how it ended."""
    errors = folder / "errors.txt"
    own = dict(os.environ, OPENBLAS_NUM_THREADS="1", TENONNX_CACHE_DIR=str(folder / "cache"))
    with errors.open("w") as said:
        child = subprocess.Popen(
            [sys.executable, str(FOLDER / "worker.py"), str(asked), str(out)],
            stderr=said, stdout=said, env=own, cwd=FOLDER.parent,
        )  # fmt: skip
        size, since = -1, time.monotonic()
        while child.poll() is None:
            time.sleep(0.05)
            now = out.stat().st_size if out.exists() else 0
            if now != size:
                size, since = now, time.monotonic()
            elif time.monotonic() - since > PATIENCE:
                child.kill()
                child.wait()
                return f"it took more than {PATIENCE} s"
    lines = [line for line in errors.read_text().splitlines() if "File" in line or "rror" in line]
    lines = [*lines[:3], *lines[-1:]]
    return f"{child.returncode}; {' | '.join(line.strip() for line in lines)}"


def _entries(out: Path) -> Iterator[Any]:
    if not out.exists():
        return
    with out.open("rb") as file:
        while True:
            try:
                yield pickle.load(file)
            except (EOFError, pickle.UnpicklingError):
                return
