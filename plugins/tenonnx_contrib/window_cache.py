"""A cache that keeps the latest positions alone, contiguous from its first row on."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tenonnx import Array, Namespace


class Window:
    """The positions in a cache of some capacity, before a step and after it.

    After T tokens it holds the last ``resident(T)`` of them: all while they fit, then it drops
    ``capacity - window + 1`` at a time.

    Args:
        past: The cache (batch, heads, capacity, size).
        window: How many tokens a query sees.
        before: Tokens before the step, per batch entry.
        totals: Tokens after it.

    Raises:
        ValueError: No window, no cache, or one that is smaller than the window.
    """

    def __init__(self, past: Array | None, window: int, before: Array, totals: Array) -> None:
        if past is None or not 0 < window <= past.shape[2]:
            raise ValueError(
                "expected sliding_window_cache=1 with a cache of at least local_window_size "
                f"positions, found local_window_size={window} and "
                f"{'no cache' if past is None else f'{past.shape[2]} positions'}"
            )
        self.capacity: int = past.shape[2]
        self.window = window
        self.before: list[int] = before.tolist()
        self.totals: list[int] = totals.tolist()

    def resident(self, total: int) -> int:
        """Return how many of ``total`` positions the cache holds."""
        if total <= self.capacity:
            return total
        stride = self.capacity - self.window + 1
        return total - stride * math.ceil((total - self.capacity) / stride)

    def step(
        self, xp: Namespace, past: Sequence[Array | None], new: Sequence[Array]
    ) -> tuple[list[Array], list[Array], Array]:
        """Return the entries to attend to, the caches after the step, and the former's positions.

        Of the new entries those behind an entry's ``totals - before`` are padding. The results
        are (batch, heads, longest, size); a position that is missing is the batch's
        greatest, which no query sees.
        """
        spans = [(b - self.resident(b), t) for b, t in zip(self.before, self.totals, strict=True)]
        longest = max(stop - start for start, stop in spans)
        self.places = np.full((len(spans), longest), max(self.totals))
        for row, (start, stop) in zip(self.places, spans, strict=True):
            row[: stop - start] = np.arange(start, stop)
        held = [
            self._spans_of(xp, cache, added, spans, longest)
            for cache, added in zip(past, new, strict=True)
        ]
        return held, [self._kept(xp, x, spans) for x in held], xp.asarray(self.places)

    def columns(self, xp: Namespace, bias: Array | None) -> Array | None:
        """Return a bias by position, if there is one, as one by entry."""
        if bias is None:
            return None
        last = bias.shape[-1] - 1
        places = xp.asarray(np.minimum(self.places, last))
        shape = (places.shape[0], *bias.shape[1:])
        index = places[:, None, None, :]
        return xp.take_along_axis(xp.broadcast_to(bias, shape), index, axis=-1)

    def _spans_of(
        self,
        xp: Namespace,
        past: Array | None,
        new: Array,
        spans: Sequence[tuple[int, int]],
        longest: int,
    ) -> Array:
        y = xp.zeros((*new.shape[:2], longest, new.shape[3]), new.dtype)
        for entry, (start, stop) in enumerate(spans):
            old = self.before[entry] - start
            if past is not None:
                y[entry, :, :old] = past[entry, :, :old]
            y[entry, :, old : stop - start] = new[entry, :, : stop - start - old]
        return y

    def _kept(self, xp: Namespace, held: Array, spans: Sequence[tuple[int, int]]) -> Array:
        y = xp.zeros((*held.shape[:2], self.capacity, held.shape[3]), held.dtype)
        for entry, (start, stop) in enumerate(spans):
            count = self.resident(stop)
            y[entry, :, :count] = held[entry, :, stop - count - start : stop - start]
        return y
