"""Memory of this process: a limit for computations, and giving back what is free."""

from __future__ import annotations

import contextlib
import ctypes
import math
from collections.abc import Iterator
from contextvars import ContextVar

_most: ContextVar[float] = ContextVar("most", default=math.inf)


@contextlib.contextmanager
def at_most(nbytes: float) -> Iterator[None]:
    """Makes kernels refuse larger results before they allocate them."""
    token = _most.set(nbytes)
    try:
        yield
    finally:
        _most.reset(token)


def allowed() -> float:
    """Returns how many bytes a result may have."""
    return _most.get()


def trim() -> None:
    """Has the allocator give back what is free: glibc's keeps up to 64 MiB of what was large."""
    with contextlib.suppress(AttributeError, OSError, TypeError):  # of other allocators
        ctypes.CDLL(None).malloc_trim(0)
