"""The micro-kernel of convolutions: a matrix product whose rows of B lie at listed places.

A row of B is what one tap of one input channel sees. Where every window starts one element after
the one before, taps are the same memory read from different places, and nothing is unfolded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from numba.extending import intrinsic

from tenonnx_cpu.jit.code.cpu import cpu
from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.lanes import KIND, LANES, clipped, lanes_below, read, write
from tenonnx_cpu.jit.vectors.shared import Shared, one_of
from tenonnx_cpu.jit.vectors.vector import F32, I64, Builder, Value
from tenonnx_cpu.matmul.kernels.tile import ROW_GROUP, ROWS, VECTORS

DOTS = LANES // 4
"""Columns at most that are better multiplied along the depth than side by side in a vector."""
DOT_ROWS = 7 if cpu().registers == 32 else 4


@intrinsic
def multiply_taps(
    typing_context: Any,
    vectors: Any,
    rows: Any,
    a: Any,
    a_row: Any,
    b: Any,
    offsets: Any,
    depth: Any,
    c: Any,
    c_row: Any,
    y: Any,
    y_row: Any,
    residual: Any,
    residual_row: Any,
    scale: Any,
    shift: Any,
    ahead: Any,
    ahead_row: Any,
    columns: Any,
    low: Any,
    high: Any,
) -> Any:
    """Computes ``Y = clip((A @ B + C) * scale + shift + residual, low, high)`` for a tile.

    All elements of the tile are read and computed; Y may be C. What is not wanted is a line of
    zeros or ones that is 0 bytes from the next.

    Args:
        vectors: Of a row: as many as ``COLUMNS`` take, or half as many.
        rows: 1 to ``ROWS``.
        a: Address of A's first element; its columns are adjacent.
        a_row: Bytes from row to row of A.
        b: An address.
        offsets: Address of an int64 for each row of B: bytes from ``b`` to its first element.
        depth: Columns of A, rows of B; at least 1.
        c: Address of C, and bytes from row to row.
        c_row: Likewise.
        y: Address of Y, and bytes from row to row.
        y_row: Likewise.
        residual: Address of the residual, and bytes from row to row.
        residual_row: Likewise.
        scale: Address of a factor per row.
        shift: Address of a summand per row.
        ahead: Address of rows that will be read next, and bytes from row to row: memory is told.
        ahead_row: Likewise.
        columns: How many of a row of Y are written, and of the residual read; any more are all.
        low: The least result; NaN stays NaN.
        high: The greatest result.
    """
    return one_of(TAPS)


def _tile(rows: int, vectors: int) -> Callable[[Builder, Sequence[Value]], None]:
    kind = v.vector(F32, LANES)
    cells = [(row, column) for row in range(rows) for column in range(vectors)]
    groups = range(0, rows, ROW_GROUP)

    def body(b: Builder, arguments: Sequence[Value]) -> None:
        a, a_row, bp, offsets, depth = arguments[:5]
        ahead, ahead_row = arguments[13:15]
        within = [I64(0), a_row, b.add(a_row, a_row)]
        starts = [b.add(a, b.mul(a_row, I64(group))) for group in groups]

        def step(index: Value, carried: list[Value]) -> list[Value]:
            pointers, sums = carried[: len(groups)], carried[len(groups) :]
            place = v.load(b, I64, b.add(offsets, b.mul(index, I64(8))), 8)
            line = b.add(bp, place)
            tell_ahead(b, index, ahead, ahead_row)
            right = [v.load(b, kind, b.add(line, I64(4 * LANES * n)), 4) for n in range(vectors)]
            left = []
            for row in range(rows):
                address = b.add(pointers[row // ROW_GROUP], within[row % ROW_GROUP])
                left.append(v.splat(b, v.load(b, F32, address, 4), LANES))
            products = [
                v.fma(b, left[row], right[column], sums[cell])
                for cell, (row, column) in enumerate(cells)
            ]
            return [*(b.add(p, I64(4)) for p in pointers), *products]

        zeros = [v.constant(kind, 0.0)] * len(cells)
        sums = v.loop(b, depth, [*starts, *zeros], step)[len(groups) :]
        _finish(b, dict(zip(cells, sums, strict=True)), arguments)

    return body


def _finish(b: Builder, sums: dict[tuple[int, int], Value], arguments: Sequence[Value]) -> None:
    columns = arguments[15]
    every = I64(LANES * (1 + max(column for _, column in sums)))
    with b.if_else(b.icmp_signed(">=", columns, every), likely=True) as (whole, part):
        with whole:
            for place, value in sums.items():
                _finish_vector(b, *place, value, arguments, None)
        with part:
            for (row, column), value in sums.items():
                mask = lanes_below(b, b.sub(columns, I64(LANES * column)))
                _finish_vector(b, row, column, value, arguments, mask)


def _finish_vector(
    b: Builder, row: int, column: int, value: Value, arguments: Sequence[Value], mask: Value | None
) -> None:
    c, c_row, y, y_row, residual, residual_row, scale, shift = arguments[5:13]
    low, high = (v.splat(b, x, LANES) for x in arguments[16:])
    before, other, target = (
        b.add(b.add(start, b.mul(apart, I64(row))), I64(4 * LANES * column))
        for start, apart in ((c, c_row), (residual, residual_row), (y, y_row))
    )
    factor, summand = (
        v.splat(b, v.load(b, F32, b.add(numbers, I64(4 * row)), 4), LANES)
        for numbers in (scale, shift)
    )
    x = b.fadd(value, v.load(b, KIND, before, 4))
    x = b.fadd(v.fma(b, x, factor, summand), read(b, other, mask))
    write(b, clipped(b, x, low, high), target, mask)


TAPS = {
    (vectors, rows): Shared(
        __file__, f"tenonnx_taps_{vectors}_{rows}", [*[I64] * 16, F32, F32], _tile(rows, vectors)
    )
    for vectors in (VECTORS // 2, VECTORS)
    for rows in range(1, ROWS + 1)
}


@intrinsic
def multiply_dots(
    typing_context: Any,
    rows: Any,
    columns: Any,
    a: Any,
    a_row: Any,
    b: Any,
    b_column: Any,
    depth: Any,
    c: Any,
    c_row: Any,
    y: Any,
    y_row: Any,
    residual: Any,
    residual_row: Any,
    scale: Any,
    shift: Any,
    low: Any,
    high: Any,
) -> Any:
    """Computes what ``multiply_taps`` does for a few columns, vectorized along the depth.

    Args:
        rows: 1 to ``DOT_ROWS``.
        columns: 1 to ``DOTS``.
        a: Address of A's first element; its columns are adjacent.
        a_row: Bytes from row to row of A.
        b: Address of B, whose rows are adjacent; whole vectors are read.
        b_column: Bytes from column to column of B.
        depth: Columns of A, rows of B; at least 1.
        c: See ``multiply_taps``, as for the rest.
        c_row: Likewise.
        y: Likewise.
        y_row: Likewise.
        residual: Likewise.
        residual_row: Likewise.
        scale: Likewise.
        shift: Likewise.
        low: Likewise.
        high: Likewise.
    """
    return one_of(DOT_TILES)


def _dots(rows: int, columns: int) -> Callable[[Builder, Sequence[Value]], None]:
    cells = [(row, column) for row in range(rows) for column in range(columns)]

    def body(b: Builder, arguments: Sequence[Value]) -> None:
        a, a_row, bp, b_column, depth, c, c_row, y, y_row, residual, residual_row = arguments[:11]
        scale, shift, low, high = arguments[11:]
        lines = [b.add(a, b.mul(a_row, I64(row))) for row in range(rows)]
        bars = [b.add(bp, b.mul(b_column, I64(column))) for column in range(columns)]

        beyond = b.mul(a_row, I64(rows))

        def add(offset: Value, mask: Value | None, sums: Sequence[Value]) -> list[Value]:
            right = [read(b, b.add(bar, offset), mask) for bar in bars]
            left = [read(b, b.add(line, offset), mask) for line in lines]
            for line in lines:
                v.prefetch(b, b.add(b.add(line, offset), beyond))
            return [
                v.fma(b, left[row], right[column], sums[cell])
                for cell, (row, column) in enumerate(cells)
            ]

        whole = b.sdiv(depth, I64(LANES))
        zeros = [v.constant(v.vector(F32, LANES), 0.0)] * len(cells)
        sums = v.loop(b, whole, zeros, lambda n, s: add(b.mul(n, I64(4 * LANES)), None, s))
        done = b.mul(whole, I64(LANES))
        mask = lanes_below(b, b.sub(depth, done))
        sums = add(b.mul(done, I64(4)), mask, sums)
        for (row, column), value in zip(cells, sums, strict=True):
            before, other, target = (
                b.add(b.add(start, b.mul(apart, I64(row))), I64(4 * column))
                for start, apart in ((c, c_row), (residual, residual_row), (y, y_row))
            )
            factor, summand = (
                v.load(b, F32, b.add(numbers, I64(4 * row)), 4) for numbers in (scale, shift)
            )
            x = b.fadd(v.total(b, value), v.load(b, F32, before, 4))
            x = b.fadd(v.fma(b, x, factor, summand), v.load(b, F32, other, 4))
            v.store(b, clipped(b, x, low, high), target, 4)

    return body


DOT_TILES = {
    (rows, columns): Shared(
        __file__, f"tenonnx_dots_{rows}_{columns}", [*[I64] * 13, F32, F32], _dots(rows, columns)
    )
    for rows in range(1, DOT_ROWS + 1)
    for columns in range(1, DOTS + 1)
}


def tell_ahead(b: Builder, index: Value, rows: Value, apart: Value) -> None:
    """Has a line of the cache brought to its second level: of rows, 1 KiB of each, line by line.

    Args:
        b: Writes it.
        index: Which line.
        rows: Address of the first row; no address is wrong.
        apart: Bytes from row to row.
    """
    row = b.mul(b.lshr(index, I64(4)), apart)
    address = b.add(rows, b.add(row, b.shl(b.and_(index, I64(15)), I64(6))))
    v.prefetch(b, address)
