"""Draws of tokens by their chances, in one pass over the vocabulary and without sorting it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tenonnx import RuntimeException

NDArray = np.ndarray[Any, np.dtype[Any]]

# Tokens in ascending order, and the chance of each; chances add up to 1.
Distribution = tuple[NDArray, NDArray]

# Columns that the chances are added up in: a draw finds a column, then a token of it.
SUM_COLUMNS = 1024

# Columns for each of the likeliest tokens that are looked for.
COLUMNS_PER_CHOSEN = 8

LEAST_TEMPERATURE = float(np.finfo(np.float32).tiny)


class Draw:
    """The chances of the tokens that may come next.

    ``temperature`` applies first, then ``top_k``, ``top_p`` (of the chances after ``top_k``) and
    ``min_p`` (relative to the likeliest token).

    Args:
        scores: Logits after penalties [vocabulary]; ``-inf`` for tokens that may not come.
        options: Search options.

    Raises:
        RuntimeException: A score is NaN or +inf, or all are -inf.
    """

    def __init__(self, scores: NDArray, options: Mapping[str, Any]) -> None:
        greatest = scores.max()
        if not np.isfinite(greatest):
            raise RuntimeException("no token may come next, or the logits are no numbers")
        top_k = options["top_k"]
        self._tokens = likeliest(scores, top_k) if 0 < top_k < len(scores) else None
        chosen = scores if self._tokens is None else scores[self._tokens]
        self._count = len(chosen)
        columns = min(self._count, SUM_COLUMNS)
        # Zeros fill the last row: they have no chance.
        self._chances: NDArray = np.zeros((-(-self._count // columns), columns), np.float32)
        own = self._flat
        np.subtract(chosen, greatest, out=own, casting="same_kind")
        with np.errstate(over="ignore"):  # to -inf, which has no chance
            if options["temperature"] != 1:
                own /= np.float32(max(options["temperature"], LEAST_TEMPERATURE))
        np.exp(own, out=own)
        self._nucleus = options["top_p"] if 0 < options["top_p"] < 1 else 1.0
        self._least = options["min_p"]

    @property
    def _flat(self) -> NDArray:
        return self._chances.reshape(-1)[: self._count]

    def token(self, random: np.random.Generator) -> int:
        """Return a token.

        A token outside ``top_p`` or ``min_p`` is rejected, with all that are less likely, and
        another is drawn. So each of the others comes with its chance, and no order is needed.
        """
        total = 0.0
        while True:
            sums = self._chances.sum(axis=0)
            column = picked(sums, random.random())
            total = total or float(sums.sum(dtype=np.float64))
            row = picked(self._chances[:, column], random.random())
            place = row * self._chances.shape[1] + column
            likely = self._chances[row, column] >= self._least
            if not (likely and self._nucleus == 1):
                before = self._before(place)
                mass = np.einsum("ij,ij->j", self._chances, before).sum(dtype=np.float64)
                if not (likely and mass < self._nucleus * total):
                    self._chances *= before
                    continue
            return place if self._tokens is None else int(self._tokens[place])

    def _before(self, place: int) -> NDArray:
        """Return 1 for each token that is likelier than one, or as likely and before it; else 0."""
        own = self._chances.flat[place]
        before: NDArray = (self._chances > own).astype(np.float32)
        equal = self._flat[:place] == own
        if equal.any():
            before.reshape(-1)[:place][equal] = 1
        return before

    def distribution(self) -> Distribution:
        """Return all tokens that may come, and the chance of each."""
        flat = self._flat
        kept = (flat > 0) & (flat >= self._least)
        if self._nucleus < 1:
            ordered = np.sort(flat)[::-1].astype(np.float64)
            reached = np.cumsum(ordered)
            # A token counts if those before it are not yet likely enough.
            count = max(int(np.searchsorted(reached - ordered, self._nucleus * reached[-1])), 1)
            cut = ordered[count - 1]
            equal = np.flatnonzero(flat == cut)
            kept &= flat >= cut
            kept[equal[count - np.count_nonzero(flat > cut) :]] = False
        places = np.flatnonzero(kept)
        chances = flat[places].astype(np.float64)
        tokens = places if self._tokens is None else self._tokens[places]
        return tokens, chances / chances.sum()


def picked(chances: NDArray, number: float) -> int:
    """Return the place at which chances add up to a number from 0 to 1 of their sum.

    Chances need not add up to 1; a place without a chance is never returned.
    """
    reached = np.cumsum(chances, dtype=np.float64)
    total = reached[-1]
    return int(np.searchsorted(reached, min(number * total, np.nextafter(total, 0)), side="right"))


def likeliest(scores: NDArray, count: int) -> NDArray:
    """Return the places of the greatest scores, in ascending order.

    The greatest of each column are at least so many scores: whatever is less than ``count`` of
    them is none of the greatest.
    """
    size = len(scores)
    columns = max(SUM_COLUMNS, COLUMNS_PER_CHOSEN * count)
    rows = size // columns
    if rows > 1:
        greatest = scores[: rows * columns].reshape(rows, columns).max(axis=0)
        places = np.flatnonzero(scores >= np.partition(greatest, columns - count)[columns - count])
        scores = scores[places]
    best = np.argpartition(scores, len(scores) - count)[len(scores) - count :]
    return np.sort(places[best] if rows > 1 else best)
