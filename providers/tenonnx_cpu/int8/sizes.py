"""Block sizes of products of a few rows of bytes. Imported without numba."""

from __future__ import annotations

FEW = 4
"""Rows of A up to which B is read once, in long runs, and never packed."""

SPAN = 2048
"""Columns at a time: their sums stay in the first-level cache."""

ROOM = 4 * (FEW + 1) * SPAN
"""Bytes that one worker needs for sums."""
