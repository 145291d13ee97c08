"""Tables of calls beside onnxruntime's, in one process: a line for each case."""

from __future__ import annotations

import argparse
import functools
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime

import tenonnx
from tenonnx.cli.timing import Call, alternate

# `turns` is the median over turns of the ratio of fastest runs: the figure to go by on a machine
# that others use, too.
COLUMNS = f"{'case':28} th      ort      ours  min/min turns  median    cpu"


def parser(about: str | None, seconds: float = 0.1) -> argparse.ArgumentParser:
    """Return a parser of which cases are timed, on how many threads, and how long."""
    made = argparse.ArgumentParser(description=about)
    made.add_argument("filter", nargs="?", default="")
    made.add_argument("--threads", type=int, nargs="*", default=[1, os.cpu_count() or 1])
    made.add_argument("--seconds", type=float, default=seconds)
    made.add_argument("--turns", type=int, default=5)
    return made


def compared(theirs: Call, ours: Call, given: argparse.Namespace) -> tuple[str, float]:
    """Time two calls; return the columns after the threads, and our fastest run's seconds."""
    his, mine = alternate((theirs, ours), given.seconds, given.turns)
    ratios = mine.ratios(his)
    text = f"{his.fastest * 1e6:9.1f} {mine.fastest * 1e6:9.1f} {ratios['fastest']:6.2f} "
    text += f"{ratios['turn']:6.2f} {ratios['median']:7.2f} {ratios['processor']:6.2f}"
    return text, mine.fastest


def line(
    name: str, model: bytes, feeds: dict[str, Any], threads: int, given: argparse.Namespace
) -> tuple[str, float]:
    """Time a model in both engines.

    Returns:
        The line, with the greatest difference of the outputs in units of the largest value, and
        the seconds of our fastest run.
    """
    runs: list[Callable[[], Any]] = []
    for engine in (onnxruntime, tenonnx):
        options = engine.SessionOptions()
        options.intra_op_num_threads = threads
        session = engine.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        runs.append(functools.partial(session.run, None, feeds))
    pairs = zip(*(run() for run in runs), strict=True)
    error = max(np.abs(a.astype(np.float64) - b).max() / (np.abs(a).max() or 1) for a, b in pairs)
    theirs, ours = runs
    text, fastest = compared(theirs, ours, given)
    return f"{name:28} {threads:2} {text} {error:8.1e}", fastest
