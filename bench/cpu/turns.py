"""Two engines in a process each, timed in turn: whatever the machine does falls on both.

They are processes of their own so that one engine's idle threads, which watch for work, never share
the other's; and they live as long as the comparison, so that neither is timed cold.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.measure import environment
from bench.process import Child
from tenonnx.cli.timing import Turn

# Between turns, for the threads of the one that was timed to fall asleep.
PAUSE_SECONDS = 0.05

TIMEOUT = 180.0


@contextlib.contextmanager
def opened(job: Mapping[str, Any], cache: Path) -> Iterator[Child]:
    """Start the process of a job, which ``bench.cpu.child`` describes, and end it after use.

    Raises:
        Failed: The engine does not run the model.
    """
    variables = environment(job["threads"], cache)
    command = [sys.executable, "-m", "bench.cpu.child", json.dumps(job)]
    with contextlib.closing(Child(command, variables, TIMEOUT)) as child:
        # One after the other: loading keeps all cores busy.
        child.hear()
        child.stay()
        yield child


def turn(children: Sequence[Child], seconds: float, callers: int = 0) -> Turn:
    """Have processes run for some time, all at once.

    Args:
        children: The processes.
        seconds: How long.
        callers: Threads of each that run the model at once; 0 if it is alone. If it is not, times
            are those per run of all together.
    """
    for each in children:
        each.send(f"{seconds} {callers}")
    told = [Turn(**each.hear()) for each in children]
    if not callers:
        return told[0]
    runs = sum(each.runs for each in told)
    per_run = 1 / sum(1 / each.fastest for each in told)
    return Turn(runs, per_run, per_run, sum(each.processor * each.runs for each in told) / runs)


def difference(mine: Path, theirs: Path, tolerance: float) -> tuple[float, str]:
    """Return the largest error in units of the largest value, and what is wrong if it matters."""
    worst = 0.0
    if not theirs.exists():
        return worst, ""  # nobody to compare with: that is told of the other engine
    with np.load(mine) as ours, np.load(theirs) as expected:
        for key in expected.files:
            a, b = ours[key], expected[key]
            if "U" in (a.dtype.kind, b.dtype.kind):
                if not np.array_equal(a, b):
                    return np.inf, f"output {key} has other strings"
                continue
            if (a.shape, a.dtype) != (b.shape, b.dtype):
                return np.inf, f"output {key} is {a.dtype}{a.shape}, not {b.dtype}{b.shape}"
            scale = float(np.abs(b).max(initial=0)) or 1.0
            error = float(np.abs(a.astype(np.float64) - b).max(initial=0)) / scale
            worst = max(worst, error)
            if not error <= tolerance:
                return error, f"output {key} differs by {error:.2g} of its largest value"
    return worst, ""
