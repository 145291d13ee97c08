"""A process that builds a library: ``python -m tenonnx_cpu.jit.aot.worker ORDER``; see ``build``.

The order is JSON: the target CPU, the folder of objects, the library's path, kernels by name, how
many processes, the release, and the package's name and folder. It writes a line of JSON for each
object and one of errors at last, or of why there is no library. Its children are forks of it, which
so have numba and all kernels imported.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tenonnx_cpu.jit.aot.sources import Unfounded
from tenonnx_cpu.jit.code.cpu import compile_for, compiled_architecture
from tenonnx_cpu.jit.packages import OWN, Package

if TYPE_CHECKING:
    from tenonnx_cpu.jit.aot.objects import Part

PR_SET_PDEATHSIG = 1

# New objects after which garbage is looked for among them.
YOUNG = 300_000

KILLED = "the process that compiled it was killed, as for want of memory"


def main() -> None:
    """Build what is ordered."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what numba and LLVM may print is no answer
    _end_with_starter()
    _lighten()
    try:
        for answer in build(**json.loads(sys.argv[1])):
            print(json.dumps(answer), file=answers, flush=True)
    except (OSError, RuntimeError, Unfounded) as error:
        print(json.dumps({"failed": str(error)}), file=answers, flush=True)


def _end_with_starter() -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _lighten() -> None:
    """Spare numba work that a process which only compiles kernels does not need.

    That is the import of SciPy for its BLAS, and repeated garbage collections among the objects of
    one kernel.
    """
    sys.modules.setdefault("scipy", None)  # type: ignore[arg-type] # which says it is not there
    gc.set_threshold(YOUNG, 100, 100)


def build(
    kind: str,
    folder: str,
    path: str,
    kernels: Sequence[str],
    workers: int,
    release: str,
    package: Sequence[str] = OWN,
) -> Iterator[dict[str, Any]]:
    """Compile the objects that are missing and link them with the others; yield what is done.

    Raises:
        RuntimeError: What kernels share cannot be compiled, or the library cannot be linked.
        Unfounded: A kernel imports what it may not.
        OSError: It cannot be written.
    """
    compile_for(kind)
    from tenonnx_cpu.jit.aot.linking import link
    from tenonnx_cpu.jit.aot.objects import all_parts

    _parts.update((part.name, part) for part in all_parts(Path(folder), release, Package(*package)))
    every = [name for name, part in _parts.items() if part.is_kernel]
    wanted = [name for name in every if not kernels or name in kernels or _parts[name].is_there()]
    following = [name for name, part in _parts.items() if part.is_first] + wanted
    expected = sum(not part.is_there() for part in _parts.values()) if not kernels else 0
    errors, linked, done = dict[str, str](), list[str](), 0
    while following:
        missing = [name for name in following if not _parts[name].is_there()]
        expected = max(expected, done + len(missing))
        for name, error in _compile(missing, workers):
            done += 1
            errors |= {name: error} if error else {}
            yield {"name": name, "done": done, "all": expected}
        linked += [name for name in following if name not in errors]
        following = [name for name in _reached(linked) if name not in errors]
    if needed := next((name for name in errors if name not in wanted), None):
        raise RuntimeError(f"{needed}: {errors[needed]}")
    link((_parts[name].path for name in linked), path, compiled_architecture())
    yield {"errors": {name: errors.get(name, "") for name in wanted}}


def _reached(linked: Sequence[str]) -> list[str]:
    """Return the parts whose functions others call, and which are not among them."""
    calls = b"".join(_parts[name].path.read_bytes() for name in linked)
    others = (part for name, part in _parts.items() if name not in linked)
    return [part.name for part in others if any(each in calls for each in part.functions)]


# The parts by name, which child processes inherit.
_parts: dict[str, Part] = {}


def _compile(parts: Sequence[str], workers: int) -> Iterator[tuple[str, str]]:
    """Compile objects side by side; yield the name of each and its error, or ``""``.

    Where a process dies, as for want of memory, what is left is compiled one by one.
    """
    left = dict.fromkeys(parts)
    with contextlib.suppress(BrokenProcessPool):
        for name, error in _side_by_side(parts, workers):
            del left[name]
            yield name, error
    for name in left:
        try:
            yield from _side_by_side([name], 1)
        except BrokenProcessPool:
            yield name, KILLED


def _side_by_side(parts: Sequence[str], workers: int) -> Iterator[tuple[str, str]]:
    if not parts:
        return
    forking = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(workers, forking, initializer=_end_with_starter) as pool:
        for done in as_completed([pool.submit(_make, part) for part in parts]):
            yield done.result()


def _make(name: str) -> tuple[str, str]:
    try:
        _parts[name].compile()
    except Exception as error:  # LLVM and numba raise anything
        return name, f"{type(error).__name__}: {error}"
    return name, ""


if __name__ == "__main__":
    main()
