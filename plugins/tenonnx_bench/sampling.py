"""The memory of processes while they open and run a model."""

from __future__ import annotations

import contextlib
import json
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tenonnx import Fail, NotSupported

# The time between samples of a process; shorter allocations are not seen.
INTERVAL_SECONDS = 0.002

# Fields of smaps_rollup, by their names here.
SMAPS_FIELDS = {"Rss": "resident", "Pss": "proportional", "Anonymous": "private"}

MAPPED = ("RssFile", "RssShmem")


@dataclass(frozen=True)
class Sample:
    """Memory of all processes together at one moment, beyond what they had before the model.

    Attributes:
        seconds: Since the processes began to open the model.
        private: Bytes that are in no file.
        mapped: Resident bytes of mapped files: the most of any process, because all processes
            share these pages.
    """

    seconds: float
    private: int
    mapped: int


@dataclass
class Course:
    """The memory of processes that opened and ran a model.

    Attributes:
        processes: For each, its ``pid`` and its smaps_rollup before (``base``), when the model was
            ``loaded`` and at the end (``run``), in bytes by the names in ``SMAPS_FIELDS``.
        samples: The samples between, in order.
        loaded: Seconds until every process had opened the model.
        told: The first process's report on its weights.
    """

    processes: list[dict[str, Any]] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    loaded: float = 0.0
    told: dict[str, Any] = field(default_factory=dict)

    @property
    def peak(self) -> Sample:
        """The greatest private and the greatest mapped memory, perhaps at different moments."""
        most = max(self.samples, key=lambda sample: sample.private)
        mapped = max(sample.mapped for sample in self.samples)
        return Sample(most.seconds, most.private, mapped)

    @property
    def steady(self) -> Sample:
        """The memory after all runs."""
        return self.samples[-1]

    @property
    def code(self) -> int:
        """Private bytes of all processes before they opened the model."""
        return sum(process["base"]["private"] for process in self.processes)

    @property
    def proportional(self) -> int:
        """Bytes that all processes add; a shared page counts once."""
        return sum(p["run"]["proportional"] - p["base"]["proportional"] for p in self.processes)


class _Watched:
    """One process and its reports."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.steps: dict[str, dict[str, Any]] = {}
        self.rows: dict[str, Any] = {"pid": process.pid}
        self.base = (0, 0)

    def hear(self) -> None:
        """Read the next line of its output.

        Raises:
            Fail: The process failed.
        """
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        line = self.process.stdout.readline()
        if not line:
            said = self.process.stderr.read().decode(errors="replace").strip()
            raise Fail(f"a measuring process failed:\n{said}")
        told = json.loads(line)
        self.steps[told.pop("step")] = told

    def send(self) -> None:
        """Have the process continue."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()


def follow(command: Sequence[str], count: int, tell: Callable[[str], None]) -> Course:
    """Start processes that run ``held.hold`` at the same time, and read their memory.

    Args:
        command: Starts one of them.
        count: How many.
        tell: Takes the name of the current stage.

    Raises:
        Fail: A process failed; the message has its output.
        NotSupported: This system does not tell a process's memory.
    """
    if not Path("/proc/self/smaps_rollup").exists():
        raise NotSupported("memory is read from /proc/PID/smaps_rollup, which this system lacks")
    with _started(command, count) as watched:
        tell("starting")
        while not all("ready" in one.steps for one in watched):
            next(one for one in watched if "ready" not in one.steps).hear()
        for one in watched:
            one.rows["base"] = rollup(one.process.pid)
            one.base = _resident(one.process.pid)
        tell("opening and running")
        course = _sampled(watched)
        for one in watched:
            one.rows["run"] = rollup(one.process.pid)
        course.processes = [one.rows for one in watched]
        course.told = watched[0].steps["done"]
    return course


def _sampled(watched: Sequence[_Watched]) -> Course:
    course = Course()
    start = time.perf_counter()
    with selectors.DefaultSelector() as selector:
        for one in watched:
            assert one.process.stdout is not None
            selector.register(one.process.stdout, selectors.EVENT_READ, one)
            one.send()
        while not all("done" in one.steps for one in watched):
            course.samples.append(_sample(watched, start))
            for key, _ in selector.select(INTERVAL_SECONDS):
                one = key.data
                one.hear()
                if "loaded" not in one.rows:
                    one.rows["loaded"] = rollup(one.process.pid)
                    course.loaded = time.perf_counter() - start
                if "done" in one.steps:
                    selector.unregister(key.fileobj)
    course.samples.append(_sample(watched, start))
    return course


def _sample(watched: Sequence[_Watched], start: float) -> Sample:
    now = [_resident(one.process.pid) for one in watched]
    private = sum(a - one.base[0] for (a, _), one in zip(now, watched, strict=True))
    mapped = max(m - one.base[1] for (_, m), one in zip(now, watched, strict=True))
    return Sample(time.perf_counter() - start, max(private, 0), max(mapped, 0))


def _resident(process: int) -> tuple[int, int]:
    """Return a process's anonymous memory and its resident memory of files, in bytes."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    found = {line.split(":")[0]: line for line in lines if line.startswith("Rss")}
    kib = {name: int(line.split()[1]) for name, line in found.items()}
    return kib.get("RssAnon", 0) * 1024, sum(kib.get(name, 0) for name in MAPPED) * 1024


def rollup(process: int) -> dict[str, int]:
    """Return a process's memory in bytes, by the names in ``SMAPS_FIELDS``."""
    text = Path(f"/proc/{process}/smaps_rollup").read_text()
    found = {line.split(":")[0]: line.split() for line in text.splitlines()[1:]}
    return {name: int(found[field][1]) * 1024 for field, name in SMAPS_FIELDS.items()}


@contextlib.contextmanager
def _started(command: Sequence[str], count: int) -> Iterator[list[_Watched]]:
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    children = [
        subprocess.Popen([sys.executable, "-m", *command], **pipes)  # type: ignore[call-overload]  # it cannot tell which keyword a name is
        for _ in range(count)
    ]
    try:
        yield [_Watched(child) for child in children]
    finally:
        for child in children:
            child.kill()
            child.communicate()
