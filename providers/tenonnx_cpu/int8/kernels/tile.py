"""The micro-kernel of products of bytes: sums in int32, finished in registers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from numba.extending import intrinsic

from tenonnx_cpu.int8.kernels.finishing import finish_sums, own_numbers
from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.dot8 import BYTES, SUMS, dot
from tenonnx_cpu.jit.vectors.lanes import LANES
from tenonnx_cpu.jit.vectors.shared import Shared, one_of
from tenonnx_cpu.jit.vectors.vector import F32, I32, I64, Builder, Value
from tenonnx_cpu.matmul.kernels.tile import COLUMNS, ROW_GROUP, ROWS, VECTORS


def _tile(rows: int, vectors: int) -> Callable[[Builder, Sequence[Value]], None]:
    cells = [(row, n) for row in range(rows) for n in range(vectors)]

    def body(b: Builder, arguments: Sequence[Value]) -> None:
        a, a_row, offsets, panel, steps, totals, numbers = arguments[:7]
        within = [I64(0), a_row, b.add(a_row, a_row)]
        starts = [b.add(a, b.mul(a_row, I64(row))) for row in range(0, rows, ROW_GROUP)]
        first = []
        for row, n in cells:
            total = v.load(b, I32, b.add(totals, I64(4 * row)), 4)
            taken = b.mul(own_numbers(b, numbers, 1, n, SUMS), v.splat(b, total, LANES))
            first.append(b.sub(own_numbers(b, numbers, 0, n, SUMS), taken))

        def step(index: Value, carried: list[Value]) -> list[Value]:
            line, sums = carried[0], carried[1:]
            place = v.load(b, I64, b.add(offsets, b.mul(index, I64(8))), 8)
            right = [v.load(b, BYTES, b.add(line, I64(4 * LANES * n)), 4) for n in range(vectors)]
            result = []
            for row in range(rows):
                start = b.add(starts[row // ROW_GROUP], place)
                word = v.load(b, I32, b.add(start, within[row % ROW_GROUP]))
                left = b.bitcast(v.splat(b, word, LANES), BYTES)
                here = sums[row * vectors : (row + 1) * vectors]
                result += [dot(b, total, left, x) for total, x in zip(here, right, strict=True)]
            return [b.add(line, I64(4 * COLUMNS)), *result]

        sums = v.loop(b, steps, [panel, *first], step)[1:]
        finish_sums(b, dict(zip(cells, sums, strict=True)), numbers, arguments[7:])

    return body


TILES = {
    (vectors, rows): Shared(
        __file__,
        f"tenonnx_byte_tile_{vectors}_{rows}",
        [*[I64] * 11, F32, F32, I32],
        _tile(rows, vectors),
    )
    for vectors in range(1, VECTORS + 1)
    for rows in range(1, ROWS + 1)
}


@intrinsic
def multiply_bytes(
    typing_context: Any, vectors: Any, rows: Any, a: Any, a_row: Any, offsets: Any, panel: Any,
    steps: Any, totals: Any, numbers: Any, c: Any, c_row: Any, columns: Any, form: Any, low: Any,
    high: Any, zero: Any,
) -> Any:  # fmt: skip
    """Computes a tile of ``A @ B`` of some rows and vectors of columns, and what becomes of it.

    The sum for row i and column j begins with ``numbers[0][j] - totals[i] * numbers[1][j]``; a
    result is ``sum * numbers[2][j] + numbers[3][j]``, each step rounded.

    Args:
        vectors: Of a row of the result: 1 to ``VECTORS``.
        rows: 1 to ``ROWS``.
        a: Address that the offsets count from in A's first row, uint8, and bytes from row to row.
        a_row: Likewise.
        offsets: Address of an int64 for every four columns of A: bytes to them.
        panel: Address of a panel of B, int8: for every four rows four of each column.
        steps: How many fours.
        totals: Address of an int32 per row.
        numbers: Address of what ``pack_numbers`` writes.
        c: Address of the result, and bytes from row to row.
        c_row: Likewise.
        columns: How many are written; any more are all.
        form: ``SUMMED``, ``REAL`` or ``ROUNDED``.
        low: The least result but for the zero point.
        high: The greatest.
        zero: The zero point.
    """
    return one_of(TILES)
