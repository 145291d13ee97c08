"""Memory for what kernels return, used again when nothing refers to it any more.

Fresh memory costs the system more than most kernels that fill it: a page at a time is mapped and
cleared, about 0.5 us per KiB. Here a buffer stays until its thread ends or others need the room.
"""

from __future__ import annotations

import contextlib
import math
import sys
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, Protocol, TypeAlias

import numpy as np

from tenonnx.by_name import cacheable

NDArray: TypeAlias = np.ndarray[Any, Any]
# Memory; where an aligned array begins in it, and how many bytes it has.
Buffer: TypeAlias = tuple[NDArray, tuple[int, int]]

# Bytes below which the allocator keeps memory itself.
MIN_POOLED_BYTES = 32 << 10

# Bytes at most that a thread keeps, in use or not.
MAX_POOLED_BYTES = 128 << 20

# Bytes to give back that are worth a fraction of a millisecond.
MUCH = 1 << 20

BUFFER_ALIGNMENT_BYTES = 64
F32, F64 = np.dtype(np.float32), np.dtype(np.float64)


class _Pool(threading.local):
    """Buffers of one thread, the last one taken last; no other thread can bring one back to use."""

    bytes = 0
    buffers: list[Buffer]

    def __getattr__(self, name: str) -> list[Buffer]:
        """Make the thread's list, unless a signal's handler that runs a session has by then."""
        if name != "buffers":
            raise AttributeError(name)
        made: list[Buffer] = self.__dict__.setdefault(name, [])
        return made

    def take(self, size: int) -> Buffer:
        """Return a buffer of a size, or up to twice that, that nobody uses.

        It is the one that was taken last: what a cache still has of it is the most.
        """
        buffers = self.buffers
        for back, (memory, made) in enumerate(reversed(buffers), 1):
            if size <= made[1] <= 2 * size and sys.getrefcount(memory) == IDLE:
                if back > 1:
                    buffers.append(buffers.pop(-back))
                return memory, made
        memory = np.empty(size, np.uint8)
        made = -memory.ctypes.data % BUFFER_ALIGNMENT_BYTES, size
        if self.bytes + size > MAX_POOLED_BYTES:
            self.drop_idle()
        if self.bytes + size <= MAX_POOLED_BYTES:
            self.buffers.append((memory, made))
            self.bytes += size
        return memory, made

    def drop_idle(self) -> None:
        """Forget what nobody uses; if that frees less than half, what is in use, too."""
        self.buffers = [each for each in self.buffers if sys.getrefcount(each[0]) >= IDLE]
        self.bytes = sum(made[1] for _, made in self.buffers)
        if self.bytes > MAX_POOLED_BYTES // 2:
            self.buffers, self.bytes = [], 0


def _references_when_idle() -> int:
    """Return what ``getrefcount`` says of an array that a list has and a loop names."""
    for memory, _ in [(np.empty(1, np.uint8), 0)]:
        return sys.getrefcount(memory)
    raise AssertionError


IDLE = _references_when_idle()
# Whether a reference count says that an array is in no use.
COUNTED = getattr(sys, "_is_gil_enabled", lambda: True)() and hasattr(sys, "getrefcount")

_pool = _Pool()


def drop_idle() -> None:
    """Give back this thread's memory that nobody uses."""
    before = _pool.bytes
    _pool.drop_idle()
    if before - _pool.bytes >= MUCH:
        from tenonnx.process.memory import trim

        trim()


@contextlib.contextmanager
def apart() -> Iterator[None]:
    """Have no buffer kept, or taken of those that are, by what is allocated meanwhile."""
    kept = _pool.buffers, _pool.bytes
    _pool.buffers, _pool.bytes = [], 0
    try:
        yield
    finally:
        _pool.buffers, _pool.bytes = kept


def size_class(nbytes: int) -> int:
    """Return the size of buffer for so many bytes: at most an eighth more."""
    step = 1 << max(0, nbytes.bit_length() - 4)
    return -(-nbytes // step) * step


@cacheable
def empty(shape: tuple[int, ...], dtype: np.dtype[Any] = F32) -> NDArray:
    """Return a new C-contiguous array, with anything in it; aligned to a cache line if large.

    Raises:
        MemoryError: There is no room for it.
    """
    count = math.prod(shape)
    nbytes = count * dtype.itemsize
    if nbytes < MIN_POOLED_BYTES or not COUNTED:
        return np.empty(shape, dtype)
    try:
        memory, (start, _) = _pool.take(size_class(nbytes + BUFFER_ALIGNMENT_BYTES))
    except MemoryError:  # which has the buffer's shape and type
        found = f"a {dtype.name} tensor of shape {list(shape)}"
        raise MemoryError(f"{found} takes {nbytes / 2**30:.1f} GiB, which there are not") from None
    return np.ndarray(shape, dtype, memory, start)


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
