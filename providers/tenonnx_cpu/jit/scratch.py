"""Memory that kernels work in, kept by each thread from call to call."""

from __future__ import annotations

import ctypes
import math
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from tenonnx_cpu.jit.threads.memory import ROOM_ROWS, ROOM_WORDS

ALIGNMENT = 64
LINE_FLOATS = ALIGNMENT // 4
# Bytes at most that a thread keeps.
KEPT = 64 << 20

# Threads that have memory: their identity, where the memory begins, and how many bytes it has.
ROOMS = np.zeros((ROOM_ROWS, ROOM_WORDS), np.int64)

_local = threading.local()
_lock = threading.RLock()  # a signal's handler may run kernels, too

# The memory in the rows, by its address. Daemon threads run kernels in it until the process ends,
# when Python has already taken modules and threads' own variables apart.
_kept: dict[int, Any] = {}
ctypes.pythonapi.Py_IncRef(ctypes.py_object(_kept))

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release
    )


# A thread's memory, and what frees its row in `ROOMS`; `None` if all rows were taken.
_Room = tuple[np.ndarray[Any, Any], Callable[[], Any] | None]


def scratch(nbytes: int) -> np.ndarray[Any, Any]:
    """Return at least so many bytes, aligned to a cache line, with anything in them.

    They are the calling thread's until it asks again.
    """
    room: _Room | None = getattr(_local, "room", None)
    if room is not None and room[0].size >= nbytes:
        return room[0]
    memory = aligned(nbytes)
    if nbytes <= KEPT:
        _keep(memory, room)
    return memory


def floats(count: int) -> np.ndarray[Any, Any]:
    """Return so many float32 in the calling thread's memory."""
    return scratch(4 * count)[: 4 * count].view(np.float32)


def pieces(*wanted: tuple[tuple[int, ...], type]) -> tuple[np.ndarray[Any, Any], ...]:
    """Return arrays of these shapes and dtypes in the calling thread's memory, side by side."""
    places, start = [], 0
    for shape, dtype in wanted:
        size = math.prod(shape) * np.dtype(dtype).itemsize
        places.append((start, start + size))
        start += -(-size // ALIGNMENT) * ALIGNMENT
    memory = scratch(start)
    found = zip(places, wanted, strict=True)
    return tuple([memory[a:b].view(dtype).reshape(shape) for (a, b), (shape, dtype) in found])


def share_of(count: int, dtype: Any = np.float32) -> int:
    """Return how many elements a worker gets that needs so many: whole cache lines."""
    line: int = ALIGNMENT // np.dtype(dtype).itemsize
    return -(-count // line) * line


def worker_shares(share: int, workers: int, dtype: Any = np.float32) -> tuple[tuple[int], Any]:
    """Return the shape and dtype of memory with a share for each worker, for ``pieces``.

    A kernel's worker begins at ``share`` times its number, and reads and writes whole vectors at
    multiples of their size.

    Raises:
        ValueError: A share is not in whole cache lines; see ``share_of``.
    """
    if share != share_of(share, dtype):
        raise ValueError(f"expected a share of {share_of(share, dtype)} elements, found {share}")
    return (share * workers,), dtype


def worker_floats(share: int, workers: int) -> np.ndarray[Any, Any]:
    """Return a share of float32 for each worker; see ``worker_shares``."""
    if share % LINE_FLOATS:
        worker_shares(share, workers)  # which refuses it
    count = share * workers
    return floats(count)


def _keep(memory: np.ndarray[Any, Any], before: _Room | None) -> None:
    """Make memory this thread's, and enter it in ``ROOMS``, if a row is free.

    Args:
        memory: The new memory.
        before: What the thread had. A kernel that a signal's handler interrupts takes the thread's
            room from it until the handler is done: then this is ``None``, and the interrupted
            kernel's row stays.
    """
    own, start = threading.get_ident(), memory.ctypes.data
    with _lock:
        if before is not None and before[1] is not None:
            before[1]()  # here, where an interrupt is not lost; later only as another thread ends
        leave = None
        for row in ROOMS:
            if row[0] == 0:
                _kept[start] = memory.base
                leave = weakref.finalize(memory, _leave, row, start)
                leave.atexit = False
                row[:] = own, start, memory.size
                break
        _local.room = memory, leave


def _leave(row: np.ndarray[Any, Any], start: int) -> None:
    """Let go of memory whose thread has ended or has more; not called any more at exit."""
    _kept.pop(start, None)
    if row[1] == start:
        row[:] = 0


def aligned(nbytes: int) -> np.ndarray[Any, Any]:
    """Return new memory, aligned to a cache line."""
    raw = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + nbytes]
