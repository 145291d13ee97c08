"""The memory that one worker of a matrix product needs. Imported without numba."""

from __future__ import annotations

DEPTH = 256
"""Rows of B in a packed panel at most: with a tile's rows of A it fills the first-level cache."""

COLUMNS_AT_MOST = 256
"""Columns of B that are packed at a time."""

EDGE = DEPTH * COLUMNS_AT_MOST
"""Where the tile begins that sticks out of the result, in floats."""

WORKSPACE = EDGE + 1024
"""Floats per worker."""
