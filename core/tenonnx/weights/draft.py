"""Files that are being written: locked, out of sight, and gone if their writer dies."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tenonnx.weights.trusted import NOFOLLOW, OPEN_FLAGS, fault

if TYPE_CHECKING:
    from tenonnx.weights.storage import NDArray

with contextlib.suppress(ImportError):  # on Windows, where nothing calls this
    import fcntl

DRAFT_FLAGS = OPEN_FLAGS | NOFOLLOW | os.O_RDWR

# Seconds to wait for another process that is writing the same file.
WRITER_WAIT_SECONDS = 120.0


@contextlib.contextmanager
def locked_draft(path: Path) -> Iterator[int | None]:
    """Open an empty file that only this caller writes; delete it unless it was renamed.

    Waits while another process, or another thread, has it. The lock is the kernel's, so it dies
    with its holder.

    Args:
        path: The draft, in a folder that is trusted.

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
    """Reserve disk space; a mapped page that turns out not to exist would kill the process."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
        return
    zeros = bytes(1 << 20)
    for start in range(0, size, len(zeros)):
        os.pwrite(descriptor, zeros[: size - start], start)


def write_at(descriptor: int, content: NDArray, place: int) -> None:
    """Write bytes at a place in a file, all of them."""
    left = content.data
    while left:
        written = os.pwrite(descriptor, left, place)
        left, place = left[written:], place + written


def sweep_drafts(folder: Path) -> None:
    """Delete the drafts of writers that died."""
    for path in folder.glob("*.draft"):
        with contextlib.suppress(OSError):
            descriptor = os.open(path, DRAFT_FLAGS)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
            finally:
                os.close(descriptor)


def _lock(path: Path) -> int | None:
    deadline = time.monotonic() + WRITER_WAIT_SECONDS
    while True:
        descriptor = _open(path)
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


def _open(path: Path) -> int:
    """Open a draft under another name; processes that need the same file wait for it.

    Whatever else is there has to go: nobody but this user writes to the folder.
    """
    with contextlib.suppress(FileNotFoundError):
        if fault(path.lstat(), at=path):
            path.unlink()
    return os.open(path, DRAFT_FLAGS | os.O_CREAT, 0o644)


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
