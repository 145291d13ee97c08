"""``python -m bench shapes``: first runs, and runs whose shapes are new, beside onnxruntime's.

Times are the process's on the processor, of one thread. Engines take turns, run by run.
"""

from __future__ import annotations

import argparse
import gc
import resource
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from bench.builder import Feeds
from bench.options import one_of
from bench.shapes.graphs import GRAPHS
from bench.shapes.models import CASES

# Shapes of which runs are timed that are not the first.
SAMPLES = 24

# Runs of each of these.
LATER = 5

# Runs after which memory is to stay as it is.
FLAT_AFTER = 100


def engines() -> dict[str, Callable[[bytes], Any]]:
    """Return what opens a session of each engine, with one thread."""
    import onnxruntime

    import tenonnx

    def opened(engine: Any) -> Callable[[bytes], Any]:
        def session(model: bytes) -> Any:
            options = engine.SessionOptions()
            options.intra_op_num_threads = options.inter_op_num_threads = 1
            options.log_severity_level = 3
            return engine.InferenceSession(model, options, providers=["CPUExecutionProvider"])

        return session

    return {"tenonnx": opened(tenonnx), "onnxruntime": opened(onnxruntime)}


def seconds(call: Callable[[], Any]) -> float:
    """Return the time of a call."""
    start = time.process_time()
    call()
    return time.process_time() - start


def changing(name: str, count: int) -> None:
    """Print the times of runs of new shapes, and of later runs of the same shapes."""
    proto, runs = CASES[name]()
    model = proto.SerializeToString()
    opened = engines()
    sessions = {engine: session(model) for engine, session in opened.items()}
    new: dict[str, list[float]] = {engine: [] for engine in sessions}
    start = 0.0
    for n, feeds in enumerate(runs(count)):
        for engine, session in sessions.items():
            new[engine].append(seconds(lambda s=session, f=feeds: s.run(None, f)))  # type: ignore[misc]
        if n == FLAT_AFTER:
            start = _resident()
        if n % 50 == 0:
            _compare(name, sessions.values(), feeds)
    grown = _resident() - start if count > FLAT_AFTER else 0.0
    fresh = opened["tenonnx"](model)
    step = max(1, count // SAMPLES)
    again = {n: _later(fresh, f) for n, f in enumerate(runs(count)) if n % step == 0}
    own = sum(new["tenonnx"][n] for n in again) / sum(again.values())
    total = {engine: sum(times) for engine, times in new.items()}
    print(
        f"{name:24} {total['tenonnx']:8.3f} s {total['onnxruntime']:8.3f} s"
        f" {total['tenonnx'] / total['onnxruntime']:6.2f} x {own:6.2f} x"
        f" {1e3 * new['tenonnx'][0]:8.1f} ms {grown:+7.1f} MiB",
        flush=True,
    )


def _later(session: Any, feeds: Feeds) -> float:
    """Return the least time of runs after the first one."""
    return min([seconds(lambda: session.run(None, feeds)) for _ in range(LATER)][1:])


def _compare(name: str, sessions: Iterable[Any], feeds: Feeds) -> None:
    mine, theirs = (session.run(None, feeds) for session in sessions)
    for own, other in zip(mine, theirs, strict=True):
        if not np.allclose(own, other, rtol=1e-3, atol=1e-3):
            raise SystemExit(f"{name}: outputs differ by {np.abs(own - other).max()}")


def _resident() -> float:
    """Return the MiB of memory that the process has."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def graph(name: str) -> None:
    """Print the times of opening a graph of many nodes, of its first run and of later ones."""
    build = GRAPHS[name]
    small, feeds = build(20)
    model = build()[0].SerializeToString()
    cells = []
    for session in engines().values():
        warm = session(small.SerializeToString())
        for _ in range(3):
            warm.run(None, feeds)
        start = time.process_time()
        opened = session(model)
        load = time.process_time() - start
        times = [seconds(lambda s=opened: s.run(None, feeds)) for _ in range(12)]  # type: ignore[misc]
        cells.append(f"{load * 1e3:9.1f} {times[0] * 1e3:9.2f} {times[1] * 1e3:9.2f}")
        cells.append(f"{min(times[2:]) * 1e3:9.2f}")
    print(f"{name:24} {' '.join(cells)}", flush=True)


def main(arguments: list[str] | None = None) -> int:
    """Return 0."""
    parser = argparse.ArgumentParser(prog="python -m bench shapes", description=__doc__)
    known = [*CASES, *GRAPHS]
    parser.add_argument("names", nargs="*", type=one_of(known), metavar="NAME", help=str(known))
    parser.add_argument("--runs", type=int, default=300, help="of new shapes; 300 by default")
    parsed = parser.parse_args(arguments)
    names = parsed.names or known
    if cases := [name for name in names if name in CASES]:
        print(f"{'all runs':26} tenonnx  onnxruntime   ratio  to own, first run, memory")
        for name in cases:
            changing(name, parsed.runs)
    if graphs := [name for name in names if name in GRAPHS]:
        columns = "     load     first    second     later"
        print(f"{'ms':24} tenonnx: {columns[9:]} onnxruntime: {columns[13:]}")
        for name in graphs:
            graph(name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
