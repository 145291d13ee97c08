"""The threads of numpy's products: OpenBLAS's number is lowered during runs with fewer threads.

OpenBLAS has one number for the process, or one for each thread if it is built with OpenMP. Of the
first kind, the smallest bound of all that are in force counts, so no run uses more than it may;
the number from before is back once none is. numpy over another library is left alone.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tenonnx.planning.quiet import quietly

# The names of OpenBLAS's functions: in numpy's wheels, and in distributions' builds.
OPENBLAS_NAMES = ("scipy_openblas_{}64_", "scipy_openblas_{}", "openblas_{}64_", "openblas_{}")

# The module of numpy that is linked to it.
LINKED = "numpy._core._multiarray_umath"

# The result of ``openblas_get_parallel`` if each calling thread has its own number.
OPENMP = 2


class OpenBlas(NamedTuple):
    """The functions of numpy's OpenBLAS; each takes about 0.1 µs.

    Attributes:
        get: Returns how many threads a product uses at most.
        set: Says so.
        own: Whether that holds for the calling thread alone.
    """

    get: Callable[[], int]
    set: Callable[[int], None]
    own: bool


@functools.cache
def openblas() -> OpenBlas | None:
    """Return the OpenBLAS that numpy computes with; ``None`` if it computes with another library.

    A symbol of what numpy is linked to is found through numpy's own module; where the system does
    not look there, as on Windows, through the library that the wheel brings.
    """
    folder = Path(np.__file__).parents[1] / "numpy.libs"
    linked = getattr(sys.modules.get(LINKED), "__file__", None)
    for path in (*filter(None, [linked]), *map(str, sorted(folder.glob("*openblas*")))):
        try:
            library = ctypes.PyDLL(path)
        except OSError:
            continue
        for name in OPENBLAS_NAMES:
            if hasattr(library, name.format("set_num_threads")):
                get, set_, parallel = (
                    getattr(library, name.format(part))
                    for part in ("get_num_threads", "set_num_threads", "get_parallel")
                )
                set_.restype = None
                return OpenBlas(get, set_, parallel() == OPENMP)
    return None


class Bounds:
    """The bounds in force, of one OpenBLAS whose number is the process's.

    Both methods may be interrupted anywhere by a signal's handler that runs a session.
    """

    def __init__(self, blas: OpenBlas) -> None:
        self._get, self._set, _ = blas
        self._lock = threading.RLock()
        self._bounds: dict[object, int] = {}
        self._before: int | None = None
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)

    def natural(self) -> int:
        """Return OpenBLAS's number without any bound."""
        with self._lock:
            return self._get() if self._before is None else self._before

    def enter(self, key: object, threads: int) -> None:
        """Put a bound in force until ``leave`` is called with the same key."""
        with self._lock:
            self._bounds[key] = threads
            if self._before is None:
                self._before = self._get()
            self._apply()

    def leave(self, key: object) -> None:
        """End a bound, if it is in force; if it is not, finishes what an exception interrupted."""
        with self._lock:
            self._bounds.pop(key, None)
            self._apply()
            if not self._bounds:
                self._before = None

    def _apply(self) -> None:
        if (before := self._before) is not None:  # which a handler's run may have put back
            self._set(min(before, *self._bounds.values()) if self._bounds else before)

    def _forked(self) -> None:
        """End all bounds: a forked child does not have the threads that would."""
        self._lock = threading.RLock()
        self._bounds.clear()
        self.leave(self)


@functools.cache
def _bounds() -> Bounds | None:
    blas = openblas()
    return None if blas is None or blas.own else Bounds(blas)


def bounded(threads: int) -> Callable[[Callable[..., Any], Sequence[Any]], Any]:
    """Return what calls functions as ``quietly`` does, their products on so many threads at most.

    It is ``quietly`` itself if numpy has no OpenBLAS, or one that uses no more as it is. Else it
    costs a microsecond.
    """
    if (bounds := _bounds()) is not None:
        return quietly if bounds.natural() <= threads else _among_all(bounds, threads)
    blas = openblas()
    return quietly if blas is None or blas.get() <= threads else _alone(blas, threads)


def _among_all(bounds: Bounds, threads: int) -> Callable[..., Any]:
    enter, leave = bounds.enter, bounds.leave

    def call(function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
        key = object()
        try:
            enter(key, threads)
            return quietly(function, arguments)
        finally:
            try:
                leave(key)
            except BaseException:  # a signal's handler raised in the middle of that
                leave(key)
                raise

    return call


def _alone(blas: OpenBlas, threads: int) -> Callable[..., Any]:
    def call(function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
        before = blas.get()
        try:
            blas.set(min(before, threads))
            return quietly(function, arguments)
        finally:
            blas.set(before)

    return call


@contextmanager
def leaving(cores: int) -> Iterator[None]:
    """Leave cores to what is done meanwhile: all products of the process use so many fewer.

    Waiting threads of OpenBLAS yield their core to any other work, which then keeps it for
    milliseconds each time. An OpenBLAS with OpenMP is left alone.
    """
    bounds, key = _bounds(), object()
    if bounds is None:
        yield
        return
    try:
        bounds.enter(key, max(1, bounds.natural() - cores))
        yield
    finally:
        bounds.leave(key)
