"""Memory for what kernels return, used again when nothing refers to it any more.

Fresh memory costs the system more than most kernels that fill it: a page at a time is mapped and
cleared, about 0.5 us per KiB. Here it stays until its thread ends or others need the room. An array
gets the lowest part of it that is free, whatever other sizes lay there before. So runs whose shapes
differ take no more than one of them does, and meet much of it in a cache.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import sys
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, Protocol, TypeAlias

import numpy as np

from tenonnx.by_name import cacheable

NDArray: TypeAlias = np.ndarray[Any, Any]
# A part of a chunk that an array was given: where it begins and ends, and the array.
Block: TypeAlias = tuple[int, int, NDArray]

# Bytes below which the allocator keeps memory itself.
MIN_POOLED_BYTES = 32 << 10

# Bytes at most that a thread keeps, in use or not.
MAX_POOLED_BYTES = 128 << 20

# Bytes of a chunk at least, and at most unless an array needs more. Pages to which nobody writes
# take no memory.
MIN_CHUNK_BYTES, MAX_CHUNK_BYTES = 1 << 20, 32 << 20

# Arrays of a chunk at most, as all of them are looked at: a program may keep thousands of results.
MAX_CHUNK_BLOCKS = 256

BUFFER_ALIGNMENT_BYTES = 64
F32, F64, BYTE = np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.uint8)


def _references_when_idle() -> int:
    """Return what ``getrefcount`` says of an array that a block alone refers to."""
    blocks: list[Block] = [(0, 0, np.empty(1))]
    (count,) = [sys.getrefcount(block[2]) for block in blocks]
    return count


IDLE = _references_when_idle()


# Huge pages spare most of the faults of a first run; numpy asks for them from this size on.
MIN_HUGE_BYTES = 4 << 20


def _mapped(nbytes: int) -> mmap.mmap:
    """Return so much memory of this process alone, to which nobody has written.

    Raises:
        MemoryError: There is no room for it.
    """
    private = getattr(mmap, "MAP_PRIVATE", 0) | getattr(mmap, "MAP_ANONYMOUS", 0)
    try:
        memory = mmap.mmap(-1, nbytes, **({"flags": private} if private else {}))
    except (OSError, OverflowError):
        raise MemoryError from None
    if nbytes >= MIN_HUGE_BYTES and hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a system may have been built without them
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


class _Chunk:
    """Memory that arrays share, each of which has a block of it.

    Args:
        nbytes: Its size.

    Raises:
        MemoryError: There is no room for it.
    """

    __slots__ = "_blocks", "_memory", "nbytes"

    def __init__(self, nbytes: int) -> None:
        self._blocks: list[Block] = []
        # No array, to which numpy would have views of a block refer instead of to the block.
        self._memory = _mapped(nbytes)
        self.nbytes = nbytes

    def take(self, size: int) -> NDArray | None:
        """Return so many bytes that nobody uses, the first that there are; ``None`` for none."""
        at = place = 0
        used = self._used()
        for begin, end, _ in used:
            if begin - at >= size:
                break
            at, place = end, place + 1
        else:
            if self.nbytes - at < size or place >= MAX_CHUNK_BLOCKS:
                return None
        made: NDArray = np.ndarray(size, BYTE, self._memory, at)
        used.insert(place, (at, at + size, made))
        self._blocks = used
        return made

    def first(self, size: int) -> NDArray:
        """Return the first so many bytes of a chunk that is new."""
        made = self.take(size)
        assert made is not None, "it is large enough"
        return made

    def _used(self) -> list[Block]:
        """Return the blocks whose arrays are in use, or views of them."""
        return [block for block in self._blocks if sys.getrefcount(block[2]) > IDLE]

    @property
    def is_idle(self) -> bool:
        """Whether nobody uses any of it."""
        return not self._used()

    def __del__(self) -> None:
        """Give back the pages that nobody uses: one result that is kept has all of them mapped."""
        if not (used := self._used()) or not hasattr(mmap, "MADV_DONTNEED"):
            return
        at, page = 0, mmap.PAGESIZE
        for begin, end in [*[block[:2] for block in used], (self.nbytes, self.nbytes)]:
            start = -(-at // page) * page
            if (size := begin // page * page - start) > 0:
                self._memory.madvise(mmap.MADV_DONTNEED, start, size)
            at = end


class _Pool(threading.local):
    """Chunks of one thread: no other one can bring what is idle back to use."""

    bytes = 0
    is_taken = False
    chunks: tuple[_Chunk, ...] = ()

    def take(self, size: int) -> NDArray:
        """Return so many bytes that nobody uses, a multiple of the alignment, and aligned.

        Raises:
            MemoryError: There is no room for them.
        """
        if self.is_taken:  # by what a signal's handler that runs a session has interrupted
            return _Chunk(size).first(size)
        try:
            self.is_taken = True
            for chunk in self.chunks:
                if (made := chunk.take(size)) is not None:
                    return made
            return self._grown(size)
        finally:
            self.is_taken = False

    def _grown(self, size: int) -> NDArray:
        """Return memory of a new chunk: as large as all others, so that there are few."""
        nbytes = max(size, min(max(self.bytes, MIN_CHUNK_BYTES), MAX_CHUNK_BYTES))
        if self.bytes + nbytes > MAX_POOLED_BYTES:
            self.drop_idle()
            nbytes = size
        try:
            chunk = _Chunk(nbytes)
        except MemoryError:
            self.drop_idle()
            chunk = _Chunk(size)
        made = chunk.first(size)
        if self.bytes + chunk.nbytes <= MAX_POOLED_BYTES:
            self.chunks = *self.chunks, chunk
            self.bytes += chunk.nbytes
        return made

    def drop_idle(self) -> None:
        """Forget chunks that nobody uses; if that frees less than half, those in use, too."""
        self.chunks = tuple([chunk for chunk in self.chunks if not chunk.is_idle])
        self.bytes = sum(chunk.nbytes for chunk in self.chunks)
        if self.bytes > MAX_POOLED_BYTES // 2:
            self.chunks, self.bytes = (), 0


# Whether a reference count says that an array is in no use.
COUNTED = getattr(sys, "_is_gil_enabled", lambda: True)() and hasattr(sys, "getrefcount")

_pool = _Pool()


def drop_idle() -> None:
    """Give back this thread's memory that nobody uses."""
    _pool.drop_idle()


