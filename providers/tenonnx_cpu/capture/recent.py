"""The latest inputs of steps: those of shapes that come again are worth a capture."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

# Keys of inputs that are remembered.
MAX_KEYS = 64


# Tries to capture inputs of a key: a kernel may have refused the first ones for their values.
MAX_VAIN_CAPTURES = 3


class Recent:
    """The keys of inputs that came, the latest ones."""

    def __init__(self) -> None:
        self._keys: dict[Hashable, None] = {}
        self._vain: dict[Hashable, int] = {}

    def are_worth(self, key: Hashable) -> bool:
        """Return whether inputs are to be captured: the first, and others when they come again.

        Args:
            key: What tells captures of such inputs apart.
        """
        worth = not self._keys or key in self._keys
        self.add([key])
        return worth and self._vain.get(key, 0) < MAX_VAIN_CAPTURES

    def tried_in_vain(self, key: Hashable) -> None:
        """Note that inputs were to be captured, and were not: more often it is not tried."""
        self._vain[key] = self._vain.get(key, 0) + 1
        while len(self._vain) > MAX_KEYS:
            del self._vain[next(iter(self._vain))]

    def add(self, keys: Iterable[Hashable]) -> None:
        """Add keys."""
        self._keys |= dict.fromkeys(keys)
        while len(self._keys) > MAX_KEYS:
            del self._keys[next(iter(self._keys))]
