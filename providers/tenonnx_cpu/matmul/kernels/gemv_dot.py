"""Elements of the result as products of two vectors, for a few rows by a B of adjacent rows."""

from __future__ import annotations

from typing import Any

from tenonnx_cpu.jit.code.cpu import cpu
from tenonnx_cpu.jit.compiling import helper
from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.lanes import KIND, LANES
from tenonnx_cpu.jit.vectors.memory import load_float, store_float
from tenonnx_cpu.jit.vectors.shared import shared, under
from tenonnx_cpu.jit.vectors.tiles import add_products, addresses
from tenonnx_cpu.jit.vectors.vector import I64, Builder, Value
from tenonnx_cpu.matmul.kernels.block import split
from tenonnx_cpu.matmul.kernels.pack import WIDTH, make_load, widened

MANY = cpu().registers == 32

# Columns of B that can be taken at a time, by rows of A: their sums stay in registers.
COLUMNS_BY_ROWS = {
    1: (1, 4, 8),
    2: (1, 4, 8) if MANY else (1, 4),
    3: (1, 4),
    **({4: (1, 4)} if MANY else {}),
}

MAX_DOT_ROWS = max(COLUMNS_BY_ROWS)

# Rows up to which eight columns are multiplied at a time.
MAX_EIGHT_COLUMN_ROWS = 2 if MANY else 1


@shared(
    "tenonnx_dots",
    [
        (kind, rows, lines)
        for kind in WIDTH
        for rows, choices in COLUMNS_BY_ROWS.items()
        for lines in choices
    ],
)
def dot_lines(
    b: Builder, kind: str, rows: int, columns: int, /, a: Value, a_row: Value, right: Value,
    b_column: Value, c: Value, c_row: Value, vectors: Value,
) -> None:  # fmt: skip
    """Store the products of whole vectors of A's rows and B's columns."""
    lefts = addresses(b, a, a_row, range(rows))
    tops = addresses(b, right, b_column, range(columns))
    later = [b.add(top, b.mul(b_column, I64(columns))) for top in tops]

    def step(index: Value, sums: list[Value]) -> list[Value]:
        near, far = b.mul(index, I64(WIDTH[kind] * LANES)), b.mul(index, I64(4 * LANES))
        ys = [v.load(b, KIND, b.add(left, far), 4) for left in lefts]
        xs = (widened(b, kind, b.add(top, near), LANES) for top in tops)
        result = add_products(b, v.fma, xs, ys, sums)
        for line in later if columns > 1 else ():
            v.prefetch(b, b.add(line, near))
        return result

    sums = v.loop(b, vectors, [v.constant(KIND, 0.0)] * (rows * columns), step)
    together = min(columns, LANES)
    for column in range(0, columns, together):
        for row, start in enumerate(addresses(b, c, c_row, range(rows))):
            own = [sums[(column + n) * rows + row] for n in range(together)]
            v.store(b, v.totals(b, own), b.add(start, I64(4 * column)), 4)


def make_dot_lines(kind: str) -> Any:
    """Return ``dots`` for B of a kind of elements."""
    load_one, products = make_load(kind), under(dot_lines, kind)
    width = WIDTH[kind]

    @helper
    def dots(
        rows: Any, columns: Any, depth: Any,
        a: Any, a_row: Any, b: Any, b_column: Any, c: Any, c_row: Any,
    ) -> None:  # fmt: skip
        """Compute ``C = A @ B``, where A's rows and B's columns lie in one piece each.

        Args:
            rows: Of A and C.
            columns: Of B and C.
            depth: Columns of A, rows of B.
            a: Address of A.
            a_row: Bytes from row to row of A.
            b: Address of B.
            b_column: Bytes from column to column of B.
            c: Address of C.
            c_row: Bytes from row to row of C.
        """
        vectors = depth // LANES
        most = 8 if rows <= MAX_EIGHT_COLUMN_ROWS else 4
        high = split(rows, MAX_DOT_ROWS, 1)
        column = 0
        while column < columns:
            lines = most if columns - column >= most else 1
            top = b + column * b_column
            for row in range(0, rows, high):
                place = c + row * c_row + 4 * column
                left = a + row * a_row
                count = min(high, rows - row)
                products(count, lines, left, a_row, top, b_column, place, c_row, vectors)
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
