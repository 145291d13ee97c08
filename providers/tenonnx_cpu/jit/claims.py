"""Claims of kernels: one process compiles a kernel, others with the same cache compile others.

A claim is a lock on a byte of one file in the cache. The system ends it with the process, however
that ends, and does not hand it on to forked children.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import zlib
from collections.abc import Iterator

from tenonnx.weights.trusted import NOFOLLOW, make_folder
from tenonnx_cpu.jit.code.cache import cache_folder

try:
    import fcntl
except ImportError:  # Windows, where all compile what they want
    SUPPORTED = False
else:
    SUPPORTED = True

FILE = "claims"
BYTES = 1 << 30
"""Kernels that share a byte are compiled one after the other."""

_own: set[int] = set()
_lock = threading.RLock()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release
    )
    os.register_at_fork(after_in_child=_own.clear)


@contextlib.contextmanager
def claimed(path: str) -> Iterator[bool]:
    """Claim a code object, unless another process has; yield whether anybody else may have it.

    Threads of this process do not keep one another out. Where there is no such file, nothing does.
    """
    place = zlib.crc32(os.path.basename(path).encode()) % BYTES
    with _lock:
        mine = place not in _own
        free = _is_free(place) if mine else True
        if mine and free:
            _own.add(place)
    try:
        yield free
    finally:
        with _lock:
            if mine and free:
                _own.discard(place)
                _free(place)


def _is_free(place: int) -> bool:
    if not SUPPORTED or (descriptor := _descriptor()) is None:
        return True
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


def _free(place: int) -> None:
    if SUPPORTED and (descriptor := _descriptor()) is not None:
        with contextlib.suppress(OSError):
            fcntl.lockf(descriptor, fcntl.LOCK_UN, 1, place)


@functools.cache
def _descriptor() -> int | None:
    """Return the file, which stays open: closing any descriptor of it would end all claims."""
    flags = os.O_RDWR | os.O_CREAT | NOFOLLOW | getattr(os, "O_CLOEXEC", 0)
    with contextlib.suppress(OSError):
        make_folder(cache_folder())
        return os.open(os.path.join(cache_folder(), FILE), flags, 0o600)
    return None
