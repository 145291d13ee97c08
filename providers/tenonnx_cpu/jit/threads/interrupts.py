"""The check inside of kernels whether a thread is to stop. Without numba."""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
from collections.abc import Callable
from typing import Any

from tenonnx.process import interruption
from tenonnx_cpu.jit import scratch
from tenonnx_cpu.jit.threads.memory import KEY, LOCAL, LOOK, ROOMS


def look() -> bool:
    """Raise what the run of this thread is stopped with; return whether it need not look again.

    It need not if nothing can stop it: only the main thread handles signals.
    """
    interruption.check()
    return not interruption.limits() and threading.current_thread() is not threading.main_thread()


def start(memory: Any, wake: Callable[[], None]) -> None:
    """Have threads look from now on.

    Args:
        memory: The thread pool's.
        wake: Has the calling thread look in its next loop.
    """
    key = ctypes.c_uint()
    if ctypes.CDLL(None).pthread_key_create(ctypes.byref(key), None):
        return  # a process has as many as it wants: kernels are not stopped
    for kept in (look, scratch._local):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))
    memory[KEY], memory[LOCAL] = key.value, id(scratch._local)
    memory[ROOMS] = scratch.ROOMS.ctypes.data
    memory[LOOK] = id(look)
    interruption.follow(wake)
    atexit.register(memory.__setitem__, LOOK, 0)  # Python takes its modules apart next
    os.register_at_fork(after_in_child=wake)  # it is the main thread now
