"""Kernels that move elements.

What they and their callers agree on is here, which is imported without numba.
"""

from __future__ import annotations

AXES = 4
"""Axes at most, beside the two that squares are transposed along."""

TRANSPOSE_FIELDS = (
    "columns", "apart", "run", "run_apart", "lines", "line_apart", "target_line", "block",
    "target_block", "joined", "bands", "units", "grain", "tasks",
)  # fmt: skip
"""The names of the kernel's first numbers, in elements:

A line of the result has ``columns``, ``apart`` in the source, where ``lines`` of them are
``line_apart``: side by side, if columns are not. In the result they are ``target_line`` apart.
Where an axis is shorter than a vector, it is ``joined`` with another: after a ``run`` of columns
the next begins ``run_apart`` from where that began, and after a ``block`` of lines
``target_block``. If none is, both are all. A unit is one of ``bands`` of ``TOGETHER`` lines;
``grain`` of ``units`` are one of ``tasks``. Then come lengths of the outer axes, strides in the
source, and strides in the result.
"""

TOGETHER = 32
"""Lines of a unit: a line of the source's cache lines, if they begin anywhere in one, is read by
few units."""
