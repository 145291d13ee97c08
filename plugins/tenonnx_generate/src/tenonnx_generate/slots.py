"""The tokens that each slot of the caches holds."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_generate.decoder import Decoder

NDArray = np.ndarray[Any, np.dtype[Any]]

NO_TOKENS = np.zeros(0, np.int32)

# An adapter's number (0 without one) and a salt: turns share caches with turns of their scope.
Scope = tuple[int, str]

NO_SCOPE: Scope = (0, "")

# Tokens whose caches are moved in the time that one row more takes a step.
#
# Of decoders from 7 M to 236 M parameters, a row of a batch costs a tenth of a step, and that is
# what copying the caches of 200 to 400 tokens takes.
ROW_TOKENS = 256


class Slot:
    """A row of the caches.

    Attributes:
        tokens: The tokens in its caches, while no turn writes there.
        scope: The adapter's number and the salt of the turns whose caches they are.
        busy: A turn writes there.
        used: When it was used last, as a number that grows.
    """

    __slots__ = ("busy", "scope", "tokens", "used")

    def __init__(self) -> None:
        self.tokens = NO_TOKENS
        self.scope = NO_SCOPE
        self.busy, self.used = False, 0


class Slots:
    """The slots of a decoder, each for the turn of a request, or for what one has left.

    What a turn leaves is for any that begins with the same tokens: the next of its request, or
    that of another with the same instructions. One that continues most of it gets the slot itself,
    any other a copy of the tokens that both have: rows of GroupQueryAttention lie in one piece, so
    they cannot be shared, but copying a token's caches is hundreds of times faster than running it.

    Args:
        decoder: The decoder whose rows the slots are.
        kept: How many tokens of what turns have left may stay.
    """

    def __init__(self, decoder: Decoder, kept: int) -> None:
        self._decoder, self._kept = decoder, kept
        self._slots = [Slot() for _ in decoder.lengths]
        self._clock = 0
        self._idle = 0

    def take(self, tokens: NDArray, scope: Scope) -> tuple[int, int] | None:
        """Take a slot for a sequence; return it, and of how many of its tokens it has caches.

        At least the last one is left to run, for its logits. ``None`` if all slots are busy.
        """
        free = [row for row, slot in enumerate(self._slots) if not slot.busy]
        if not free:
            return None
        shared = [self._common(row, tokens, scope) for row in range(len(self._slots))]
        source = max(range(len(shared)), key=lambda row: (shared[row], row in free))
        row, cached = source, shared[source]
        whole = 2 * cached >= len(self._slots[source].tokens) > 0
        if source not in free or not whole:
            row = min(free, key=lambda each: (self._slots[each].used, each))
            if cached and row != source:
                self._decoder.copy(source, row, cached)
        slot = self._slots[row]
        slot.busy, slot.tokens, slot.scope = True, NO_TOKENS, scope
        self._touch(slot)
        self._decoder.lengths[row] = cached
        return row, cached

    def written(self, row: int, tokens: NDArray) -> None:
        """Note which tokens a slot has caches of now."""
        self._slots[row].tokens = tokens

    def leave(self, row: int, tokens: NDArray) -> None:
        """End the use of a slot, which has caches of some tokens."""
        slot = self._slots[row]
        slot.busy, slot.tokens = False, tokens.copy()
        self._touch(slot)
        self.trim()

    def trim(self, kept: int | None = None) -> None:
        """Give memory back of what was left longest ago, until what is left is not too much."""
        left = [row for row, slot in enumerate(self._slots) if not slot.busy and len(slot.tokens)]
        total = sum(len(self._slots[row].tokens) for row in left)
        for row in sorted(left, key=lambda each: self._slots[each].used):
            if total <= (self._kept if kept is None else kept):
                return
            slot = self._slots[row]
            total -= len(slot.tokens)
            slot.tokens, slot.scope, slot.used = NO_TOKENS, NO_SCOPE, 0
            self._decoder.give_back(row)

    def closed_up(self, rows: list[int]) -> tuple[int, int] | None:
        """Move the last of the rows that are run into a gap before it, if that pays.

        A gap costs each step a row. The last row is moved when the gaps have cost as much as
        that does, so that both together are at most twice the best.

        Returns:
            Where it was, and where it is.
        """
        gaps = sorted(set(range(rows[0], rows[-1])) - set(rows))
        gaps = [row for row in gaps if not self._slots[row].busy]
        self._idle = self._idle + len(gaps) if gaps else 0
        if not gaps or self._idle * ROW_TOKENS < self._decoder.lengths[rows[-1]]:
            return None
        last, gap = rows[-1], gaps[0]
        self._idle = 0
        self.settle(gap)
        if self._decoder.lengths[gap]:
            self._decoder.exchange(last, gap)
        else:
            self._decoder.copy(last, gap, self._decoder.lengths[last])
            self._decoder.give_back(last)
        self._slots[last], self._slots[gap] = self._slots[gap], self._slots[last]
        return last, gap

    def settle(self, row: int) -> None:
        """Have a slot that no turn writes to keep what it has, whatever a step writes after it."""
        slot = self._slots[row]
        if not slot.busy:
            self._decoder.lengths[row] = len(slot.tokens)

    @property
    def left(self) -> int:
        """The number of tokens that turns have left."""
        return sum(len(slot.tokens) for slot in self._slots if not slot.busy)

    def _common(self, row: int, tokens: NDArray, scope: Scope) -> int:
        slot = self._slots[row]
        if slot.scope != scope:
            return 0
        size = min(len(slot.tokens), len(tokens) - 1)
        differ = np.flatnonzero(slot.tokens[:size] != tokens[:size])
        return int(differ[0]) if len(differ) else max(size, 0)

    def _touch(self, slot: Slot) -> None:
        self._clock += 1
        slot.used = self._clock
