"""Trees, support vectors, distances, norms and hashes."""

MAX, L1, L2 = range(3)
"""Norms of a Normalizer."""
