"""One engine in a fresh process: opens a model, runs it, and times every run from the first on.

``python -m bench.first.child JOB``; the parent is ``bench.first.compare``. Whatever is imported
here is part of the time to the first answer.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from bench.child import ENGINES, blas, clock, read_feeds, tell, write_outputs

# Runs that each process makes, however long they take.
LEAST = 10


def kernels() -> list[int]:
    """Return how many kernels tenonnx asked for, and how many of them there are."""
    runtime = sys.modules.get("tenonnx_cpu.jit.runtime")
    known = getattr(runtime, "KERNELS", {}).values()
    asked = [kernel for kernel in known if kernel.is_requested]
    return [len(asked), sum(kernel.run is not None for kernel in asked)]


def main(job: dict[str, Any]) -> None:
    """Print how long every step took; ``answered`` is a time of the clock, which parents share.

    Processor seconds, ``*_cpu_s``, are those of all threads, and since the process was started for
    the first answer. They tell more where others keep the machine busy.

    Args:
        job: ``engine``, ``threads``, ``model``, ``feeds`` and ``outputs`` (files), ``budget``
            (seconds of warm runs) and ``entries`` of the session's configuration, for engines that
            have such.
    """
    start = clock()
    import numpy  # noqa: F401 - inputs are its arrays, so that every user imports it

    facts = {"numpy_s": clock() - start}
    engine = ENGINES[job["engine"]](job["threads"])
    facts["import_s"] = clock() - start
    start = clock()
    feed = read_feeds(job["feeds"])[0]
    opened = clock()
    facts["feeds_s"] = opened - start
    run = engine.load(job["model"], **({"entries": job["entries"]} if job["entries"] else {}))
    start = clock()
    facts["load_s"] = start - opened
    outputs = run(feed)
    answered = clock()
    facts["first_s"] = answered - start
    facts["answer_cpu_s"] = time.process_time()
    from tenonnx.cli.timing import repeat, seconds

    used = time.process_time()
    early = [seconds(lambda: run(feed))]
    facts["second_cpu_s"] = time.process_time() - used
    early += repeat(lambda: run(feed), 0, LEAST - 2)
    used = time.process_time()
    warm = list(repeat(lambda: run(feed), job["budget"], LEAST))
    facts["warm_cpu_s"] = (time.process_time() - used) / len(warm)
    tell("ran", **facts, early=early, warm=warm, answered=answered, kernels=kernels())
    write_outputs(job["outputs"], [outputs])
    tell("done", blas=blas())


if __name__ == "__main__":
    try:
        main(json.loads(sys.argv[1]))
    except Exception as error:
        tell("failed", error=" ".join(f"{type(error).__name__}: {error}".split())[:200])
