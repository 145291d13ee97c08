"""Memory that kernels work in, kept by each thread from call to call."""

from __future__ import annotations

import ctypes
import itertools
import math
import os
import threading
import weakref
from typing import Any

import numpy as np

from tenonnx_cpu.jit.threads.memory import ROOM_ROWS, ROOM_WORDS

ALIGNMENT = 64
KEPT = 64 << 20
"""Bytes at most that a thread keeps."""

ROOMS = np.zeros((ROOM_ROWS, ROOM_WORDS), np.int64)
"""Threads that have memory: their identity, where the memory begins, and how many bytes it has."""

_local = threading.local()
_lock = threading.RLock()  # a signal's handler may run kernels, too

_kept: dict[int, Any] = {}
"""The memory in the rows, by its address. Daemon threads run kernels in it until the
process ends, when Python has already taken modules and threads' own variables apart."""
ctypes.pythonapi.Py_IncRef(ctypes.py_object(_kept))

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release
    )


def scratch(nbytes: int) -> np.ndarray[Any, Any]:
    """Returns at least so many bytes, aligned to a cache line, with anything in them.

    They are the calling thread's until it asks again.
    """
    kept: np.ndarray[Any, Any] | None = getattr(_local, "memory", None)
    if kept is None or kept.size < nbytes:
        kept = aligned(nbytes)
        if nbytes <= KEPT:
            _keep(kept)
    return kept


def floats(count: int) -> np.ndarray[Any, Any]:
    """Returns so many float32 in the calling thread's memory."""
    return scratch(4 * count)[: 4 * count].view(np.float32)


def pieces(*wanted: tuple[tuple[int, ...], type]) -> tuple[np.ndarray[Any, Any], ...]:
    """Returns arrays of these shapes and dtypes in the calling thread's memory, side by side."""
    sizes = [math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in wanted]
    starts = [0, *itertools.accumulate(-(-size // ALIGNMENT) * ALIGNMENT for size in sizes)]
    memory = scratch(starts[-1])
    return tuple(
        memory[start : start + size].view(dtype).reshape(shape)
        for start, size, (shape, dtype) in zip(starts, sizes, wanted, strict=False)
    )


def _keep(memory: np.ndarray[Any, Any]) -> None:
    """Makes memory this thread's, and notes it where machine code finds it, if there is a row."""
    own, start = threading.get_ident(), memory.ctypes.data
    with _lock:
        _local.memory = memory
        for wanted in (own, 0):
            for row in ROOMS:
                if row[0] == wanted:
                    _kept[start] = memory.base
                    weakref.finalize(memory, _leave, row, start).atexit = False
                    row[:] = own, start, memory.size
                    return


def _leave(row: np.ndarray[Any, Any], start: int) -> None:
    """Lets go of memory whose thread has ended or has more; not called any more at exit."""
    _kept.pop(start, None)
    if row[1] == start:
        row[:] = 0


def aligned(nbytes: int) -> np.ndarray[Any, Any]:
    """Returns new memory, aligned to a cache line."""
    raw = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + nbytes]