@contextlib.contextmanager
def apart() -> Iterator[None]:
    """Have no memory kept, or taken of what is, by what is allocated meanwhile."""
    kept = _pool.chunks, _pool.bytes
    _pool.chunks, _pool.bytes = (), 0
    try:
        yield
    finally:
        _pool.chunks, _pool.bytes = kept


@cacheable
def empty(shape: tuple[int, ...], dtype: np.dtype[Any] = F32) -> NDArray:
    """Return a new C-contiguous array, with anything in it; aligned to a cache line if large.

    Raises:
        MemoryError: There is no room for it.
    """
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes < MIN_POOLED_BYTES or not COUNTED:
        return np.empty(shape, dtype)
    try:
        memory = _pool.take(-(-nbytes // BUFFER_ALIGNMENT_BYTES) * BUFFER_ALIGNMENT_BYTES)
    except MemoryError:  # which has the memory's shape and type
        found = f"a {dtype.name} tensor of shape {list(shape)}"
        raise MemoryError(f"{found} takes {nbytes / 2**30:.1f} GiB, which there are not") from None
    return np.ndarray(shape, dtype, memory)


def frozen(array: NDArray) -> NDArray:
    """Return an array to whose memory nobody writes any more, as it is in every run.

    Captured launches are given such arrays without another look.
    """
    owner: Any = array
    while isinstance(owner, np.ndarray):
        owner.flags.writeable = False
        owner = owner.base
    return array


# Bytes for kernels in place of an array that they do not read.
UNREAD = frozen(np.zeros(8, np.uint8))


def is_half(dtype: np.dtype[Any]) -> bool:
    """Return whether kernels compute such elements in float32, and round at the end."""
    # By its name: ml_dtypes takes long to import.
    return dtype.char == "e" or (dtype.kind == "V" and dtype.name == "bfloat16")


class Traced(Protocol):
    """A step that is being captured."""

    def launch(self, launch: Any) -> Any:
        """Return the result of a launch that is made before the step's own."""

    def copy(self, x: NDArray) -> NDArray:
        """Return a copy whose elements are adjacent, made by a kernel if one makes it."""


TRACED: ContextVar[Traced | None] = ContextVar("tenonnx_traced", default=None)


def contiguous(x: NDArray) -> NDArray:
    """Return an array, or a copy of it, whose elements are adjacent and aligned."""
    flags = x.flags
    if flags.c_contiguous and flags.aligned:
        return x
    step = TRACED.get()
    return np.array(x, order="C") if step is None else step.copy(x)


def reshaped(x: NDArray, shape: tuple[int, ...]) -> NDArray:
    """Return an array of another shape: a view, or one of a ``contiguous`` copy if need be.

    Raises:
        ValueError: It has another number of elements.
    """
    try:
        return x.reshape(shape, copy=False)
    except ValueError:
        return contiguous(x).reshape(shape)
