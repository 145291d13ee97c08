"""One of the processes of a measurement: loads a model in an engine and runs it."""

from __future__ import annotations

import gc
import json
import sys
import threading
from collections.abc import Callable
from typing import Any

from bench import child


class Configured:
    """An engine with session configuration entries, which both take alike."""

    def __init__(self, engine: Any, entries: dict[str, str]) -> None:
        self.engine, self.entries = engine, entries

    def load(self, path: str) -> Callable[[dict[str, Any]], list[Any]]:
        """Return what runs the model on a feed."""
        options = self.engine.module.SessionOptions()
        options.intra_op_num_threads = self.engine.threads
        for key, value in self.entries.items():
            options.add_session_config_entry(key, value)
        session = self.engine.session(path, options, providers=["CPUExecutionProvider"])
        return lambda feed: list(session.run(None, feed))


def warm_up(run: Callable[[dict[str, Any]], list[Any]], feeds: list[dict[str, Any]]) -> None:
    """Run a tiny model, with what engines do in the background, until nothing is new."""
    for _ in range(2):
        for feed in feeds:
            run(feed)
        for thread in threading.enumerate():
            if thread is not threading.current_thread():
                thread.join()
    gc.collect()


def main(job: dict[str, Any]) -> None:
    """Do what the parent asks for; the job's keys are the fields of ``measure.Job``."""
    plain = child.Tenonnx if job["engine"] == "tenonnx" else child.OnnxRuntime
    engine = Configured(plain(job["threads"]), job["entries"])
    warm_up(engine.load(job["tiny"]), child.read_feeds(job["tiny_feeds"]))
    feeds = child.read_feeds(job["feeds"])
    from tenonnx.cli.timing import repeat

    child.tell("started")

    start = child.clock()
    run = engine.load(job["model"])
    child.tell("loaded", load_s=child.clock() - start)

    start = child.clock()
    outputs = [run(feed) for feed in feeds]
    first = child.clock() - start
    times = list(repeat(lambda: run(feeds[-1]), job["budget"], least=3))
    child.tell("ran", first_s=first, run_s=min(times))
    child.write_outputs(job["outputs"], [outputs])
    child.tell("done")


if __name__ == "__main__":
    try:
        main(json.loads(sys.argv[1]))
    except Exception as error:
        text = " ".join(f"{type(error).__name__}: {error}".split())
        child.tell("failed", error=text[:200])
