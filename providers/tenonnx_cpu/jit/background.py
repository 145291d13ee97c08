"""Compiles kernels in the background.

A thread passes them one by one to a process (``compiler_process``), which writes code objects to
the cache. If no such process can be started, or it cannot write to the cache, the thread compiles
itself. The thread ends when nothing is left to compile.

The process has a core of its own: numpy's products and kernels leave it one while it compiles.
Products wait for the slowest of their threads and yield while they wait, so that two threads beside
a compiler take longer than one; and the sooner kernels are there, the fewer runs are slow.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import logging
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING

from tenonnx.planning.blas import leaving
from tenonnx_cpu.jit.claims import claimed
from tenonnx_cpu.jit.code.child import Died
from tenonnx_cpu.jit.code.worker import UNKEPT
from tenonnx_cpu.jit.compiler_process import CompilerProcess
from tenonnx_cpu.jit.runtime import NUMPY
from tenonnx_cpu.jit.threads import memory as pool_memory

if TYPE_CHECKING:
    from tenonnx_cpu.jit.runtime import Demand, JitKernel

logger = logging.getLogger("tenonnx.jit")

STARTING_SECONDS = 1.0
"""The compiler process needs this long to start."""

PAUSE_SECONDS = 0.1
"""The delay before the first kernel: a session is built at full speed, and a program that ends by
then starts no compiler."""

LINGER_SECONDS = 3.0
"""Seconds that the compiler waits for the next session: starting another takes it a second."""

OTHERS_SECONDS = 0.1
"""The interval of checks whether other processes have compiled their kernels."""

PATIENCE = 30.0
"""Seconds after which a kernel that another process compiles is compiled here, too."""


class Background:
    """The kernels to compile, the sessions that need them, and the thread that compiles.

    Attributes:
        announced: The kernels of which it was said that they are compiled.
    """

    def __init__(self) -> None:
        self._reset()
        self._compiler = CompilerProcess()

    def _reset(self) -> None:
        self._changed = threading.Condition(threading.RLock())
        self._demands: list[Demand] = []
        self._failed: dict[JitKernel, str] = {}
        self.announced: set[JitKernel] = set()
        self._busy: dict[JitKernel, tuple[float, float]] = {}
        self._current: JitKernel | None = None
        self._thread: threading.Thread | None = None
        self._stopped = self._inside = self._hurry = False

    @property
    def is_busy(self) -> bool:
        """Whether there are kernels left to compile."""
        return bool(self._demands)

    def put(self, demand: Demand) -> None:
        """Have what a session asks for compiled; more can be added to it until it is."""
        with self._changed:
            if self._stopped:
                return
            if not any(each is demand for each in self._demands):
                self._demands.append(demand)
            if self._thread is None:
                self._start()
            self._changed.notify_all()

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._work, name="tenonnx-jit", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # no thread can be had, as while Python ends: the next one may
            self._thread = None

    def _work(self) -> None:
        try:
            with self._changed:
                self._changed.wait_for(lambda: self._stopped or self._hurry, PAUSE_SECONDS)
            self._prepare()
            while (kernel := self._take()) is not None:
                self._advance(kernel)
        except SystemExit:  # which ``stop`` raises here
            pass
        finally:
            self._compiler.close()

    def _prepare(self) -> None:
        """Start the compiler before a kernel is chosen: a session asks for most of them meanwhile.

        That it cannot be started is found out again with the first kernel.
        """
        if not self._stopped:
            with contextlib.suppress(Died, OSError), _room():
                self._compiler.prepare()

    def _take(self) -> JitKernel | None:
        """Return the next kernel, once there is one; ``None`` if there is none for a while."""
        deadline = time.monotonic() + LINGER_SECONDS
        with self._changed:
            self._current = None
            self._changed.notify_all()
            while not self._stopped:
                if (kernel := self._next()) is not None:
                    self._current = kernel
                    return kernel
                left = OTHERS_SECONDS if self._demands else deadline - time.monotonic()
                if left <= 0 or (self._hurry and not self._demands):
                    break
                self._changed.wait(left)
            self._thread = None
            self._changed.notify_all()
            return None

    def _next(self) -> JitKernel | None:
        """Return what the session that waited longest spends most time in.

        One that another process compiles, or that could not be compiled, comes last, and before
        these what does the work of no node.
        """
        now = time.monotonic()
        self._demands = [demand for demand in self._demands if demand.waiting()]
        found: dict[bool, tuple[int, JitKernel]] = {}
        for position, demand in enumerate(self._demands):
            if free := [k for k in demand.waiting() if not self._is_busy(k, now)]:
                kernel = min(free, key=lambda kernel: (kernel in self._failed, -demand[kernel]))
                found.setdefault(bool(demand[kernel]), (position, kernel))
        for works in (True, False):
            if works in found:
                position, kernel = found[works]
                self._demands.append(self._demands.pop(position))
                return kernel
        return None

    def _is_busy(self, kernel: JitKernel, now: float) -> bool:
        _, seen = self._busy.get(kernel, (0, -OTHERS_SECONDS))
        return now - seen < OTHERS_SECONDS

    def _advance(self, kernel: JitKernel) -> None:
        """Have a kernel compiled, or find that another process does that now."""
        try:
            if kernel.load():
                return
            with claimed(kernel.path()) as free:
                if not free and self._is_patient(kernel):
                    return
                if kernel.load():
                    return
                self._compile(kernel)
        except Exception as error:  # files that are not what they were
            kernel.fail(error)

    def _is_patient(self, kernel: JitKernel) -> bool:
        """Note that another process compiles a kernel; return whether to leave it that."""
        now = time.monotonic()
        begin, _ = self._busy.get(kernel, (now, now))
        self._busy[kernel] = begin, now
        return now - begin < PATIENCE

    def _compile(self, kernel: JitKernel) -> None:
        start = time.monotonic()
        try:
            with _room():
                answer = self._compiler.compile(str(kernel))
        except Died as error:
            answer = str(error)
        except OSError:
            answer = UNKEPT
        if self._stopped:
            return
        if answer in ("", UNKEPT) and not kernel.load(compiled=True):
            self._inside = True
            kernel.compile()
            self._inside = False
        elif answer not in ("", UNKEPT) and kernel not in self._failed:
            self._failed[kernel] = answer
            self._compiler.close()  # the next one begins anew
        elif answer not in ("", UNKEPT):
            kernel.fail(answer)
        if kernel.run is not None:
            Timing.add(time.monotonic() - start)

    def waiting(self) -> Iterable[JitKernel]:
        """Return the kernels that are still to be compiled, each once."""
        with self._changed:
            return dict.fromkeys(k for demand in self._demands for k in demand.waiting())

    def settle(self) -> None:
        """Wait until nothing is left to do."""
        with self._changed:
            self._hurry = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._thread is None)
            self._hurry = False

    def empty(self) -> None:
        """Take out what waits, and wait for the kernel at hand."""
        with self._changed:
            self._demands.clear()
        self.settle()

    def stop(self) -> None:
        """Give the kernel at hand up, as Python ends.

        The thread may be in LLVM itself: then most of the seconds that a kernel takes are still
        Python's, which notices that it is to stop, and says nothing of where that came upon it.
        """
        with self._changed:
            self._stopped = True
            thread = self._thread
            self._changed.notify_all()
        if thread is None or thread.ident is None:
            return
        if self._inside:
            sys.unraisablehook = lambda _: None
        raise_there = ctypes.pythonapi.PyThreadState_SetAsyncExc
        while thread.is_alive():
            self._compiler.signal(signal.SIGKILL)
            if self._inside:
                raise_there(ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit))
            thread.join(0.05)

    def forked(self) -> None:
        """Begin anew in a child that was forked: it has no such thread, and no compiler."""
        inside, demands = self._inside, [d for d in self._demands if d.waiting()]
        self._compiler.forget()
        pool_memory.leave(0)
        self._reset()
        self._stopped = inside  # numba's lock is the thread's, for ever
        for demand in demands:
            for kernel in demand.waiting() if inside else ():
                kernel.state, kernel.reason = NUMPY, "the process was forked while it compiled"
            self.put(demand)


@contextlib.contextmanager
def _room() -> Iterator[None]:
    """Leave the compiler a core."""
    with leaving(1):
        pool_memory.leave(1)
        try:
            yield
        finally:
            pool_memory.leave(0)


class Timing:
    """The time that kernels take to compile here."""

    seconds = 1.5
    """For one of them; what is measured replaces the guess soon."""

    @classmethod
    def add(cls, seconds: float) -> None:
        """Note how long one took."""
        cls.seconds = 0.7 * cls.seconds + 0.3 * seconds


def compile_beside(kernel: JitKernel) -> None:
    """Compile a kernel in another process, and wait for it.

    Raises:
        RuntimeError: That failed.
        OSError: No process can be started.
    """
    compiler = CompilerProcess()
    try:
        answer = compiler.compile(str(kernel))
    finally:
        compiler.close()
    if not kernel.load(compiled=True):
        raise RuntimeError(answer)


def announce(model: str, kernels: Collection[JitKernel]) -> None:
    """Say that kernels are compiled for a model, and for about how long.

    Nothing is said if it was said of most of them for another session: a model that drafts for
    another one, and a graph that is opened twice, have nearly the same.
    """
    new = set(kernels) - QUEUE.announced
    QUEUE.announced |= new
    if 2 * len(new) <= len(kernels):
        return
    logger.warning(
        "compiling %d kernel%s for %s, about %.0f s; runs are slower until then",
        len(kernels),
        "s" * (len(kernels) > 1),
        model,
        math.ceil(STARTING_SECONDS + Timing.seconds * len(set(QUEUE.waiting()) | set(kernels))),
    )


QUEUE = Background()
atexit.register(QUEUE.stop)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=QUEUE.forked)
