"""Two engines in a process each, timed in turn: whatever the machine does falls on both.

They are processes of their own so that one engine's idle threads, which watch for work, never share
the other's; and they live as long as the comparison, so that neither is timed cold.
"""

from __future__ import annotations

import contextlib
import functools
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bench.measure import environment
from bench.process import Child
from tenonnx.cli.timing import Turn
from tenonnx_cpu.jit.code.cache import cache_folder

PAUSE_SECONDS = 0.05
"""Between turns, for the threads of the one that was timed to fall asleep."""

TIMEOUT = 180.0


@functools.cache
def kernels() -> str:
    """Returns the folder of compiled kernels that users have: only side files are made anew."""
    return str(cache_folder().parent)


@contextlib.contextmanager
def opened(
    engines: tuple[str, ...], job: Mapping[str, Any], outputs: Mapping[str, Path], cache: Path
) -> Iterator[dict[str, Child]]:
    """Starts a process per engine and ends them all in the end."""
    variables = environment(job["threads"], cache) | {"NUMBA_CACHE_DIR": kernels()}
    with contextlib.ExitStack() as stack:
        children: dict[str, Child] = {}
        for engine in engines:
            own = {"engine": engine, **job, "outputs": str(outputs[engine])}
            command = [sys.executable, "-m", "bench.cpu.child", json.dumps(own)]
            child = children[engine] = Child(command, variables, TIMEOUT)
            stack.callback(child.close)
            # One after the other: loading keeps all cores busy.
            child.hear()
            child.stay()
        yield children


def turn(child: Child, seconds: float) -> Turn:
    """Has a process run for some time."""
    child.send(str(seconds))
    return Turn(**child.hear())


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
