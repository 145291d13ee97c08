"""A file's pages, mapped once and read-only; and the contents of weights, block by block."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import mmap
import os
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from tenonnx.errors import Fail, InvalidArgument
from tenonnx.process.memory import keep_room
from tenonnx.weights.storage import byte_size, elements_in
from tenonnx.weights.trusted import OPEN_FLAGS

if TYPE_CHECKING:
    from tenonnx.weights.storage import Element, Kind, NDArray, Storage

# Bytes of a weight from which on its pages need not stay resident once they are copied.
LEAST_FORGOTTEN_BYTES = 64 * 1024

# Bytes that are copied at a time: what reads a block again finds it in the processor's cache.
BLOCK_BYTES = 1024 * 1024

MAP_FAILED = ctypes.c_void_p(-1).value
MAP_FIXED = 0x10  # Linux, the BSDs and macOS agree on it; the mmap module does not name it
MADV_POPULATE_READ = 22  # Linux 5.14; the mmap module does not name it


# A state of a file: its device, inode, size, and the times of its last writes, in nanoseconds.
State: TypeAlias = "tuple[int, int, int, int, int]"

# A state that no file has: a path that named several files is in it.
NO_FILE: State = (0, 0, 0, 0, 0)

# The collector of mapped files, while there is one.
MAPPED_FILES: ContextVar[dict[str, State] | None] = ContextVar("MAPPED_FILES", default=None)


@contextlib.contextmanager
def noted() -> Iterator[dict[str, State]]:
    """Yield the files that are mapped meanwhile, and the states that they were mapped in."""
    token = MAPPED_FILES.set(found := dict[str, State]())
    try:
        yield found
    finally:
        MAPPED_FILES.reset(token)


def note(path: str | os.PathLike[str], state: State) -> None:
    """Record a mapped file and its state, if a caller of ``noted`` collects them."""
    if (found := MAPPED_FILES.get()) is not None:
        place = os.path.abspath(path)
        if found.setdefault(place, state) != state:
            found[place] = NO_FILE


def state_from(status: os.stat_result) -> State:
    """Return a file's state from its status."""
    times = status.st_mtime_ns, status.st_ctime_ns
    return status.st_dev, status.st_ino, status.st_size, *times


class Identity(NamedTuple):
    """The identity of one state of one file; a rewritten file has another."""

    device: int
    inode: int
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> Identity:
        """Return the identity of a file from its status."""
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


