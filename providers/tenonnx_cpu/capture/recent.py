"""The latest inputs of steps: those of shapes that come again are worth a capture."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

MAX_KEYS = 64
"""Keys of inputs that are remembered."""


class Recent:
    """The keys of inputs that came, the latest ones."""

    def __init__(self) -> None:
        self._keys: dict[Hashable, None] = {}

    def are_worth(self, key: Hashable) -> bool:
        """Return whether inputs are to be captured: the first, and others when they come again.

        Args:
            key: What tells captures of such inputs apart.
        """
        worth = not self._keys or key in self._keys
        self.add([key])
        return worth

    def add(self, keys: Iterable[Hashable]) -> None:
        """Add keys."""
        self._keys |= dict.fromkeys(keys)
        while len(self._keys) > MAX_KEYS:
            del self._keys[next(iter(self._keys))]
