"""Two engines in a process each, timed in turn: whatever the machine does falls on both.

They are processes of their own so that one engine's idle threads, which watch for work, never share
the other's; and they live as long as the comparison, so that neither is timed cold.
"""

from __future__ import annotations

import contextlib
import functools
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bench.measure import Failed, environment
from tenonnx.cli.timing import Turn
from tenonnx_cpu.jit.code.cache import cache_folder

ROOT = Path(__file__).parents[2]
PAUSE_SECONDS = 0.05
"""Between turns, for the threads of the one that was timed to fall asleep."""

Facts = dict[str, Any]


@functools.cache
def kernels() -> str:
    """Returns the folder of compiled kernels that users have: only side files are made anew."""
    return str(cache_folder().parent)


class Child:
    """A process that has loaded a model.

    Args:
        engine: A key of ``bench.child.ENGINES``.
        job: What ``bench.cpu.child`` takes besides.
        cache: The folder of its side files.
        timeout: Seconds it may take to get ready.
    """

    def __init__(self, engine: str, job: Mapping[str, Any], cache: Path, timeout: float) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the child
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.cpu.child", json.dumps({"engine": engine, **job})],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            cwd=ROOT,
            env=environment(job["threads"], cache) | {"NUMBA_CACHE_DIR": kernels()},
        )
        self._killer = threading.Timer(timeout, self._process.kill)
        self._killer.start()

    def ready(self) -> Facts:
        """Waits until it has run its model; returns what it says of that."""
        facts = self._hear()
        self._killer.cancel()
        return facts

    def turn(self, seconds: float) -> Turn:
        """Has it run for some time."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seconds}\n")
        self._process.stdin.flush()
        return Turn(**self._hear())

    def close(self) -> None:
        """Ends it."""
        self._killer.cancel()
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def _hear(self) -> Facts:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                facts: Facts = json.loads(line)
                if "error" in facts:
                    raise Failed(facts["error"])
                return facts
        self._errors.seek(0)
        raise Failed((self._errors.read().splitlines() or ["the process ended"])[-1])


@contextlib.contextmanager
def opened(
    engines: tuple[str, ...], job: Mapping[str, Any], outputs: Mapping[str, Path], cache: Path
) -> Iterator[dict[str, Child]]:
    """Starts a process per engine and ends them all in the end."""
    children: dict[str, Child] = {}
    try:
        for engine in engines:
            own = {**job, "outputs": str(outputs[engine])}
            children[engine] = Child(engine, own, cache, timeout=180)
            # One after the other: loading keeps all cores busy.
            children[engine].ready()
        yield children
    finally:
        for child in children.values():
            child.close()


def difference(mine: Path, theirs: Path, tolerance: float) -> tuple[float, str]:
    """Returns the largest error in units of the largest value, and what is wrong if it matters."""
    worst = 0.0
    with np.load(mine) as ours, np.load(theirs) as expected:
        for key in expected.files:
            a, b = ours[key], expected[key]
            if (a.shape, a.dtype) != (b.shape, b.dtype):
                return np.inf, f"output {key} is {a.dtype}{a.shape}, not {b.dtype}{b.shape}"
            scale = float(np.abs(b).max(initial=0)) or 1.0
            error = float(np.abs(a.astype(np.float64) - b).max(initial=0)) / scale
            worst = max(worst, error)
            if not error <= tolerance:
                return error, f"output {key} differs by {error:.2g} of its largest value"
    return worst, ""
