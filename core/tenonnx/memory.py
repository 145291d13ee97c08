"""A limit for the memory of a computation, below the available memory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_most: ContextVar[float] = ContextVar("most", default=math.inf)


@contextmanager
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
