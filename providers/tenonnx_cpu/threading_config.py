"""The threads that kernels share: how many a session may use, and how long idle ones stay awake.

These settings are for the whole process, like the threads, and need no import of numba.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING

from tenonnx.process.cores import available_cores

if TYPE_CHECKING:
    from tenonnx.options import SessionOptions

# The number of threads of the session being compiled, for parts that lie far from its provider.
SESSION_THREADS: ContextVar[int] = ContextVar("tenonnx_threads", default=1)

# Seconds for which an idle thread looks for work before it sleeps, unless a session says else.
SPIN_SECONDS = 0.001

SPINNING, DURATION = "session.intra_op.allow_spinning", "session.intra_op.spin_duration_us"

_patience = SPIN_SECONDS
_followers: list[Callable[[float], None]] = []


def set_patience(seconds: float) -> None:
    """Say for how long idle threads look for work: waking one takes longer than most kernels."""
    global _patience
    _patience = seconds
    for follower in _followers:
        follower(seconds)


def heed(options: SessionOptions) -> None:
    """Do what a session's configuration says about spinning; the last one that says so counts."""
    spinning, duration = options.entry(SPINNING), options.entry(DURATION)
    if spinning == "0":
        set_patience(0)
    elif duration:
        set_patience(int(duration) / 1e6)
    elif spinning:
        set_patience(SPIN_SECONDS)


def follow(follower: Callable[[float], None]) -> None:
    """Have a function told how long that is, now and whenever it changes."""
    _followers.append(follower)
    follower(_patience)


@functools.cache
def most_threads() -> int:
    """Return how many threads kernels may have, ``NUMBA_NUM_THREADS`` at most."""
    limit = os.environ.get("NUMBA_NUM_THREADS", "")
    return min(available_cores(), int(limit)) if limit.isdigit() else available_cores()
