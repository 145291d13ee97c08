"""Kernels that move elements.

What they and their callers agree on is here, which is imported without numba.
"""

from __future__ import annotations

AXES = 4
"""Axes at most, beside the two that squares are transposed along."""

TRANSPOSE_FIELDS = ("columns", "apart", "lines", "target_line", "bands", "units", "grain", "tasks")
"""What the kernel calls the first of its numbers, in elements:

A line of the result has ``columns``, ``apart`` in the source, where ``lines`` of them lie side by
side if that is not 1; in the result they are ``target_line`` apart. A unit is one of ``bands`` of
``TOGETHER`` lines; ``grain`` of ``units`` are one of ``tasks``. Then come lengths of the outer
axes, strides in the source, and strides in the result.
"""

TOGETHER = 32
"""Lines of a unit: a line of the source's cache lines, if they begin anywhere in one, is read by
few units."""
