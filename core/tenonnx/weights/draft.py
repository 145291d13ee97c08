"""Files that are being written: locked, out of sight, and gone if their writer dies."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    SUPPORTED = False
else:
    SUPPORTED = True

PATIENCE = 120.0
"""Seconds to wait for another process that is writing the same file."""


@contextlib.contextmanager
def locked_draft(path: Path) -> Iterator[int | None]:
    """Opens an empty file that only this caller writes; deletes it unless it was renamed.

    Waits while another process, or another thread, has it. The lock is the kernel's, so it dies
    with its holder.

    Args:
        path: The draft.

    Yields:
        A file descriptor, or ``None`` if the other holder outlasts this one's patience.
    """
    descriptor = _lock(path)
    if descriptor is None:
        yield None
        return
    try:
        os.truncate(descriptor, 0)
        yield descriptor
    finally:
        with contextlib.suppress(OSError):
            if _is_at(descriptor, path):
                path.unlink()
        # A child that was forked meanwhile shares the lock, and closing alone would leave it.
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def allocate(descriptor: int, size: int) -> None:
    """Reserves disk space; a mapped page that turns out not to exist would kill the process."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
        return
    zeros = bytes(1 << 20)
    for start in range(0, size, len(zeros)):
        os.pwrite(descriptor, zeros[: size - start], start)


def sweep_drafts(folder: Path) -> None:
    """Deletes the drafts of writers that died."""
    for path in folder.glob("*.draft"):
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
            finally:
                os.close(descriptor)


def _lock(path: Path) -> int | None:
    deadline = time.monotonic() + PATIENCE
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(descriptor, path):
                return descriptor
            os.close(descriptor)  # renamed or swept between the two calls
        except BlockingIOError:
            os.close(descriptor)
            if time.monotonic() > deadline:
                return None
            time.sleep(0.01)
        except BaseException:
            os.close(descriptor)
            raise


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
