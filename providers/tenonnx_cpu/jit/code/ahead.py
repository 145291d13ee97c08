"""Compiling many kernels ahead: in worker processes, for any target CPU.

What there is to do are kernels, and the code objects of the functions that they share. A worker
compiles one after the other into the disk cache and loads nothing (``worker``), so that the order
is free and the processor may be another one. Nothing here imports numba.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from tenonnx.cores import available_cores

MODULE = "tenonnx_cpu.jit.code.worker"

VARIABLES = {"OPENBLAS_NUM_THREADS": "1", "NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING": "1"}
"""Of every process that compiles. It needs no threads of numpy's, and no colours in messages of
errors, which numba makes and drops whenever it looks for the definition that fits."""

Tell = Callable[[str, float], None]
"""Hears what is about to be compiled, and the share of all that is done."""


class Failed(RuntimeError):
    """A worker could not do what it was asked for."""


class Work(NamedTuple):
    """What there is to compile.

    Attributes:
        kernels: By name, as in ``norm.norms.softmax``.
        shared: Modules whose functions they share.
    """

    kernels: Sequence[str]
    shared: Sequence[str]


def compile_ahead(
    kind: str, folder: Path, tell: Tell, kernels: Sequence[str] = (), workers: int = 0
) -> dict[str, str]:
    """Compiles kernels into a folder, unless they are there.

    Args:
        kind: The target CPU; ``native`` for this very one.
        folder: The cache folder, or another one to be used like it: ``tenonnx`` by name.
        tell: Called by several threads, one at a time.
        kernels: Which ones; all if none is named.
        workers: How many processes; as many as there are cores for 0.

    Returns:
        For every kernel: why it failed, or ``""``.

    Raises:
        Failed: No worker can be started.
    """
    with _Worker(kind, folder) as first:
        work = Work(**first.ask({"kernels": list(kernels)}))
        pool = _Workers(work, tell)
        count = min(workers or available_cores(), len(pool.waiting))
        with ThreadPoolExecutor(count) as threads:
            for _ in range(count - 1):
                threads.submit(pool.run_new, kind, folder)
            pool.run(first, last=True)
        pool.run(first, last=True)  # what others left that ended
        return {name: pool.errors.get(name, "") for name in work.kernels}


class _Workers:
    """Workers that share a list of things to do."""

    def __init__(self, work: Work, tell: Tell) -> None:
        self._tell = tell
        self._lock = threading.Lock()
        self.waiting = deque(
            [("shared", name) for name in work.shared] + [("kernel", name) for name in work.kernels]
        )
        self._total = len(self.waiting)
        self._done = 0
        self._left: set[str] = set()
        self.errors: dict[str, str] = {}

    def run_new(self, kind: str, folder: Path) -> None:
        """Has a new worker work."""
        with contextlib.suppress(Failed, OSError), _Worker(kind, folder) as worker:
            self.run(worker, last=False)

    def run(self, worker: _Worker, *, last: bool) -> None:
        """Has a worker work until nothing is left.

        What it ends in the middle of, as for lack of memory, is tried once more. It is started anew
        if it is the last.
        """
        with contextlib.suppress(IndexError):
            while True:
                what, name = self.waiting.popleft()
                with self._lock:
                    self._tell(name, min(1.0, self._done / self._total))
                try:
                    error = str(worker.ask({what: name})["error"])
                except Failed as failure:
                    error = str(failure) if name in self._left else ""
                    if not error:
                        self._left.add(name)
                        self.waiting.append((what, name))
                    if not last:
                        raise
                    worker.start()
                with self._lock:
                    self._done += 1
                    if error:
                        self.errors[name] = error


class _Worker:
    """A process that answers, in a line of JSON each."""

    def __init__(self, kind: str, folder: Path) -> None:
        self._kind = kind
        self._environment = os.environ | VARIABLES
        self._environment["NUMBA_CACHE_DIR"] = os.fspath(folder.parent)
        self._environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        self.start()

    def start(self) -> None:
        """Starts it, anew if it has ended."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", MODULE, self._kind],
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, what: dict[str, Any]) -> dict[str, Any]:
        """Returns its answer.

        Raises:
            Failed: It ended instead.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps(what), file=self._process.stdin, flush=True)
        if answer := self._process.stdout.readline():
            return dict(json.loads(answer))
        raise Failed(f"the process that compiles ended with code {self._process.wait()}")

    def __enter__(self) -> _Worker:
        return self

    def __exit__(self, *failure: object) -> None:
        self._process.kill()
        self._process.communicate()


def kept_in(folder: Path) -> Iterator[Path]:
    """Yields what a folder holds for others to use: code objects, and what they are made from."""
    from tenonnx_cpu.jit.code.cache import COMPILER
    from tenonnx_cpu.jit.code.sources import INDEX

    yield folder / COMPILER
    if (index := folder / INDEX).exists():
        yield index
    yield from sorted(folder.glob("*.image"))
