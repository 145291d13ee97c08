"""One engine in a process of its own: loads a model, then times it whenever it is its turn.

``python -m bench.cpu.child JOB``; the parent is ``bench.cpu.turns``.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from typing import Any

from bench.child import ENGINES, read_feeds, settle, write_outputs

LEAST = 2
"""Runs per turn, however long they take."""


def tell(**facts: Any) -> None:
    """Tells the parent something."""
    print(json.dumps(facts), flush=True)


def turn(run: Any, feed: dict[str, Any], seconds: float) -> dict[str, float]:
    """Returns wall seconds per run, and processor seconds of all threads."""
    clock = time.perf_counter
    taken: list[float] = []
    before, stop = time.process_time(), clock() + seconds
    while len(taken) < LEAST or clock() < stop:
        start = clock()
        run(feed)
        taken.append(clock() - start)
    processor = (time.process_time() - before) / len(taken)
    return {
        "fastest": min(taken),
        "median": statistics.median(taken),
        "processor": processor,
        "runs": len(taken),
    }


def main(job: dict[str, Any]) -> None:
    """Does what the parent asks for, a line at a time, until there are no more lines."""
    start = time.perf_counter()
    run = ENGINES[job["engine"]](job["threads"]).load(job["model"])
    feed = read_feeds(job["feeds"])[0]
    loaded = time.perf_counter()
    run(feed)
    first = time.perf_counter()
    settle()
    write_outputs(job["outputs"], [run(feed)])
    tell(load_s=loaded - start, first_s=first - loaded, settled_s=time.perf_counter() - first)
    for line in sys.stdin:
        tell(**turn(run, feed, float(line)))


if __name__ == "__main__":
    try:
        main(json.loads(sys.argv[1]))
    except Exception as error:
        tell(error=" ".join(f"{type(error).__name__}: {error}".split())[:300])
