"""What both sides of kernels of bytes know: block sizes and names. Imported without numba."""

from __future__ import annotations

FEW = 4
"""Rows of A up to which B is read once, in long runs, and never packed."""

SPAN = 2048
"""Columns at a time: their sums stay in the first-level cache."""

ROOM = 4 * (FEW + 1) * SPAN
"""Bytes that one worker needs for sums."""

POOL_FIELDS = (
    "channels", "height", "width", "out_height", "out_width", "stride_y", "stride_x", "top", "left",
    "kernel_y", "kernel_x", "step_y", "step_x",
)  # fmt: skip
"""What ``max_pool`` calls its numbers: an image's and a result's size, and how windows move."""
