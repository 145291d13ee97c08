"""Memory of this process: room for loading, a limit for computations, giving back what is free."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import math
import mmap
from collections.abc import Iterator
from contextvars import ContextVar

from tenonnx.errors import OutOfMemory, TenonnxError

# Address space that loading leaves free: importing onnx and onnx_ir takes 34 MiB (onnx 1.19).
ROOM_BYTES = 48 << 20

_most: ContextVar[float] = ContextVar("most", default=math.inf)


@contextlib.contextmanager
def at_most(nbytes: float) -> Iterator[None]:
    """Make kernels refuse larger results before they allocate them."""
    token = _most.set(nbytes)
    try:
        yield
    finally:
        _most.reset(token)


def keep_room() -> None:
    """Make sure that large allocations leave room for imports and for libraries' small ones.

    Without any, an import raises ``ImportError``, ``SystemError`` or ``SyntaxError``, a thread
    that starts is waited for in vain, and the C library ends the process.

    Raises:
        MemoryError: Less than ``ROOM_BYTES`` of address space are left.
    """
    try:
        mmap.mmap(-1, ROOM_BYTES).close()
    except OSError as error:
        raise MemoryError(f"less than {ROOM_BYTES >> 20} MiB of address space are left") from error


@contextlib.contextmanager
def for_loading() -> Iterator[None]:
    """Raise ``OutOfMemory`` for whatever fails inside for want of memory.

    Raises:
        OutOfMemory: An exception is, or comes from, ``MemoryError`` or ``ENOMEM``, or it is not
            tenonnx's and there is no room now.
    """
    try:
        keep_room()
        yield
    except Exception as error:
        if isinstance(error, OutOfMemory) or not _lacks_memory(error):
            raise
        raise OutOfMemory(
            f"loading the model needs more memory than there is: {error!r}",
            hint="raise the limit of the process, if it has one (`ulimit -v`)",
        ) from error


def _lacks_memory(error: BaseException) -> bool:
    link: BaseException | None = error
    while link is not None:
        if isinstance(link, MemoryError) or getattr(link, "errno", None) == errno.ENOMEM:
            return True
        link = link.__cause__ or link.__context__
    if isinstance(error, TenonnxError):
        return False
    try:
        keep_room()
    except MemoryError:
        return True
    return False


def allowed() -> float:
    """Return how many bytes a result may have."""
    return _most.get()


def trim() -> None:
    """Have the allocator give back what is free: glibc's keeps all below what is in use."""
    with contextlib.suppress(AttributeError, OSError, TypeError):  # of other allocators
        ctypes.CDLL(None).malloc_trim(0)
