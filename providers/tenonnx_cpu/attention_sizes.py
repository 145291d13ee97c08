"""Block sizes of attention. Imported without numba."""

from __future__ import annotations

KEYS = 256
"""Keys at a time: their panel and the queries' scores stay in the second-level cache."""

QUERIES = 84
"""Queries of a task at most: whole tiles of rows."""

FEW = 4
"""Queries for which packing keys does not pay."""


def workspace(keys: int, size: int, value_size: int) -> int:
    """Returns how many floats one worker needs."""
    wide = -(-value_size // 32) * 32
    scores = QUERIES * min(KEYS, _padded(keys)) if keys else 0
    packed = KEYS * max(size, wide)
    return scores + packed + QUERIES * (wide + 2) + _padded(keys) + 2048


def _padded(count: int) -> int:
    return -(-count // 32) * 32
