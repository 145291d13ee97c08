"""The folder of all that is kept for other processes, and room in it: what is used goes last.

A use of a file sets its time of access explicitly, because some file systems do not record it.
Deleting a file leaves it to those who have mapped it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tenonnx.errors import InvalidArgument
from tenonnx.weights.trusted import is_trusted

if TYPE_CHECKING:
    from pathlib import Path

WEIGHTS, PLANS = "*.weight", ("*.plan", "*.captures")
# The files of a cache that share its room; kernels are as many as there are, and small.
CACHE_PATTERNS = (f"weights/{WEIGHTS}", *(f"plans/{each}" for each in PLANS))

# Seconds for which an unused file is kept: of older models, older sources, other machines.
UNUSED_SECONDS = 30 * 24 * 3600

# Bytes that a process may write before it looks again how much there is.
MAX_UNCOUNTED_BYTES = 1 << 30


def cache_root() -> str:
    """Return the folder: ``TENONNX_CACHE_DIR``, or ``tenonnx`` in the user's cache folder."""
    if given := os.environ.get("TENONNX_CACHE_DIR"):
        return given
    if sys.platform == "linux":  # as platformdirs says, sooner than it is imported
        caches = os.environ.get("XDG_CACHE_HOME", "")
        if not os.path.isabs(caches):
            caches = os.path.expanduser("~/.cache")
        if not os.path.isabs(caches):  # a user without a home, as in some containers
            import tempfile

            caches = os.path.join(tempfile.gettempdir(), f"cache-{os.getuid()}")
        return os.path.join(caches, "tenonnx")
    import platformdirs

    return str(platformdirs.user_cache_dir("tenonnx"))


class Kept(NamedTuple):
    """A file, when it was last used, in seconds, and how many bytes it has."""

    used: float
    size: int
    path: Path


def kept(paths: Iterable[Path]) -> Iterator[Kept]:
    """Yield what files there are of these."""
    for path in paths:
        with contextlib.suppress(OSError):  # another process may have deleted it
            status = path.stat()
            yield Kept(status.st_atime, status.st_size, path)


def note_use(path: str | os.PathLike[str], written_ns: int) -> None:
    """Set the time at which a file was last used; keep the time at which it was written."""
    with contextlib.suppress(OSError):
        # Set here, since many file systems are mounted without times of access. The time of
        # writing stays: it is part of a file's identity.
        os.utime(path, ns=(time.time_ns(), written_ns))


def forget_unused(paths: Iterable[Path]) -> list[Path]:
    """Delete the files that no process has used for a month; return them."""
    return _deleted(each for each in kept(paths) if _is_unused(each))


def _is_unused(file: Kept) -> bool:
    return time.time() - file.used > UNUSED_SECONDS


def _deleted(files: Iterable[Kept]) -> list[Path]:
    gone = []
    for each in files:
        with contextlib.suppress(OSError):
            each.path.unlink()
            gone.append(each.path)
    return gone


class Room:
    """The bytes that files of a folder may take together.

    Args:
        folder: It.
        patterns: The files, in trusted folders of it.
        limit: By default 16 GiB, or a tenth of the free space if that is more, but never over half
            of it.

    Attributes:
        own: Files that this process uses, which are not deleted for others.
    """

    def __init__(self, folder: str, patterns: Sequence[str], limit: int | None = None) -> None:
        self.folder, self.limit = folder, limit
        self.own: set[str] = set()
        self._patterns = tuple(patterns)
        self._left = 0

    def files(self) -> Iterator[Path]:
        """Yield the files that there are."""
        from pathlib import Path

        for pattern in self._patterns:
            inside, _, name = pattern.rpartition("/")
            folder = Path(self.folder, inside)
            if is_trusted(folder):
                yield from folder.glob(name)

    def take(self, nbytes: int) -> bool:
        """Delete files until so many bytes fit; none, and return false, if they never will."""
        if nbytes <= self._left:
            self._left -= nbytes
            return True
        return self._look(nbytes) is not None

    def prune(self) -> list[Path]:
        """Delete what no process has used for a month, and what there is no room for."""
        return self._look(0) or []

    def _look(self, nbytes: int) -> list[Path] | None:
        """Look how much there is; return what was deleted, ``None`` if there is no room."""
        from pathlib import Path

        # By time of use, which is the first field: the files unused for longest go first.
        files = sorted(kept(self.files()))
        used = sum(each.size for each in files)
        excess = used + nbytes - self.limit_at(used)
        own = set(map(Path, self.own))
        others = [each for each in files if each.path not in own]
        # Deleting all would not do either, so nothing is deleted.
        if excess > sum(each.size for each in others):
            return None
        going = []
        for each in others:
            if excess <= 0 and not _is_unused(each):
                break
            going.append(each)
            excess -= each.size
        self._left = min(-excess, MAX_UNCOUNTED_BYTES)
        return _deleted(going)

    def limit_at(self, used: int) -> int:
        """Return the limit where files take so many bytes."""
        if self.limit is not None:
            return self.limit
        free = _free(existing(self.folder)) + used
        return min(max(16 << 30, free // 10), free // 2)


def existing(folder: str) -> str:
    """Return the folder, or the first one above it that is there."""
    while not os.path.exists(folder) and (above := os.path.dirname(folder)) != folder:
        folder = above
    return folder or os.curdir


def _free(folder: str) -> int:
    """Return the bytes that are free where a folder is."""
    if hasattr(os, "statvfs"):  # shutil says so, too, but takes longer to import
        status = os.statvfs(folder)
        return status.f_bavail * status.f_frsize
    import shutil

    return shutil.disk_usage(folder).free


def cache_room() -> Room | None:
    """Return the room of ``TENONNX_CACHE_DIR``; ``None`` if nothing is to be kept.

    Raises:
        InvalidArgument: ``TENONNX_CACHE_SIZE`` is no number.
    """
    if os.environ.get("TENONNX_CACHE") == "0":
        return None
    limit = os.environ.get("TENONNX_CACHE_SIZE", "")
    if limit and not limit.isdecimal():
        raise InvalidArgument(f"TENONNX_CACHE_SIZE must be a number of bytes, not {limit!r}")
    return _room(cache_root(), int(limit) if limit else None)


@functools.cache
def _room(folder: str, limit: int | None) -> Room:
    return Room(folder, CACHE_PATTERNS, limit)
