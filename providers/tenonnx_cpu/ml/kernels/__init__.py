"""Trees, support vectors, distances, norms and hashes."""

# Norms of a Normalizer.
MAX, L1, L2 = range(3)

# The factor by which keys are hashed, 2 ** 64 over the golden ratio, and the bits of all NaN.
FACTOR, NAN = 0x9E3779B97F4A7C15 - (1 << 64), 0x7FF8 << 48
