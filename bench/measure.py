"""One measurement: a fresh process is started, told what to do and watched from outside."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.builder import Feeds
from bench.process import Child
from tenonnx_cpu.jit.library import KERNELS_VARIABLE, kernels_folder

CHILD = Path(__file__).with_name("child.py")
SAMPLE_SECONDS = 0.002
MIB = 1 << 20

# Variables that would make an engine slower than its users have it.
UNSET = ("OPENBLAS_CORETYPE", "PYTHONDONTWRITEBYTECODE")

# The figures of a measurement, and their titles in the table.
#
# `base_mib` is private memory with the engine imported and a one-node session run; the others are
# private memory beyond that: with the model loaded, at most while loading, after running.
COLUMNS = {
    "import_s": "import",
    "load_s": "load",
    "first_s": "first run",
    "run_s": "run min",
    "median_s": "median",
    "base_mib": "MiB base",
    "loaded_mib": "+load",
    "peak_mib": "+peak",
    "ran_mib": "+run",
}


# Those of the summary, and of the page of all results.
PLOTTED = {"load_s": "load", "run_s": "run", "ran_mib": "private MiB"}


@dataclass(frozen=True)
class Job:
    """The work of one process.

    Attributes:
        engine: A key of ``bench.child.ENGINES``.
        model: The model's file.
        feeds: A file of inputs, each of which one run of the model gets.
        tiny: The file of a one-node model, run before anything is measured.
        tiny_feeds: The inputs of that one.
        outputs: Where the process leaves its outputs.
        threads: Threads inside an operator; 0 leaves it to the engine.
        sessions: How many sessions of the file to hold.
        budget: Seconds to spend on repeated runs.
        least: How often to run at least.
        relus: Length of the chain of Relus to compare with bare numpy; 0 if it is none.
        without: Transforms that tenonnx leaves out.
        beside: Those that another session leaves out, which takes turns with this one at the end;
            ``None`` for no other.
    """

    engine: str
    model: str
    feeds: str
    tiny: str
    tiny_feeds: str
    outputs: str
    threads: int = 0
    sessions: int = 1
    budget: float = 0.5
    least: int = 3
    relus: int = 0
    without: Sequence[str] = ()
    beside: Sequence[str] | None = None


def write_feeds(path: Path, feeds: Sequence[Feeds]) -> Path:
    """Keep inputs for a child process."""
    arrays = {f"{i}:{name}": a for i, feed in enumerate(feeds) for name, a in feed.items()}
    np.savez(path, allow_pickle=False, **arrays)
    return path


class Memory:
    """Reads a process's memory, and follows its private memory from a thread of this process.

    A thread of the process itself would stand still while an engine holds the interpreter's lock.
    """

    def __init__(self, pid: int) -> None:
        self._status = os.open(f"/proc/{pid}/status", os.O_RDONLY)
        self._peak = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def read(self) -> dict[str, int]:
        """Return bytes by name, as in ``/proc/PID/status``: ``RssAnon``, ``VmHWM``, ..."""
        text = os.pread(self._status, 1 << 14, 0).decode()
        return {name: int(kib) << 10 for name, kib in re.findall(r"(\w+):\s+(\d+) kB", text)}

    def take_peak(self) -> int:
        """Return the most private memory seen since the last call."""
        peak, self._peak = self._peak, 0
        return peak

    def close(self) -> None:
        """Stop following."""
        self._stop.set()
        self._thread.join()
        os.close(self._status)

    def _follow(self) -> None:
        with contextlib.suppress(OSError):  # the process has ended
            while not self._stop.wait(SAMPLE_SECONDS):
                self._peak = max(self._peak, self.read().get("RssAnon", 0))


def measure(job: Job, cache: Path, timeout: float) -> dict[str, Any]:
    """Do a job in a fresh process.

    Args:
        job: The job.
        cache: The folder of tenonnx's side files.
        timeout: Seconds after which the process is killed.

    Returns:
        Seconds under ``*_s`` and MiB under ``*_mib``, those of ``COLUMNS`` among them, and the
        BLAS libraries under ``blas``, the machine's load average under ``busy``.

    Raises:
        Failed: The engine is not installed, does not run the model or takes too long.
    """
    command = [sys.executable, "-P", str(CHILD), json.dumps(dataclasses.asdict(job))]
    return watch(command, timeout, environment(job.threads, cache))


def watch(command: Sequence[str], timeout: float, variables: Mapping[str, str]) -> dict[str, Any]:
    """Run a process that tells of its phases as ``bench.child`` does, and watch its memory.

    Args:
        command: The process.
        timeout: Seconds after which it is killed.
        variables: Its environment.

    Returns:
        What it told, its memory after each phase, and the machine's load average under ``busy``.

    Raises:
        Failed: It did not come to its end, told by ``blas``.
    """
    facts: dict[str, Any] = {}
    base = 0
    with (
        contextlib.closing(Child(command, variables, timeout)) as child,
        contextlib.closing(Memory(child.pid)) as memory,
    ):
        while "blas" not in facts:
            told = child.hear()
            phase = told.pop("phase")
            facts |= told
            now, peak = memory.read(), memory.take_peak()
            if phase == "started":
                base = now["RssAnon"]
                facts["base_mib"] = base / MIB
            elif phase in ("loaded", "ran"):
                facts[f"{phase}_mib"] = (now["RssAnon"] - base) / MIB
                facts[f"{phase}_file_mib"] = (now["RssFile"] + now["RssShmem"]) / MIB
                if phase == "loaded":
                    facts["peak_mib"] = (max(peak, now["RssAnon"]) - base) / MIB
                    facts["hwm_mib"] = now["VmHWM"] / MIB
            child.send()
    facts["busy"] = os.getloadavg()[0]
    return facts


def environment(threads: int, cache: Path) -> dict[str, str]:
    """Return the environment of a child process.

    tenonnx has the kernels that users have: only side files are made anew.

    Args:
        threads: How many threads libraries use; 0 is all.
        cache: The folder of tenonnx's side files, and of whatever else engines leave behind.
    """
    variables = {KERNELS_VARIABLE: kernels_folder()}
    variables |= {k: v for k, v in os.environ.items() if k not in UNSET}
    if threads:
        names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
        variables.update(dict.fromkeys(names, str(threads)))
    return {**variables, "TENONNX_CACHE_DIR": str(cache), "TMPDIR": str(cache)}
