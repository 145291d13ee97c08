"""One engine in a process of its own: loads a model, then times it whenever it is its turn.

``python -m bench.cpu.child JOB``; the parent is ``bench.cpu.turns``.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from bench.child import ENGINES, clock, read_feeds, write_outputs

if TYPE_CHECKING:
    from tenonnx.cli.timing import Turn

# Runs per turn, however long they take.
LEAST = 2


def tell(**facts: Any) -> None:
    """Tell the parent something."""
    print(json.dumps(facts), flush=True)


def turn_at_once(call: Callable[[], Any], callers: int, seconds: float) -> Turn:
    """Time threads that call at once: seconds per call of all together."""
    from tenonnx.cli.timing import Turn, repeat, timed

    before = time.process_time()
    with ThreadPoolExecutor(callers) as threads:
        told, elapsed = timed(
            lambda: list(threads.map(lambda _: len(list(repeat(call, seconds))), range(callers)))
        )
    runs = sum(told)
    taken = elapsed / runs
    return Turn(runs, taken, taken, (time.process_time() - before) / runs)


def without_files(load: Callable[[], Any]) -> Any:
    """Load a model as the first process of a user does: no earlier one has kept anything."""
    kept = os.environ["TENONNX_CACHE_DIR"]
    os.environ["TENONNX_CACHE_DIR"] = tempfile.mkdtemp(dir=kept)
    try:
        return load()
    finally:
        os.environ["TENONNX_CACHE_DIR"] = kept


def main(job: dict[str, Any]) -> None:
    """Do what the parent asks for, a line at a time, until there are no more lines."""
    start = clock()
    engine = ENGINES[job["engine"]](job["threads"])
    run = engine.load(job["model"])
    feed = read_feeds(job["feeds"])[0]
    loaded = clock()
    run(feed)
    first = clock()
    from tenonnx.cli.timing import turn

    write_outputs(job["outputs"], [run(feed)])
    tell(load_s=loaded - start, first_s=first - loaded)
    if job.get("loading"):
        del run  # or its weights would be found
        load = functools.partial(engine.load, job["model"])
        call = functools.partial(without_files, load) if job["loading"] == "first" else load
    else:
        call = functools.partial(run, feed)
    for line in sys.stdin:
        seconds, callers = (*line.split(), "0")[:2]
        if int(callers):
            tell(**vars(turn_at_once(call, int(callers), float(seconds))))
        else:
            tell(**vars(turn(call, float(seconds), LEAST)))


if __name__ == "__main__":
    try:
        main(json.loads(sys.argv[1]))
    except Exception as error:
        tell(error=" ".join(f"{type(error).__name__}: {error}".split())[:500])
