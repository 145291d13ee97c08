"""The names of the numbers of products of wide elements.

A has `rows` of `depth` elements and B as many of `columns`, which are adjacent; `a_row` bytes are
between rows of A and `a_step` between elements of one, `b_row` and `c_row` between rows of B and of
the result. There are `grain` rows of all results in one of `tasks`.
"""

from __future__ import annotations

WIDE_FIELDS = (
    "element", "rows", "depth", "columns", "a_row", "a_step", "b_row", "c_row", "grain", "tasks",
)  # fmt: skip
