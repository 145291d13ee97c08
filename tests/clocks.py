"""A garbage collector that stands still, for tests of time."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def collector_off() -> Iterator[None]:
    """Stop the garbage collector within the block.

    Its passes grow with all objects of the process, those of other tests too: they are not the
    work that is compared.
    """
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
