"""Sound at another rate of samples."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

NDArray = np.ndarray[Any, np.dtype[Any]]

# Zeros of the filter on each side: more of them cut off more sharply.
CROSSINGS = 32

# The frequency of which half is left, as a part of half the lower rate.
CUTOFF = 0.94

# Places between two of them at which the filter is known; between these it is straight.
DENSITY = 1024

# Of Kaiser's window: others are kept 90 dB below it.
BETA = 9.0


def resampled(
    read: Callable[[int, int], NDArray], rate: int, target: int, first: int, count: int
) -> NDArray:
    """Return samples of a sound at another rate.

    Sample ``n`` of the result lies at ``n * rate / target`` of the source. It is the sum of the
    source's samples around it, weighted by a sinc under Kaiser's window that has nothing above
    half of the lower rate. Any part of the result is the same, whether the rest is asked for.

    Args:
        read: Returns samples of the source, [stop - start], from ``start`` to ``stop``; silence
            where there are none.
        rate: The source's.
        target: The result's.
        first: The first sample that is returned.
        count: How many are.
    """
    if rate == target:
        return read(first, first + count)
    common = math.gcd(rate, target)
    up, down = target // common, rate // common
    narrow = min(1.0, target / rate) * CUTOFF
    half = math.ceil(CROSSINGS / narrow)
    start = first * down // up - half + 1
    stop = (first + count - 1) * down // up + half + 1
    windows = np.lib.stride_tricks.sliding_window_view(read(start, stop), 2 * half)
    result = np.zeros(count, np.float32)
    # Every ``up`` samples the source's lie where they lay before: one filter for all of these.
    for phase in range(min(up, count)):
        at = first + phase
        weights = _weights(at * down % up / up, half, narrow).astype(np.float32)
        base = at * down // up - half + 1 - start
        places = range(at - first, count, up)
        result[places.start :: up] = windows[base::down][: len(places)] @ weights
    return result


def _weights(fraction: float, half: int, narrow: float) -> NDArray:
    """Return the filter for a place that far behind the sample at ``half - 1``."""
    distances = np.abs(np.arange(2 * half) - (half - 1) - fraction) * narrow
    weights = np.interp(distances, *_table(), right=0)
    whole: NDArray = weights / weights.sum()
    return whole


@lru_cache(maxsize=1)
def _table() -> tuple[NDArray, NDArray]:
    """Return distances in zeros of the sinc, and what it is there under Kaiser's window."""
    distances = np.arange(CROSSINGS * DENSITY + 1) / DENSITY
    window = np.i0(BETA * np.sqrt(1 - (distances / CROSSINGS) ** 2)) / np.i0(BETA)
    return distances, np.sinc(distances) * window
