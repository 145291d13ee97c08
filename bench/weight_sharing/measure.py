"""One measurement: fresh processes go through the same phases together, watched from outside."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.measure import MIB, Memory, environment
from bench.process import Child

TIMEOUT = 300.0


@dataclass(frozen=True)
class Job:
    """The work of each of the processes; fields as in ``bench.measure.Job``.

    Attributes:
        entries: Session configuration entries.
    """

    engine: str
    model: str
    feeds: str
    tiny: str
    tiny_feeds: str
    outputs: str
    entries: Mapping[str, str]
    threads: int
    budget: float


class Watched:
    """A process that waits for a word after every phase."""

    def __init__(self, job: Job, cache: Path, variables: dict[str, str]) -> None:
        told = json.dumps(dataclasses.asdict(job))
        command = [sys.executable, "-m", "bench.weight_sharing.child", told]
        self.process = Child(command, environment(job.threads, cache) | variables, TIMEOUT)
        self.memory = Memory(self.process.pid)
        self.facts: dict[str, float] = {}
        self._base: dict[str, int] = {}

    def await_phase(self) -> None:
        """Wait for the end of a phase and note what it took."""
        told = self.process.hear()
        del told["phase"]
        self.facts |= told

    def look(self, phase: str) -> None:
        """Note the process's memory while it waits."""
        now, peak = self.memory.read(), self.memory.take_peak()
        if phase == "started":
            self._base = now | {"Pss": self._pss()}
            self.facts["base_mib"] = now["RssAnon"] / MIB
            return
        base = self._base["RssAnon"]
        peak = max(peak, now["RssAnon"])
        self.facts[f"{phase}_mib"] = (now["RssAnon"] - base) / MIB
        self.facts["peak_mib" if phase == "loaded" else "run_peak_mib"] = (peak - base) / MIB
        self.facts["pss_mib"] = (self._pss() - self._base["Pss"]) / MIB
        self.facts["hwm_mib"] = (now["VmHWM"] - self._base["VmRSS"]) / MIB

    def close(self) -> None:
        """End the process."""
        self.memory.close()
        self.process.close()

    def _pss(self) -> int:
        text = Path(f"/proc/{self.process.pid}/smaps_rollup").read_text()
        found = re.search(r"^Pss:\s+(\d+) kB", text, re.MULTILINE)
        return int(found[1]) << 10 if found else 0


def measure(job: Job, processes: int, cache: Path, variables: dict[str, str]) -> dict[str, float]:
    """Do a job in some fresh processes at once.

    Args:
        job: The job.
        processes: How many.
        cache: The folder of tenonnx's side files.
        variables: Of the environment, besides what they would have anyway.

    Returns:
        Seconds under ``*_s`` and, beyond what each process had after running the scenario's
        tiny model, MiB under ``*_mib``: medians over the processes, of memory the
        worst of them, and their sum for ``pss_mib``.

    Raises:
        Failed: The engine does not run the model or takes too long.
    """
    with contextlib.ExitStack() as stack:
        watched = []
        for _ in range(processes):
            watched.append(each := Watched(job, cache, variables))
            stack.callback(each.close)
        for each in watched:
            each.await_phase()
            each.look("started")
        # One loads after the other: what engines take meanwhile would not fit eight times.
        for each in watched:
            each.process.send()
            each.await_phase()
            each.look("loaded")
        for each in watched:
            each.process.send()
        for each in watched:
            each.await_phase()
        for each in watched:
            each.look("ran")
        for each in watched:
            each.process.send()
            each.await_phase()
    return combined([each.facts for each in watched])


def combined(facts: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Return the facts of several processes as one."""

    def choose(key: str) -> float:
        values = [each[key] for each in facts]
        if key == "pss_mib":
            return sum(values)
        return max(values) if key.endswith("_mib") else statistics.median(values)

    return {key: choose(key) for key in facts[0]}
