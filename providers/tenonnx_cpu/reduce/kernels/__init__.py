"""Kernels of reductions.

What they and their callers agree on is here, which is imported without numba.
"""

from __future__ import annotations

SUM, SQUARES, GREATEST, LEAST, PRODUCT = range(5)
"""The kinds of reductions."""

SPAN = 1024
"""Columns of a task: they stay in the cache from row to row."""

SCAN_FIELDS = (
    "outer", "count", "inner", "size", "floats", "product", "exclusive", "reverse", "grain",
    "tasks",
)  # fmt: skip
"""The names of a scan's numbers: the lengths of three axes, of which the middle one is gone over;
bytes of an element, and whether it is a float; whether there are products instead of sums, elements
before each one only, and elements from the end on; rows of a task if ``inner`` is 1, and tasks.
"""

PIECE = 512
"""Elements of a row that are folded at a time; their sums stay in the first cache."""

FOLD_FIELDS = (
    "kept", "reduced", "rows", "width", "step", "piece", "pieces", "units", "grain", "tasks",
    "read", "read_of", "size", "copy", "map", "map_of", "combine", "combine_of", "divides", "root",
    "element", "write", "write_of", "result_size",
)  # fmt: skip
"""The names of a fold's numbers. There are ``kept`` and ``reduced`` axes but for the last one, and
``rows`` along the reduced ones; a row has ``width`` elements, ``step`` bytes apart. If rows are
kept, they are cut into ``pieces`` of ``piece``, else ``pieces`` is 0. There are ``units`` of
results, of which ``grain`` are one of ``tasks``. To ``read`` makes elements of ``size`` bytes, on
which the operation ``map`` and then ``combine`` are done; then to ``write`` makes results of them.
Each operation is ``of`` a type; ``copy`` is the cast from a type to itself. A number behind these
is the divisor of sums, in their own type ``element``, if it ``divides``. The square ``root`` may be
taken. Then come each axis' length and bytes, kept ones first, the last of them first.
"""

NOTHING, SQUARED = -1, -2
"""Maps that are no operation on one operand."""

COLUMNS = 16
"""Adjacent rows of another axis than the last that are sorted together: a cache line of them."""

WHOLE, UNSIGNED, FLOATING = range(3)
"""The orders of elements: of signed and unsigned whole numbers, and of floats, NaN the greatest."""

TOP_K_FIELDS = (
    "size", "order", "largest", "count", "outer", "length", "inner", "share", "grain", "tasks",
)  # fmt: skip
"""The names of a selection's numbers: bytes of an element; their order; whether the greatest are
first; how many of a row's ``length`` elements there are; rows in the two axes around; bytes of each
worker's memory; rows of a task, or blocks of ``COLUMNS`` of them if ``inner`` is not 1; and tasks.
"""
