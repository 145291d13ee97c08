"""From many numbers to the range that is worth an integer each: percentiles and entropy."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

NDArray = np.ndarray[Any, np.dtype[Any]]

BINS: Final = 2048
# The number of levels in a half of an 8-bit range.
HALF_LEVELS: Final = 128


# The share that a bin is taken to have whose numbers were all cut off.
ALMOST_NEVER: Final = 1e-4


class Histogram:
    """Counts of a tensor's numbers between two bounds, which hold all of them.

    Args:
        low: The smallest number.
        high: The greatest one.
    """

    def __init__(self, low: float, high: float) -> None:
        self.low, self.high = low, high
        self.edges = np.linspace(low, high, BINS + 1) if high > low else np.array([low, low + 1.0])
        self.counts = np.zeros(len(self.edges) - 1, np.int64)
        self.zeros = 0

    def add(self, x: NDArray) -> None:
        """Count the finite numbers of an array."""
        self.counts += np.histogram(x[np.isfinite(x)], self.edges)[0]
        self.zeros += x.size - int(np.count_nonzero(x))

    def percentile(self, share: float) -> tuple[float, float]:
        """Return the range that leaves out ``1 - share`` of the numbers, half at either end."""
        total = np.cumsum(self.counts) / max(int(self.counts.sum()), 1)
        outside = (1 - share) / 2
        first = int(np.searchsorted(total, outside, side="right"))
        last = int(np.searchsorted(total, 1 - outside, side="left"))
        last = min(last, len(self.counts) - 1)
        return max(float(self.edges[first]), self.low), min(float(self.edges[last + 1]), self.high)

    def entropy(self) -> tuple[float, float]:
        """Return the range, cut at ±t, in which integers tell the numbers apart best.

        The distribution of magnitudes, those above t counted at t, is compared with what remains
        of it when only ``HALF_LEVELS`` steps below t are told apart; t has the least divergence of
        Kullback and Leibler. Zeros do not count: an integer is theirs whatever the range is.
        """
        centers = np.abs((self.edges[1:] + self.edges[:-1]) / 2)
        most = max(-self.low, self.high)
        if not most or len(self.counts) < BINS:
            return self.low, self.high
        counts = self.counts.copy()
        counts[min(int(np.searchsorted(self.edges, 0, side="right")), BINS) - 1] -= self.zeros
        magnitudes = np.histogram(centers, BINS, (0, most), weights=counts)[0]
        ends = np.arange(HALF_LEVELS, BINS + 1, HALF_LEVELS // 8)
        best = ends[int(np.argmin([divergence(magnitudes, int(end)) for end in ends]))]
        limit = most * float(best) / BINS
        return max(self.low, -limit), min(self.high, limit)


def divergence(counts: NDArray, end: int) -> float:
    """Return the divergence of counts cut at a bin from the same in ``HALF_LEVELS`` steps.

    Each step's count is spread evenly over those of its bins that have any.
    """
    kept = counts[:end].astype(np.float64)
    starts = np.arange(HALF_LEVELS) * end // HALF_LEVELS
    step = np.searchsorted(starts, np.arange(end), side="right") - 1
    taken = kept > 0
    sums = np.bincount(step, kept, HALF_LEVELS)
    bins = np.bincount(step, taken, HALF_LEVELS)
    coarse = np.where(taken, (sums / np.maximum(bins, 1))[step], 0.0)
    kept[-1] += counts[end:].sum()
    if not coarse.sum():
        return float("inf")
    p, q = kept / kept.sum(), coarse / coarse.sum()
    both = p > 0
    q = np.where(both & (q == 0), ALMOST_NEVER, q)
    q /= q.sum()
    return float((p[both] * np.log(p[both] / q[both])).sum())
