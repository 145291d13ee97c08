"""Runs trials one after the other; says which is next before it is run.

A process that ends here leaves behind what it was about to do.
"""

from __future__ import annotations

import contextlib
import copy
import faulthandler
import importlib
import json
import os
import pickle
import resource
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent
MEMORY = 6 << 30
"""Bytes of addresses that a process may have."""

INTERNAL = (
    "NoneType",
    "object has no attribute",
    "positional argument",
    "index out of",
    "KeyError",
)


def main() -> None:
    """Run ``worker.py JOB OUT``: what ``driver.Job`` says, with results to a file."""
    job, out = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
    faulthandler.enable()
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    import launches
    import selection

    from tenonnx_cpu.listing import LISTING

    for module in (*LISTING, "capture.captured_run"):
        importlib.import_module(f"tenonnx_cpu.{module}")
    launches.STATE.copying, launches.STATE.before = job["copying"], job["before"]
    launches.STATE.arrayless = frozenset(job["arrayless"])
    launches.STATE.addressed = frozenset(job["addressed"])
    launches.guard_launches()
    sessions: Any = None
    if not job["copying"]:
        import sessions

        sessions.guard_sessions(before=job["before"])
    if job["threads"] > 1:
        launches.share_everything()
    trials = selection.trials(job["selection"])
    with out.open("ab", buffering=0) as log:
        for place in range(job["first"], len(trials)):
            if place % job["parts"] != job["part"]:
                continue
            log.write(pickle.dumps((place, "begin", trials[place].name)))
            found = Run(trials[place], job["threads"], job["before"]).found()
            marks = dict(launches.STATE.launches), dict(launches.STATE.shared)
            captured = dict(sessions.CAPTURED) if sessions else {}
            log.write(pickle.dumps((place, "end", (trials[place].name, found, marks, captured))))
            launches.STATE.launches.clear()
            launches.STATE.shared.clear()
            if sessions:
                sessions.CAPTURED.clear()
                sessions.COPIES.clear()
        log.write(pickle.dumps((len(trials), "done", None)))


class Run:
    """Compares what a trial gives with kernels and without."""

    def __init__(self, trial: Any, threads: int, before: bool) -> None:
        self.trial, self.threads, self.before = trial, threads, before
        self.proto = trial.model().SerializeToString()

    def found(self) -> list[str]:
        """Return what is wrong."""
        import launches

        launches.without_kernels(True)
        expected = self.answers(lambda array: array, times=1)
        launches.without_kernels(False)
        from tenonnx_cpu.testing.guarded_memory import guarded_copy

        actual = self.answers(lambda array: guarded_copy(array, before=self.before), times=4)
        wrong = []
        for number, (found, wanted) in enumerate(zip(actual, expected, strict=True)):
            for each in found:
                if (said := _difference(each, wanted[0], self.trial.near)) is not None:
                    wrong.append(f"feeds {number}: {said}")
                    break
        return wrong

    def answers(self, given: Any, times: int) -> list[list[Any]]:
        """Return for what is fed, one after the other, the answers of some runs."""
        import tenonnx

        feeds = [self.trial.feeds, *self.trial.later]
        options = tenonnx.SessionOptions()
        options.intra_op_num_threads = self.threads
        options.log_severity_level = 4
        for name, value in self.trial.settings.items():
            options.add_session_config_entry(name, value)
        self.kept = {name: given(array) for name, array in self.trial.constants.items()}
        for name, array in self.kept.items():
            if array.dtype.name in PLAIN:
                options.add_initializer(name, array)
        try:
            session = tenonnx.InferenceSession(self.proto, options, providers=["cpu"])
        except Exception as error:
            return [[error]] * len(feeds)
        made = []
        for number, each in enumerate(feeds):
            made.append([])
            for _ in range(times if number == 0 else 1):
                guarded = {
                    name: given(x) if isinstance(x, np.ndarray) else x for name, x in each.items()
                }
                try:
                    results = session.run(None, guarded)
                    made[-1].append(copy.deepcopy([_plain(x) for x in results]))
                    for result in results:
                        if isinstance(result, np.ndarray) and result.nbytes < LARGE:
                            with contextlib.suppress(Exception):
                                result.fill(77)
                except Exception as error:
                    made[-1].append(error)
        return made


LARGE = 1 << 26
PLAIN = {"float32", "float64", "int8", "uint8", "int32", "int64", "uint32", "bool", "float16"}


def _plain(result: Any) -> Any:
    """Return a result as it is now; of a view that is larger than memory, its beginning."""
    if not isinstance(result, np.ndarray):
        return result
    return np.array(result if result.nbytes < LARGE else result[(slice(2),) * result.ndim])


def _difference(found: Any, wanted: Any, near: float) -> str | None:
    import tenonnx

    if isinstance(found, Exception):
        text = f"{type(found).__name__}: {found}"
        if not isinstance(found, tenonnx.errors.TenonnxError):
            return f"not a documented error: {text}"
        known = isinstance(wanted, Exception) or near == np.inf
        return None if known else f"refused, though numpy answers: {text}"
    if near == np.inf:
        return None
    if isinstance(wanted, Exception):
        return f"answered, though numpy refuses: {type(wanted).__name__}: {str(wanted)[:200]}"
    for place, (one, other) in enumerate(zip(found, wanted, strict=True)):
        if (
            isinstance(other, np.ndarray)
            and other.dtype.kind in "biufV"
            and not _close(one, other, near)
        ):
            return f"result {place} differs: {_shown(one)} for {_shown(other)}"
    return None


def _shown(array: Any) -> str:
    return f"{array.dtype}{list(array.shape)} {array.reshape(-1)[:6].tolist()}"


def _close(one: Any, other: Any, near: float) -> bool:
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    if one.dtype.kind in "b" or one.dtype.name in ("int64",):
        return bool((one == other).all())
    if one.dtype.kind in "iu" and one.dtype.itemsize > 1:
        return bool((one == other).all())
    a, b = one.astype(np.float64), other.astype(np.float64)
    if one.dtype.kind in "iu":
        return bool((np.abs(a - b) <= 1).all())
    known = np.isfinite(b)
    scale = max(1e-6, float(np.abs(b[known]).max(initial=0)))
    is_near = np.abs(a - b)[known] <= (2e-2 if one.dtype.itemsize < 4 else near) * scale
    return bool(is_near.all())


if __name__ == "__main__":
    sys.path[:0] = [str(FOLDER), str(FOLDER.parent)]
    with contextlib.suppress(KeyboardInterrupt):
        main()
    os._exit(0)
