"""Ids to text, one at a time."""

from __future__ import annotations

import operator
from collections.abc import Callable

# The character that stands for bytes that are no character, or not yet.
REPLACEMENT = "\ufffd"

# Bytes that a character may have and still lack one: each may be a token's, and look like that.
MAX_UNFINISHED_BYTES = 3

# Tokens after which bytes that are no character are none for good.
MOST_HELD = 256


class TokenizerStream:
    """Decodes tokens as they come; keeps back what is not a character yet.

    Args:
        decode: Returns the text of a list of tokens.
    """

    def __init__(self, decode: Callable[[list[int]], str]) -> None:
        self._decode = decode
        # Whole characters: a token's text may depend on the one before it, as first spaces do.
        self._before: list[int] = []
        self._held: list[int] = []
        self._said = 0

    def decode(self, token: int) -> str:
        """Return the text that a token adds to those before it, which may be nothing yet."""
        self._held.append(operator.index(token))
        text = self._added()
        open_end = len(text) - len(text.rstrip(REPLACEMENT))
        if not open_end or len(self._held) >= MOST_HELD:
            return self._all(text)
        # Bytes before an unfinished character look like it, where a run of them is decoded as one.
        kept = min(open_end, MAX_UNFINISHED_BYTES + len(self._before))
        start, self._said = self._said, max(self._said, len(text) - kept)
        return text[start : self._said]

    def finish(self) -> str:
        """Return what was kept back: the text has ended, and no more bytes come."""
        return self._all(self._added())

    def _added(self) -> str:
        """Return what the tokens that are held add to the text of the ones before them."""
        return self._decode(self._before + self._held)[len(self._decode(self._before)) :]

    def _all(self, text: str) -> str:
        rest = text[self._said :]
        if text:
            self._before = self._held
        self._held, self._said = [], 0
        return rest
