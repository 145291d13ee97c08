"""Trees, support vectors, distances, norms and hashes."""

# Norms of a Normalizer.
MAX, L1, L2 = range(3)
