"""Texts that end a text."""

from __future__ import annotations

from collections.abc import Iterable

from tenonnx_generate.errors import Refused


class StopStrings:
    """Passes text on until one of some strings comes, however its pieces part it.

    Args:
        strings: What the text ends before.

    Attributes:
        stopped: One of them came: nothing is passed on any more.
        matched: Which of them; ``None`` before.

    Raises:
        Refused: One is empty.
    """

    def __init__(self, strings: Iterable[str]) -> None:
        self._strings = list(strings)
        if "" in self._strings:
            raise Refused("a stop string is empty: the text would end before it begins")
        self._held = ""
        self.stopped = False
        self.matched: int | None = None

    def take(self, piece: str) -> str:
        """Return what is to be said of the text so far, and has not been yet."""
        if self.stopped:
            return ""
        text = self._held + piece
        places = [(text.find(string), which) for which, string in enumerate(self._strings)]
        end, self.matched = min(
            (each for each in places if each[0] >= 0), default=(len(text) - self._begun(text), None)
        )
        self.stopped = self.matched is not None
        self._held = text[end:]
        return text[:end]

    def finish(self) -> str:
        """Return what was kept back, as it could have been the beginning of such a string."""
        rest, self._held = ("" if self.stopped else self._held), ""
        return rest

    def _begun(self, text: str) -> int:
        """Return how many of the last characters are the beginning of a string."""
        most = max(map(len, self._strings), default=1) - 1
        sizes = range(min(most, len(text)), 0, -1)
        return next((n for n in sizes if self._begins(text[len(text) - n :])), 0)

    def _begins(self, tail: str) -> bool:
        return any(string.startswith(tail) for string in self._strings)
