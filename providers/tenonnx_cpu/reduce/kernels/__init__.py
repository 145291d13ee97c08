"""Kernels of reductions.

What they and their callers agree on is here, which is imported without numba.
"""

from __future__ import annotations

from tenonnx_cpu.elementwise.kernels import operations as o

# The kinds of reductions; squares are added in the elements' own precision, or as float64.
SUM, MAGNITUDES, SQUARES, REAL_SQUARES, GREATEST, LEAST, PRODUCT = range(7)


def total_of(kind: int, source: int) -> int | None:
    """Return the type that elements are combined in; ``None`` if there is no such reduction.

    It is that of numpy's form, but for float32, which is combined as float64. What is the same on
    integers with a sign and without is on those with one.
    """
    if source == o.BOOL or (kind == REAL_SQUARES and source not in o.INTEGERS):
        return None
    if kind in (GREATEST, LEAST):
        return o.FLOAT32 if source in o.HALVES else source
    if kind == REAL_SQUARES or source == o.FLOAT32:
        return o.FLOAT64
    if source in o.SIGNED:
        return None
    return o.FLOAT32 if source in o.HALVES else source


# Columns of a task: they stay in the cache from row to row.
SPAN = 1024

# The names of a scan's numbers: the lengths of three axes, of which the middle one is gone over;
# bytes of an element, and whether it is a float; whether there are products instead of sums,
# elements before each one only, and elements from the end on; rows of a task if `inner` is 1, and
# tasks.
SCAN_FIELDS = (
    "outer", "count", "inner", "size", "floats", "product", "exclusive", "reverse", "grain",
    "tasks",
)  # fmt: skip

# Columns that are folded at a time; their sums stay in the first cache.
PIECE = 256

# The names of a fold's numbers. A row has `width` elements, `step` bytes apart. There are `rows`,
# `row_step` bytes apart, and as many again for each of `outer` steps along `reduced` axes; that all
# are combined for each step along `kept` axes. If rows are kept, they are cut into `pieces` of
# `piece` columns, else `pieces` is 0. There are `units` of results, of which `grain` are one of
# `tasks`. The `kind` of reduction makes elements of `size` bytes of those of type `source`; then to
# `write` makes results of them, an operation `write_of` a type. If it `finds` a place, that is the
# result, the `last` of equals or the first. A number behind these is the divisor of sums, of type
# `element`, if it `divides`; if the square `root` is taken, it is the greatest one that there may
# be; or the `log` of sums is taken. Then come each axis' length and bytes, kept ones first, the
# last of them first.
FOLD_FIELDS = (
    "kept", "reduced", "outer", "rows", "row_step", "width", "step", "piece", "pieces", "units",
    "grain", "tasks", "kind", "source", "element", "size", "finds", "last", "divides", "root",
    "log", "write", "write_of", "result_size",
)  # fmt: skip

# Adjacent rows of another axis than the last that are sorted together: a cache line of them.
COLUMNS = 16

# The orders of elements: of signed and unsigned whole numbers, and of floats, NaN the greatest.
WHOLE, UNSIGNED, FLOATING = range(3)

# The names of a selection's numbers: bytes of an element; their order; whether the greatest are
# first; how many of a row's `length` elements there are; rows in the two axes around; whether rows
# are sorted; bytes of each worker's memory; rows of a task, or blocks of `COLUMNS` of them if
# `inner` is not 1; and tasks.
TOP_K_FIELDS = (
    "size", "order", "largest", "count", "outer", "length", "inner", "sorts", "share", "grain",
    "tasks",
)  # fmt: skip
