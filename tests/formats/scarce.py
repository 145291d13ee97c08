"""Opens models in children that have little address space; prints what became of each.

Argument: a file of JSON, ``[[path, [bytes, ...]], ...]``. Prints ``[[status, classes, text], ...]``
for each path: of a first child without a limit, then of a child with each number of bytes.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from pathlib import Path

import numpy as np

import tenonnx

SECONDS = 60
"""After which a child counts as one that waits for ever."""

open_session = tenonnx.InferenceSession  # imported here, as programs do


def attempt(path: str) -> None:
    session = open_session(path, providers=["cpu"])
    feeds = {
        each.name: np.zeros([n if isinstance(n, int) else 1 for n in each.shape], np.float32)
        for each in session.get_inputs()
    }
    session.run(None, feeds)


def taken() -> int:
    pages = Path("/proc/self/statm").read_text().split()[0]
    return int(pages) * resource.getpagesize()


def told(path: str, limit: int | None) -> list[object]:
    if limit is not None:
        resource.setrlimit(resource.RLIMIT_AS, (taken() + limit, resource.RLIM_INFINITY))
    try:
        attempt(path)
    except BaseException as error:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        return [[kind.__name__ for kind in type(error).__mro__], str(error)]
    return [["ok"], ""]


def in_child(path: str, limit: int | None) -> list[object]:
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        if limit is not None:  # the first one compiles what is not there
            signal.alarm(SECONDS)
        os.write(writing, json.dumps(told(path, limit)).encode()[: 1 << 15])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    return [status, *(json.loads(text) if text else (["ended"], ""))]


asked = json.loads(Path(sys.argv[1]).read_text())
print(json.dumps([[in_child(path, each) for each in [None, *limits]] for path, limits in asked]))
