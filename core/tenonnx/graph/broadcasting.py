"""The shapes of arrays that broadcast, of as many axes as arrays have."""

from __future__ import annotations

import itertools

import numpy as np

# Axes of a shape that `np.broadcast_shapes` takes at most, of the 64 that arrays may have.
MAX_BROADCAST_AXES = 32


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of a result of arrays of these shapes, as ``np.broadcast_shapes`` does.

    Raises:
        ValueError: They do not broadcast.
    """
    if max(map(len, shapes), default=0) <= MAX_BROADCAST_AXES:
        return np.broadcast_shapes(*shapes)
    result = []
    for sizes in itertools.zip_longest(*map(reversed, shapes), fillvalue=1):
        size, *others = {*sizes} - {1} or {1}
        if others:
            raise ValueError("expected shapes that broadcast")
        result.append(size)
    return tuple(reversed(result))
