"""Kernels of reductions.

What they and their callers agree on is here, which is imported without numba.
"""

from __future__ import annotations

SUM, SQUARES, GREATEST, LEAST, PRODUCT = range(5)
"""The kinds of reductions."""
