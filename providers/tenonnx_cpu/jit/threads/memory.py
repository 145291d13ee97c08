"""The thread pool's memory: what lies where in it, and how it is set up. Imported without numba."""

from __future__ import annotations

import ctypes
import functools
import os
import time
from typing import TYPE_CHECKING, Any

from tenonnx.process.cores import available_cores
from tenonnx_cpu import threading_config

if TYPE_CHECKING:
    from tenonnx_cpu.jit.library import Library

WORDS = 96
# Offsets in the pool's memory, in words of 8 bytes; words that are written often lie far apart.
LOCK, WORD, CALLED, DATA, SLEEPERS, STARTED, SIZE, SPINS, MUTEX, CONDITION = (
    0, 8, 16, 17, 24, 25, 26, 27, 32, 64
)  # fmt: skip

# Of threads that look whether they are to stop: the system's key of a thread's own word; addresses
# of what they call, or 0, of the threads' own variables of `scratch` and of its table; how many
# have been stopped and have not returned to Python yet; how often this process has been forked.
KEY, LOOK, LOCAL, ROOMS, STOPS, FORKS = 18, 19, 20, 21, 22, 23

# That table's. A thread that finds no free row runs kernels, but replays no capture: servers have a
# few dozen threads (anyio 40), and a row is looked at in less than a nanosecond.
ROOM_ROWS, ROOM_WORDS = 256, 3

FIND, REST = "tenonnx_pool_find", "tenonnx_pool_rest"
# Symbols of the functions that are called from elsewhere.
RESUME, WAKE = "tenonnx_pool_resume", "tenonnx_pool_wake"

# Looks of a helper that are timed to know how many make a second.
TRIED = 2000


def start(library: Library) -> Any:
    """Set the pool of a library up, once; return its memory.

    Its threads start when they are first needed.
    """
    place = ctypes.c_int64()
    library.plain_function(FIND)(ctypes.addressof(place))
    memory = (ctypes.c_int64 * WORDS).from_address(place.value)
    _set_up(memory)
    rest = library.plain_function(REST)
    rest(TRIED)
    begin = time.perf_counter()
    rest(TRIED)
    speed = TRIED / max(1e-6, time.perf_counter() - begin)
    memory[SIZE] = max(1, min(threading_config.most_threads(), available_cores())) - 1

    def watch(seconds: float) -> None:
        memory[SPINS] = int(seconds * speed)

    threading_config.follow(watch)
    os.register_at_fork(after_in_child=functools.partial(_after_fork, memory))
    from tenonnx_cpu.jit.threads import interrupts

    interrupts.start(memory, functools.partial(library.plain_function(WAKE), 0))
    return memory


def _after_fork(memory: Any) -> None:
    memory[FORKS] += 1
    _set_up(memory)


def _set_up(memory: Any) -> None:
    """Make the thread pool one without threads at work, as a forked child has it."""
    for word in (LOCK, WORD, SLEEPERS, STARTED, STOPS):
        memory[word] = 0
    for place, words, name in (
        (MUTEX, CONDITION - MUTEX, "mutex"),
        (CONDITION, WORDS - CONDITION, "cond"),
    ):
        memory[place : place + words] = [0] * words
        address = ctypes.c_void_p(ctypes.addressof(memory) + 8 * place)
        getattr(ctypes.CDLL(None), f"pthread_{name}_init")(address, None)
