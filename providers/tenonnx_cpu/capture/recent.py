"""The times at which inputs are captured: when they come again, and not too many in one run."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterable

from tenonnx.by_name import cacheable

# Keys of inputs that are remembered.
MAX_KEYS = 64

# Tries to capture inputs of a key: a kernel may have refused the first ones for their values.
MAX_TRIES = 3

# Steps that a run captures beside others, which takes some 10 ms more than to run them.
MAX_STEPS = 256


@cacheable
class Turns:
    """The runs of a session in which its steps are captured.

    Few steps are captured in the first run. Of many, the first run captures none: it takes as long
    as it has to. The second one captures the first ones, each later one twice as many.
    """

    def __init__(self) -> None:
        self._steps = 0

    def take(self, steps: int) -> Callable[[], int]:
        """Return what returns how many runs come before the one that captures so many more."""
        self._steps += steps
        return functools.partial(self._wait, self._steps)

    def _wait(self, end: int) -> int:
        return 0 if self._steps <= MAX_STEPS else ((end - 1) // MAX_STEPS + 1).bit_length()


def at_once() -> int:
    """Return 0: inputs do not wait for others."""
    return 0


class Recent:
    """Counts of inputs that have no capture, by their keys.

    Attributes:
        wait: Returns how many times more than once they come before they are captured.
    """

    def __init__(self, wait: Callable[[], int] = at_once) -> None:
        self.wait = wait
        self._counts: dict[Hashable, int] = {}

    def are_worth(self, key: Hashable) -> bool:
        """Return whether inputs are to be captured: the first, and others when they come again.

        Args:
            key: What tells captures of such inputs apart.
        """
        count = self._counts.get(key, 0 if self._counts else 1)
        self._set(key, count + 1)
        return 0 < count - self.wait() <= MAX_TRIES

    def add(self, keys: Iterable[Hashable]) -> None:
        """Note that inputs have captures: they are captured again if these are dropped."""
        for key in keys:
            self._set(key, self.wait() + 1)

    def _set(self, key: Hashable, count: int) -> None:
        self._counts[key] = count
        while len(self._counts) > MAX_KEYS:
            del self._counts[next(iter(self._counts))]
