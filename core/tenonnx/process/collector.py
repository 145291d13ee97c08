"""The collector of cyclic garbage, at rest while a model is compiled."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

from tenonnx.process.memory import trim


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Pause the collector: what is made inside grows, and none of it is garbage.

    Otherwise it is searched again and again. Graphs of 1,000, 2,000 and 3,000 nodes
    (``bench.shapes.graphs``) are loaded in 92, 233 and 373 ms instead of 92, 316 and 523 ms of one
    core (CPython 3.11). Loads of other threads may overlap: the first one that ends resumes it.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
            gc.collect(1)


def release() -> None:
    """Give back the memory of a large model that is read again if somebody asks for it.

    Its nodes and values refer to each other, and are older than what the collector looks at often.
    """
    gc.collect()
    trim()
