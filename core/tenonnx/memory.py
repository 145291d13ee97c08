"""How much memory a computation may ask for, where somebody says less than there is."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_most: ContextVar[float] = ContextVar("most", default=math.inf)


@contextmanager
def at_most(nbytes: float) -> Iterator[None]:
    """Has kernels refuse to make a result of more bytes, before they ask for its memory."""
    token = _most.set(nbytes)
    try:
        yield
    finally:
        _most.reset(token)


def allowed() -> float:
    """Returns how many bytes a result may have."""
    return _most.get()
