"""Compiling many kernels ahead: in worker processes, for any target CPU.

The work consists of kernels, and of the code objects of the functions that they share. A worker
compiles one after the other into the disk cache and loads nothing (``worker``), so that the order
is free and the processor may be another one. Nothing here imports numba.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tenonnx.process.cores import available_cores
from tenonnx_cpu.jit.code.child import VARIABLES, Child, Died, Process

MODULE = "tenonnx_cpu.jit.code.worker"

Tell = Callable[[str, float], None]
"""Hears what is about to be compiled, and the share of all that is done."""


class Work(NamedTuple):
    """The kernels and functions to compile.

    Attributes:
        kernels: By name, as in ``norm.norms.softmax``.
        shared: Modules whose functions they share.
    """

    kernels: Sequence[str]
    shared: Sequence[str]


def compile_ahead(
    kind: str, folder: Path, tell: Tell, kernels: Sequence[str] = (), workers: int = 0
) -> dict[str, str]:
    """Compile kernels into a folder, unless they are there.

    Args:
        kind: The target CPU; ``native`` for this very one.
        folder: The cache folder, or another one to be used like it: ``tenonnx`` by name.
        tell: Called by several threads, one at a time.
        kernels: Which ones; all if none is named.
        workers: How many processes; as many as there are cores for 0.

    Returns:
        For every kernel: why it failed, or ``""``.

    Raises:
        Died: Workers end as soon as they are started.
        OSError: None can be started.
    """
    with _worker(kind, folder) as first:
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
        """Have a new worker work."""
        with contextlib.suppress(Died, OSError), _worker(kind, folder) as worker:
            self.run(worker, last=False)

    def run(self, worker: Child, *, last: bool) -> None:
        """Have a worker work until nothing is left.

        If it dies during a kernel, as for lack of memory, the kernel is tried once more: by this
        worker, restarted, if it is the last.
        """
        with contextlib.suppress(IndexError):
            while True:
                what, name = self.waiting.popleft()
                with self._lock:
                    self._tell(name, min(1.0, self._done / self._total))
                try:
                    error = str(worker.ask({what: name})["error"])
                except (Died, OSError) as failure:
                    error = str(failure) if name in self._left else ""
                    if not error:
                        self._left.add(name)
                        self.waiting.append((what, name))
                    if not last:
                        raise
                with self._lock:
                    self._done += 1
                    if error:
                        self.errors[name] = error


@contextlib.contextmanager
def _worker(kind: str, folder: Path) -> Iterator[Child]:
    """Return a process that compiles into a folder; it ends with what is done with it."""
    environment = os.environ | VARIABLES
    environment["NUMBA_CACHE_DIR"] = os.fspath(folder.parent)
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)

    def start() -> Process:
        pipe = subprocess.PIPE
        command = [sys.executable, "-m", MODULE, kind]
        return subprocess.Popen(command, bufsize=0, env=environment, stdin=pipe, stdout=pipe)

    worker = Child(start)
    try:
        yield worker
    finally:
        worker.close()


def kept_in(folder: Path) -> Iterator[Path]:
    """Yield what a folder holds for others to use: code objects, and what they are made from."""
    from tenonnx_cpu.jit.code.cache import COMPILER
    from tenonnx_cpu.jit.code.sources import INDEX

    yield folder / COMPILER
    if (index := folder / INDEX).exists():
        yield index
    yield from sorted(folder.glob("*.image"))
