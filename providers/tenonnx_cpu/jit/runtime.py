"""Which JIT kernels are ready, and who compiles the others. Nothing here imports numba.

Kernels that the disk cache has are loaded where they are asked for, in less than a millisecond each
and without numba, on systems that have images of machine code (``code.images``).
``TENONNX_JIT`` says when others are compiled:

* ``1`` (default): in a background thread; until a kernel is ready, numpy's runs;
* ``wait``: where they are asked for, so that every run uses them;
* ``0``: never; nor is any loaded.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import importlib
import importlib.util
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tenonnx.errors import InvalidArgument
from tenonnx_cpu.jit.code import images
from tenonnx_cpu.jit.code.cache import cache_folder, compiler, forget_unused, image_path
from tenonnx_cpu.jit.code.cpu import NATIVE, installed, target
from tenonnx_cpu.jit.code.sources import Changed
from tenonnx_cpu.jit.threads import memory as crew_memory

logger = logging.getLogger("tenonnx.jit")

MODES = ("0", "1", "wait")

PAUSE_SECONDS = 0.1
"""Before kernels are compiled in the background: a session that is being built goes on at full
speed, and a program that is done by then never imports numba."""

FOLDER = Path(__file__).parent

KERNELS: list[JitKernel] = []
"""Every kernel declared, in order of import."""


class JitKernel:
    """A handle on a compiled kernel, cheap to create and to ask.

    Args:
        module: The module under ``tenonnx_cpu.jit``, which only compiling imports.
        name: The function in it, decorated with ``compiling.kernel``.

    Attributes:
        run: The compiled function; ``None`` until it is ready, perhaps for ever.
    """

    __slots__ = ("module", "name", "requested", "run")

    def __init__(self, module: str, name: str) -> None:
        self.module = module
        self.name = name
        self.run: Callable[..., Any] | None = None
        self.requested = False
        KERNELS.append(self)

    def request(self) -> None:
        """Has the kernel compiled or loaded, now or in the background, as ``TENONNX_JIT`` says."""
        if self.run is not None:
            return
        mode = jit_mode()
        if mode == "0" or (self.requested and mode != "wait"):
            return
        self.requested = True
        # Whatever it is that prevents it, compiling finds it, too, and says so.
        with contextlib.suppress(Changed):
            if self._load():
                return
        if not has_numba():
            return
        if mode == "wait":
            self.compile()
        else:
            _QUEUE.put(self)

    def _load(self) -> bool:
        """Loads the kernel from the disk cache if it is there, which needs no numba."""
        if self.run is not None:
            return True
        if not has_images():
            return False
        found = images.find(image_path(source_of(self.module), self.name), [images.ENTRY])
        if found is None:
            return False
        if images.origin(crew_memory.FIND):
            crew_memory.start()
        self.run = images.builtin(self.name, found[images.ENTRY])
        return True

    def compile(self) -> None:
        """Loads the kernel from the disk cache, or compiles it; a failure is logged, not raised."""
        if self.run is not None:
            return
        try:
            if not self._load():
                if not has_numba():
                    raise ImportError("numba is not installed: pip install 'tenonnx[jit]'")
                module = importlib.import_module(f"tenonnx_cpu.jit.{self.module}")
                self.run = module.__dict__[self.name].compile(self.name)
        except Exception as error:  # LLVM and numba raise anything; numpy computes the same
            logger.warning("the JIT kernel %s stays on numpy: %s", self, error)
            logger.debug("", exc_info=True)

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


def source_of(module: str) -> Path:
    """Returns the file of a module under ``tenonnx_cpu.jit``."""
    return FOLDER.joinpath(*module.split(".")).with_suffix(".py")


def jit_mode() -> str:
    """Returns ``TENONNX_JIT``.

    Raises:
        InvalidArgument: It is none of the modes.
    """
    mode = os.environ.get("TENONNX_JIT", "1") or "1"
    if mode not in MODES:
        raise InvalidArgument(f"TENONNX_JIT is {mode!r}; expected one of {', '.join(MODES)}")
    return mode


def has_kernels() -> bool:
    """Says whether there are kernels at all: to be compiled or compiled before, and not refused."""
    return jit_mode() != "0" and (has_numba() or has_images())


@functools.cache
def has_images() -> bool:
    """Says whether there may be images, installed or in the cache."""
    return images.SUPPORTED and (compiler() is not None or installed() is not None)


@functools.cache
def has_numba() -> bool:
    """Says whether numba is installed; does not import it."""
    return importlib.util.find_spec("numba") is not None


def warm_up(tell: Callable[[str, float], None], *, everything: bool) -> dict[str, bool]:
    """Compiles kernels now, so that the disk cache has them.

    Args:
        tell: Called before each kernel with its name and the share of all that is done.
        everything: All kernels, and not only those requested so far.

    Returns:
        For every kernel by name, whether it is compiled; nothing if none ever is.
    """
    if not has_kernels():
        return {}
    _QUEUE.empty()
    chosen = [kernel for kernel in KERNELS if everything or kernel.requested]
    with contextlib.suppress(Changed):
        _compile_ahead([str(kernel) for kernel in chosen if not kernel._load()], tell)
    for kernel in chosen:
        kernel.requested = True
        kernel.compile()
    forget_unused()
    return {str(kernel): kernel.run is not None for kernel in chosen}


def _compile_ahead(kernels: Sequence[str], tell: Callable[[str, float], None]) -> None:
    """Has worker processes compile kernels into the cache; what they cannot is left to this one."""
    if kernels and images.SUPPORTED and has_numba():
        from tenonnx_cpu.jit.code import ahead

        kind = chosen.kind if (chosen := target()) else NATIVE
        with contextlib.suppress(ahead.Failed, OSError):
            ahead.compile_ahead(kind, cache_folder(), tell, kernels)


class _Queue:
    """Compiles kernels one after the other in a thread that lives while there are some."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._waiting: deque[JitKernel] = deque()
        self._thread: threading.Thread | None = None
        self._stopped = False
        self._hurry = threading.Event()

    def put(self, kernel: JitKernel) -> None:
        with self._lock:
            if self._stopped:
                return
            self._waiting.append(kernel)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="tenonnx-jit", daemon=True)
                self._thread.start()

    def _work(self) -> None:
        self._hurry.wait(PAUSE_SECONDS)
        while True:
            with self._lock:
                if not self._waiting:
                    self._thread = None
                    return
                kernel = self._waiting.popleft()
            with contextlib.suppress(SystemExit):  # which ``stop`` raises here
                kernel.compile()

    def empty(self) -> None:
        """Takes out what waits, and waits for the kernel at hand."""
        with self._lock:
            self._waiting.clear()
            self._hurry.set()
            thread = self._thread
        if thread is not None:
            thread.join()
        self._hurry.clear()

    def stop(self) -> None:
        """Gives the kernel at hand up: LLVM must not be at work while Python is torn down.

        Most of the seconds that a kernel takes are Python's, which notices that it is to stop.
        """
        with self._lock:
            self._stopped = True
            thread = self._thread
        if thread is not None and thread.ident is not None:
            stop = ctypes.pythonapi.PyThreadState_SetAsyncExc
            stop(ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit))
        self.empty()

    def after_fork(self) -> None:
        """A child has no such thread, and the compiler's lock if the thread held it: no more."""
        busy = self._thread is not None
        self.__init__()  # type: ignore[misc]  # the lock may have been held, too
        self._stopped = busy


_QUEUE = _Queue()
atexit.register(_QUEUE.stop)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_QUEUE.after_fork)
