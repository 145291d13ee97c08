"""One engine in a process of its own: loads a model, then times it whenever it is its turn.

``python -m bench.cpu.child JOB``; the parent is ``bench.cpu.turns``.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from bench.child import ENGINES, clock, read_feeds, settle, write_outputs

LEAST = 2
"""Runs per turn, however long they take."""


def tell(**facts: Any) -> None:
    """Tells the parent something."""
    print(json.dumps(facts), flush=True)


def main(job: dict[str, Any]) -> None:
    """Does what the parent asks for, a line at a time, until there are no more lines."""
    start = clock()
    run = ENGINES[job["engine"]](job["threads"]).load(job["model"])
    feed = read_feeds(job["feeds"])[0]
    loaded = clock()
    run(feed)
    first = clock()
    settle()
    from tenonnx.cli.timing import turn

    write_outputs(job["outputs"], [run(feed)])
    tell(load_s=loaded - start, first_s=first - loaded, settled_s=clock() - first)
    for line in sys.stdin:
        tell(**vars(turn(lambda: run(feed), float(line), LEAST)))


if __name__ == "__main__":
    try:
        main(json.loads(sys.argv[1]))
    except Exception as error:
        tell(error=" ".join(f"{type(error).__name__}: {error}".split())[:300])
