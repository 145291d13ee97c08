"""The garbage collector, left out while there is no garbage."""

from __future__ import annotations

import contextlib
import gc
import itertools
from collections.abc import Iterator

_loads = itertools.count()


def first_load() -> bool:
    """Says whether no model was loaded before: most of what is made then are modules."""
    return next(_loads) == 0


@contextlib.contextmanager
def paused(*, lasting: bool = False) -> Iterator[None]:
    """Spares what grows, none of which is garbage, from being searched again and again.

    That search takes half of the time to load ten thousand nodes, and a tenth of that to import
    what loads them.

    Args:
        lasting: What is made lasts as long as the process, as modules do: it counts as old at
            once, without the search that would find that out.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if lasting and not gc.get_freeze_count():  # else the caller has frozen objects
            gc.freeze()
            gc.unfreeze()  # into the oldest generation
        if enabled:
            gc.enable()
