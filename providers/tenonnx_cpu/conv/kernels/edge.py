"""The last few columns of a strip, multiplied along the depth."""

from __future__ import annotations

from typing import Any

from tenonnx_cpu.conv.kernels.result import right_of
from tenonnx_cpu.conv.kernels.tile import DOT_ROWS, multiply_dots
from tenonnx_cpu.jit.compiling import helper


@helper
def multiply_edge(
    rows: Any, columns: Any, a: Any, edge: Any, depth: Any, target: Any, column: Any
) -> None:
    """Multiply rows of A by the last few columns, from ``column`` on, which ``edge`` has."""
    before, added = right_of(target.before, column), right_of(target.added, column)
    made = right_of(target.rows, column)
    for i in range(0, rows, DOT_ROWS):
        multiply_dots(
            min(DOT_ROWS, rows - i), columns, a.start + i * a.apart, a.apart,
            edge.start, edge.apart, depth,
            before + i * target.before.apart, target.before.apart,
            made + i * target.rows.apart, target.rows.apart,
            added + i * target.added.apart, target.added.apart,
            target.scale + 4 * i, target.shift + 4 * i, target.low, target.high,
        )  # fmt: skip
