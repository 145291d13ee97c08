"""Something that few runs need: it is made when it is first asked for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class Later:
    """Something that may be kept apart in a plan.

    Args:
        thing: It, where it is made already.
        make: Makes it, where it is not.
    """

    def __init__(self, thing: Any = None, make: Callable[[], Any] | None = None) -> None:
        self._thing, self._make = thing, make
        self._lock = threading.RLock()  # a signal's handler may ask, too

    @property
    def is_open(self) -> bool:
        """Whether it is made already."""
        return self._make is None

    def open(self, begin: Callable[[Any], None] | None = None) -> Any:
        """Return it, the same each time.

        Args:
            begin: Is told of it when it is made.
        """
        if self._make is not None:
            with self._lock:
                if self._make is not None:
                    thing = self._make()
                    if begin is not None:
                        begin(thing)
                    self._thing, self._make = thing, None
        return self._thing
