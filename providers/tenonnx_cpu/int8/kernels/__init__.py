"""Kernels of bytes.

What they and their callers agree on is here, which is imported without numba.
"""

from __future__ import annotations

# Rows of A up to which B is read once, in long runs, and never packed.
MAX_GEMV_ROWS = 4

# Columns at a time: their sums stay in the first-level cache.
SPAN_COLUMNS = 2048

# Bytes that one worker needs for sums.
SUMS_BYTES = 4 * (MAX_GEMV_ROWS + 1) * SPAN_COLUMNS

# Rows of the tallest tile of sums.
TALLEST = 16

# Words of four bytes in a row of AMX's tiles at most, and those that are worth a tile's load.
TILE_WORDS, LEAST_WORDS = 16, 4


def tile_words(fours: int) -> int:
    """Return the words of tiles that share out so many, all alike; 0 if too few."""
    for words in range(TILE_WORDS, LEAST_WORDS - 1, -1):
        if fours % words == 0:
            return words
    return 0


# The names of `max_pool`'s numbers: an image's and a result's size, and the windows' steps.
POOL_FIELDS = (
    "channels", "height", "width", "out_height", "out_width", "stride_y", "stride_x", "top", "left",
    "kernel_y", "kernel_x", "step_y", "step_x",
)  # fmt: skip

# The names of `Layout.numbers`; sizes are in bytes:
#
# `rows` and `channels` are a group's. Windows begin `top` lines and `left` columns ahead of an
# image, which has `image` bytes, and see `taps_y` lines and `taps_x` columns of it. From one to the
# next of its lines, places and channels there are `from_line`, `from_place` and `from_channel`.
# Lines that are read are `line` apart, and what places see `pixel`, in a copy if it is `copied`. A
# place sees runs of `run`, in all `fours` of which `depth` bytes count. A task makes `task_rows`
# channels of `task_height` lines of `task_width` places in `work` bytes of memory, of which the
# copy begins at `band`.
BYTE_CONV_FIELDS = (
    "groups", "rows", "channels", "height", "width", "out_height", "out_width", "stride_y",
    "stride_x", "top", "left", "taps_y", "taps_x", "image", "from_line", "from_place",
    "from_channel", "copied", "line", "pixel", "run", "fours", "depth", "task_rows",
    "task_height", "task_width", "band", "work", "tasks",
)  # fmt: skip
