"""Elements of the result as products of two vectors, for a few rows by a B of adjacent rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from numba.extending import intrinsic

from tenonnx_cpu.jit.compiling import helper
from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.lanes import LANES
from tenonnx_cpu.jit.vectors.memory import load_float, store_float
from tenonnx_cpu.jit.vectors.shared import Shared, one_of, under
from tenonnx_cpu.jit.vectors.vector import F32, I64, Builder, Value
from tenonnx_cpu.matmul.kernels.pack import WIDTH, make_load, widened

LINES = {1: (1, 4, 8), 2: (1, 4, 8), 3: (1, 4), 4: (1, 4)}
"""Columns of B that can be taken at a time, by rows of A: their sums stay in registers."""

ROWS = max(LINES)


def _dot(kind: str, rows: int, lines: int) -> Callable[[Builder, Sequence[Value]], None]:
    wide = v.vector(F32, LANES)

    def body(b: Builder, arguments: Sequence[Value]) -> None:
        a, a_row, right, b_column, c, c_row, vectors = arguments
        lefts = [b.add(a, b.mul(a_row, I64(row))) for row in range(rows)]
        tops = [b.add(right, b.mul(b_column, I64(line))) for line in range(lines)]
        later = [b.add(top, b.mul(b_column, I64(lines))) for top in tops]

        def step(index: Value, sums: list[Value]) -> list[Value]:
            near, far = b.mul(index, I64(WIDTH[kind] * LANES)), b.mul(index, I64(4 * LANES))
            ys = [v.load(b, wide, b.add(left, far), 4) for left in lefts]
            result = []
            for line, top in enumerate(tops):
                x = widened(b, kind, b.add(top, near), LANES)
                own = sums[line * rows : (line + 1) * rows]
                result += [v.fma(b, x, y, z) for y, z in zip(ys, own, strict=True)]
            for line in later if lines > 1 else ():
                v.prefetch(b, b.add(line, near))
            return result

        sums = v.loop(b, vectors, [v.constant(wide, 0.0)] * (rows * lines), step)
        together = min(lines, LANES)
        for line in range(0, lines, together):
            for row in range(rows):
                place = b.add(b.add(c, b.mul(c_row, I64(row))), I64(4 * line))
                own = [sums[(line + n) * rows + row] for n in range(together)]
                v.store(b, v.totals(b, own), place, 4)

    return body


DOT_LINES = {
    (kind, rows, lines): Shared(
        __file__, f"tenonnx_dots_{kind}_{rows}_{lines}", [I64] * 7, _dot(kind, rows, lines)
    )
    for kind in WIDTH
    for rows, choices in LINES.items()
    for lines in choices
}


def make_dot_lines(kind: str) -> Any:
    """Returns ``dots`` for B of a kind of elements."""
    load_one = make_load(kind)
    width = WIDTH[kind]

    @intrinsic
    def dot_lines(
        typing_context: Any, rows: Any, lines: Any, a: Any, a_row: Any,
        b: Any, b_column: Any, c: Any, c_row: Any, vectors: Any,
    ) -> Any:  # fmt: skip
        """Stores the products of whole vectors of A's rows and B's columns."""
        return one_of(under(DOT_LINES, kind))

    @helper
    def dots(
        rows: Any, columns: Any, depth: Any,
        a: Any, a_row: Any, b: Any, b_column: Any, c: Any, c_row: Any,
    ) -> None:  # fmt: skip
        """Computes ``C = A @ B``, where A's rows and B's columns lie in one piece each.

        Args:
            rows: Of A and C.
            columns: Of B and C.
            depth: Columns of A, rows of B.
            a: Address of A, and bytes from row to row.
            a_row: Likewise.
            b: Address of B, and bytes from column to column.
            b_column: Likewise.
            c: Address of C, and bytes from row to row.
            c_row: Likewise.
        """
        vectors = depth // LANES
        most = 8 if rows <= 2 else 4
        column = 0
        while column < columns:
            lines = most if columns - column >= most else 1
            top = b + column * b_column
            for row in range(0, rows, ROWS):
                place = c + row * c_row + 4 * column
                left = a + row * a_row
                count = min(ROWS, rows - row)
                dot_lines(count, lines, left, a_row, top, b_column, place, c_row, vectors)
            for row in range(rows if vectors * LANES < depth else 0):
                for line in range(lines):
                    target = c + row * c_row + 4 * (column + line)
                    total = load_float(target)
                    for k in range(vectors * LANES, depth):
                        x = load_one(top + line * b_column + k * width)
                        total += x * load_float(a + row * a_row + 4 * k)
                    store_float(total, target)
            column += lines

    return dots
