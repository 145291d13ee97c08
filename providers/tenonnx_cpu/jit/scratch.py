"""Memory that kernels work in, kept by each thread from call to call."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

ALIGNMENT = 64
KEPT = 64 << 20
"""Bytes at most that a thread keeps."""

_local = threading.local()


def scratch(nbytes: int) -> np.ndarray[Any, Any]:
    """Returns at least so many bytes, aligned to a cache line, with anything in them.

    They are the calling thread's until it asks again.
    """
    kept: np.ndarray[Any, Any] | None = getattr(_local, "memory", None)
    if kept is None or kept.size < nbytes:
        kept = aligned(nbytes)
        if nbytes <= KEPT:
            _local.memory = kept
    return kept


def aligned(nbytes: int) -> np.ndarray[Any, Any]:
    """Returns new memory, aligned to a cache line."""
    raw = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + nbytes]
