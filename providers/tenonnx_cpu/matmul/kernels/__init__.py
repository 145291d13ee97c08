"""Kernels of matrix products.

What they and their callers agree on is here, which is imported without numba: the memory that one
worker needs, in floats.
"""

from __future__ import annotations

# Rows of B in a packed panel at most: with a tile's rows of A it fills the first-level cache.
DEPTH = 256

# Columns of B that are packed at a time.
COLUMNS_AT_MOST = 256

# The start of the tile that sticks out of the result.
EDGE = DEPTH * COLUMNS_AT_MOST

# The start of the copy of a tile's rows of A.
COPY = EDGE + 512

# Floats from row to row of that copy; a power of two would put all rows into one cache set.
COPY_ROW = DEPTH + 16

# The place of a panel's scales and zero points, behind more than the tallest tile needs.
NUMBERS_PLACE = COPY + 16 * COPY_ROW

# The place for the sums of a block of the result that lies between those of other threads.
SUMS = NUMBERS_PLACE + 128

# Floats of such a block.
SUMS_AT_MOST = 1 << 16

# Floats per worker.
WORKSPACE = SUMS + SUMS_AT_MOST

# Rows of codes that are packed at a time as bytes; in floats, a fourth of that for a column.
BYTES_DEPTH = 512

# The start of their scales: one for 16 rows at least.
BYTES_NUMBERS = COLUMNS_AT_MOST * BYTES_DEPTH // 4

# The start of the first values of their sums: as many.
BYTES_STARTS = BYTES_NUMBERS + COLUMNS_AT_MOST * BYTES_DEPTH // 16

# The place of a panel's codes before they are unpacked.
BYTES_WORDS = BYTES_STARTS + COLUMNS_AT_MOST * BYTES_DEPTH // 16

# Columns of a task at most: rows of codes are read in long runs.
LINES_SPAN = 8192

# Floats from row to row of what they are summed in: a panel more, and no power of two.
LINES_SLAB_ROW = LINES_SPAN + 272

# Floats that a task sums in.
LINES_SLAB = 4 * LINES_SLAB_ROW

# Floats per worker of the tasks that share out both columns and rows of codes.
LINES_ROOM = 3 * LINES_SLAB

# Elements of a row of AMX's tiles of bfloat16, and columns of a panel of them: of two tiles.
TILE_STEP, TILE_COLUMNS = 32, 32

# Floats of two tiles of sums below one another, of a panel.
TILE_EDGE = 2 * 16 * TILE_COLUMNS

# Bytes that a worker of a product of bytes needs besides its panel.
BYTE_ROOM = 1 << 10