class Mapping:
    """One read-only mapping of a whole file; unmapped with its last user.

    Holds no file descriptor, and a fork's child may use it freely. Pages are the kernel's page
    cache: every process that maps the file shares them.
    Replacing the file leaves the mapping what it was; writing into the file or truncating it does
    not, so whoever updates a model should rename a new file over the old one.

    Args:
        path: The file.
        kind: ``"mapped"`` for a model's file, ``"derived"`` for a side file.
        key: Names the bytes; the file's identity if ``None``.
        skip: Bytes at the file's beginning that are not the mapping's business.
        opening: Returns a file descriptor of a path; raises what it likes.

    Attributes:
        identity: The file's device, inode, size and time of change when it was mapped.
        state: The file's state then, as its open descriptor had it.
        pages: The whole file.
        buffer: Its bytes after those skipped, read-only.
        size: How many.
        address: Where they begin.

    Raises:
        InvalidArgument: The file is not a regular file, or has no bytes after those skipped.
        Fail: The file cannot be opened.
        MemoryError: There is no address space for it, with room to spare.
    """

    __slots__ = (
        "__weakref__",
        "address",
        "buffer",
        "identity",
        "key",
        "kind",
        "pages",
        "path",
        "size",
        "skip",
        "state",
    )

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        kind: Kind = "mapped",
        key: str | None = None,
        skip: int = 0,
        opening: Callable[[str], int] | None = None,
    ) -> None:
        self.path = os.fspath(path)
        self.kind = kind
        descriptor = (opening or _open)(self.path)
        try:
            status = os.fstat(descriptor)
            self.identity, self.state = Identity.of(status), state_from(status)
            self.skip = skip
            self.size = self.identity.size - skip
            if self.size <= 0:
                raise InvalidArgument(
                    f"{self.path} is empty: there is nothing to map"
                    if not self.identity.size
                    else f"{self.path} has {self.identity.size} bytes, not even {skip + 1}"
                )
            self.pages = _map(descriptor, self.identity.size)
        finally:
            os.close(descriptor)
        keep_room()
        self.buffer = memoryview(self.pages)[skip:]
        self.key = key or "file:" + ":".join(f"{part:x}" for part in self.identity)
        self.address = _address(self.pages) + skip

    @property
    def label(self) -> str:
        """The path, for reports."""
        return self.path

    def fetch(self, start: int, stop: int) -> None:
        """Map pages that are about to be read, all at once; the first reads do where it cannot."""
        first = (self.skip + start) // mmap.PAGESIZE * mmap.PAGESIZE
        if sys.platform == "linux":
            with contextlib.suppress(OSError):  # the kernel is older
                self.pages.madvise(MADV_POPULATE_READ, first, self.skip + stop - first)

    def forget(self, start: int, stop: int) -> None:
        """Take whole pages out of this process's resident set; they stay in the page cache."""
        page = mmap.PAGESIZE
        start = -(-(self.skip + start) // page) * page
        stop = min(self.skip + stop, self.identity.size) // page * page
        if start < stop and hasattr(mmap, "MADV_DONTNEED"):
            self.pages.madvise(mmap.MADV_DONTNEED, start, stop - start)

    def __repr__(self) -> str:
        return f"<Mapping {self.path}, {self.size} bytes>"


def _open(path: str) -> int:
    try:
        descriptor = os.open(path, OPEN_FLAGS)
    except OSError as error:
        raise Fail(f"{path} cannot be opened: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise InvalidArgument(f"{path} is not a regular file and cannot be mapped")
    return descriptor


def _map(descriptor: int, size: int) -> mmap.mmap:
    if not hasattr(mmap, "MAP_SHARED"):  # Windows
        return mmap.mmap(descriptor, size, access=mmap.ACCESS_READ)
    if sys.version_info >= (3, 13):
        return mmap.mmap(
            descriptor, size, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ, trackfd=False
        )
    # Before 3.13 the mmap module keeps a duplicate of the descriptor for as long as the mapping
    # lives. So let it own empty pages instead, and put the file in their place.
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
    flags = mmap.MAP_SHARED | MAP_FIXED
    if _libc_mmap()(_address(pages), size, mmap.PROT_READ, flags, descriptor, 0) == MAP_FAILED:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return pages


@functools.cache
def _libc_mmap() -> Any:
    function = ctypes.CDLL(None, use_errno=True).mmap
    function.restype = ctypes.c_void_p
    number = ctypes.c_int
    function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, number, number, number, ctypes.c_long]
    return function


def _address(buffer: mmap.mmap) -> int:
    return int(np.frombuffer(buffer, np.uint8, 1).__array_interface__["data"][0])


class Blocks:
    """The bytes of an array, block by block.

    Pages of a file that they are read from need not stay resident.

    Args:
        array: The array, whose elements are adjacent.
        storage: Where it lies, if in a storage.
        offset: Where it begins there, in bytes.
    """

    def __init__(self, array: NDArray, storage: Storage | None = None, offset: int = 0) -> None:
        self.content = array.reshape(-1).view(np.uint8)
        self.storage, self.offset = storage, offset

    def __iter__(self) -> Iterator[NDArray]:
        """Yield the blocks; each is forgotten when the next one is asked for."""
        size = self.content.size
        file = self.storage if isinstance(self.storage, Mapping) else None
        if size < LEAST_FORGOTTEN_BYTES:
            file = None
        for start in range(0, size, BLOCK_BYTES):
            stop = min(start + BLOCK_BYTES, size)
            if file:
                file.fetch(self.offset + start, self.offset + stop)
            yield self.content[start:stop]
            if file:
                # The page that a block ends in is forgotten with the next one.
                before = mmap.PAGESIZE if start else 0
                file.forget(self.offset + start - before, self.offset + stop)

    def copy_into(self, target: NDArray) -> None:
        """Copy them into an array of as many bytes."""
        for start, block in zip(range(0, target.size, BLOCK_BYTES), self, strict=True):
            target[start : start + block.size] = block


# A weight's bytes; or a function that writes its elements into the array that it is given.
Content: TypeAlias = "Blocks | Callable[[NDArray], object]"


def content_of(array: NDArray, storage: Storage | None = None, offset: int = 0) -> Content:
    """Return an array's elements; its place in a storage is as for ``Blocks``."""
    if array.flags.c_contiguous:
        return Blocks(array, storage, offset)
    return functools.partial(np.copyto, src=array)


def in_memory(content: Content, dtype: Element, shape: Sequence[int]) -> NDArray:
    """Return bytes in private memory that have a content."""
    array = np.empty(byte_size(dtype, shape), np.uint8)
    if isinstance(content, Blocks):
        content.copy_into(array)
    else:
        content(elements_in(array, dtype, shape))
    return array
