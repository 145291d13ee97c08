"""The micro-kernel of convolutions: a matrix product whose rows of B lie at listed places.

A row of B is what one tap of one input channel sees. Where every window starts one element after
the one before, taps are the same memory read from different places, and nothing is unfolded.
"""

from __future__ import annotations

from collections.abc import Sequence

from tenonnx_cpu.conv.kernels import RUN
from tenonnx_cpu.jit.code.cpu import cpu
from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.lanes import (
    KIND,
    LANES,
    clipped,
    for_columns,
    lanes_below,
    read,
    write,
)
from tenonnx_cpu.jit.vectors.shared import shared
from tenonnx_cpu.jit.vectors.tiles import Rows, add_products, addresses, number, side_by_side
from tenonnx_cpu.jit.vectors.vector import F32, I64, Builder, Value
from tenonnx_cpu.matmul.kernels.tile import BY_PANELS, COLUMNS, ROWS, VECTORS

# Columns at most that are better multiplied along the depth than side by side in a vector.
MAX_DOT_COLUMNS = LANES // 4
DOT_ROWS = 7 if cpu().registers == 32 else 4

# Forms of a tile: B lies at the places listed; so it does, and is copied; or it is a copy, and
# another panel at the places listed is brought along at a pace; or runs of it lie at every third of
# these places, where each row begins a float after the one before: fewer instructions find them.
LISTED, KEEP, PACED, RUNS = 0, 1, 2, 3

FORMS = [(VECTORS // 2, LISTED), (VECTORS, LISTED)] + [
    (VECTORS, KEEP),
    (VECTORS, PACED),
    (VECTORS // 2, RUNS),
    (VECTORS, RUNS),
] * BY_PANELS


@shared(
    "tenonnx_taps",
    [(vectors, rows, form) for vectors, form in FORMS for rows in range(1, ROWS + 1)],
    last=(F32, F32),
)
def multiply_taps(
    b: Builder, vectors: int, rows: int, form: int, /, a: Value, a_row: Value, right: Value,
    offsets: Value, depth: Value, c: Value, c_row: Value, y: Value, y_row: Value, residual: Value,
    residual_row: Value, scale: Value, shift: Value, ahead: Value, ahead_row: Value,
    columns: Value, low: Value, high: Value,
) -> None:  # fmt: skip
    """Compute ``Y = clip((A @ B + C) * scale + shift + residual, low, high)`` for a tile.

    All elements of the tile are read and computed; Y may be C. What is not wanted is a line of
    zeros or ones that is 0 bytes from the next.

    Args:
        a: Address of A's first element, whose columns are adjacent; ``a_row`` is bytes from row to
            row, as ``c_row``, ``y_row`` and ``residual_row`` are.
        right: An address.
        offsets: Address of an int64 for each row of B: bytes from ``right`` to its first element.
        depth: Columns of A, rows of B; at least 1.
        c: Address of C.
        y: Address of Y.
        residual: Address of the residual.
        scale: Address of a factor per row.
        shift: Address of a summand per row.
        ahead: Address of rows that will be read next, ``ahead_row`` bytes apart: memory is told.
            ``KEEP`` copies B there, a panel's row after another. The rows that ``PACED`` tells
            are at the offsets, each for as many steps as ``ahead_row`` bits count. ``RUNS`` leaves
            out ``ahead_row`` bytes of rows of A after as many runs as ``ahead`` is.
        columns: How many of a row of Y are written, and of the residual read; any more are all.
        low: The least result; NaN stays NaN.
        high: The greatest result.
    """
    left = Rows(b, a, a_row, rows)
    count = len(left.pointers)

    def run(_: Value, carried: list[Value]) -> list[Value]:
        listed, pointers, sums = carried[0], carried[1 : count + 1], carried[count + 1 :]
        place = b.add(right, v.load(b, I64, listed, 8))
        for n in range(RUN):
            xs = side_by_side(b, KIND, b.add(place, I64(4 * n)), vectors)
            ys = (number(b, address) for address in left.at(b, pointers, I64(4 * n)))
            sums = add_products(b, v.fma, ys, xs, sums)
        moved = [b.add(pointer, I64(4 * RUN)) for pointer in pointers]
        return [b.add(listed, I64(8 * RUN)), *moved, *sums]

    def runs(_: Value, carried: list[Value]) -> list[Value]:
        listed, *others = v.loop(b, ahead, carried, run)
        return [listed, *(b.add(each, ahead_row) for each in others[:count]), *others[count:]]

    def step(index: Value, carried: list[Value]) -> list[Value]:
        pointers, sums = carried[:count], carried[count:]
        number_of = b.lshr(index, ahead_row) if form == PACED else index
        place = v.load(b, I64, b.add(offsets, b.mul(number_of, I64(8))), 8)
        panel_row = b.mul(index, I64(4 * COLUMNS))
        xs = side_by_side(b, KIND, b.add(right, panel_row if form == PACED else place), vectors)
        if form == PACED:
            v.prefetch(b, b.add(ahead, place))
        elif form == KEEP:
            for n, x in enumerate(xs):
                v.store(b, x, b.add(b.add(ahead, panel_row), I64(4 * LANES * n)), 4)
        else:
            tell_ahead(b, index, ahead, ahead_row)
        ys = [number(b, address) for address in left.at(b, pointers)]
        products = add_products(b, v.fma, ys, xs, sums)
        return [*(b.add(pointer, I64(4)) for pointer in pointers), *products]

    # A row may be in a page of its own. The line that it begins in came with the columns before.
    for start, apart in ((y, y_row), (residual, residual_row)) if form in (KEEP, PACED) else ():
        for line in addresses(b, start, apart, range(rows)):
            v.prefetch(b, b.add(line, I64(4 * LANES * vectors - 4)), 1)
    zeros = [v.constant(KIND, 0.0)] * (rows * vectors)
    if form == RUNS:
        times = b.sdiv(depth, b.mul(ahead, I64(RUN)))
        sums = v.loop(b, times, [offsets, *left.pointers, *zeros], runs)[count + 1 :]
    else:
        sums = v.loop(b, depth, [*left.pointers, *zeros], step)[count:]
    lows, highs = v.splat(b, low, LANES), v.splat(b, high, LANES)

    def finish(masks: Sequence[Value | None]) -> None:
        for cell, value in enumerate(sums):
            row, column = divmod(cell, vectors)
            before, other, target = _places(b, row, 4 * LANES * column, places)
            factor, summand = (number(b, b.add(each, I64(4 * row))) for each in (scale, shift))
            x = b.fadd(value, v.load(b, KIND, before, 4))
            x = b.fadd(v.fma(b, x, factor, summand), read(b, other, masks[column]))
            write(b, clipped(b, x, lows, highs), target, masks[column])

    places = ((c, c_row), (residual, residual_row), (y, y_row))
    for_columns(b, columns, vectors, finish)


def _places(
    b: Builder, row: int, offset: int, starts: Sequence[tuple[Value, Value]]
) -> list[Value]:
    """Return the addresses of a row's bytes from ``offset`` on in some matrices."""
    return [b.add(b.add(start, b.mul(apart, I64(row))), I64(offset)) for start, apart in starts]


@shared(
    "tenonnx_dots",
    [
        (rows, columns)
        for rows in range(1, DOT_ROWS + 1)
        for columns in range(1, MAX_DOT_COLUMNS + 1)
    ],
    last=(F32, F32),
)
def multiply_dots(
    b: Builder, rows: int, columns: int, /, a: Value, a_row: Value, right: Value, b_column: Value,
    depth: Value, c: Value, c_row: Value, y: Value, y_row: Value, residual: Value,
    residual_row: Value, scale: Value, shift: Value, low: Value, high: Value,
) -> None:  # fmt: skip
    """Compute what ``multiply_taps`` does for a few columns, vectorized along the depth.

    The address ``right`` is that of B, whose rows are adjacent, ``b_column`` bytes apart; whole
    vectors are read.
    """
    lines = addresses(b, a, a_row, range(rows))
    bars = addresses(b, right, b_column, range(columns))
    beyond = b.mul(a_row, I64(rows))

    def add(offset: Value, mask: Value | None, sums: Sequence[Value]) -> list[Value]:
        xs = [read(b, b.add(bar, offset), mask) for bar in bars]
        ys = [read(b, b.add(line, offset), mask) for line in lines]
        for line in lines:
            v.prefetch(b, b.add(b.add(line, offset), beyond))
        return add_products(b, v.fma, ys, xs, sums)

    whole = b.sdiv(depth, I64(LANES))
    zeros = [v.constant(KIND, 0.0)] * (rows * columns)
    sums = v.loop(b, whole, zeros, lambda n, s: add(b.mul(n, I64(4 * LANES)), None, s))
    done = b.mul(whole, I64(LANES))
    mask = lanes_below(b, b.sub(depth, done))
    places = ((c, c_row), (residual, residual_row), (y, y_row))
    for cell, value in enumerate(add(b.mul(done, I64(4)), mask, sums)):
        row, column = divmod(cell, columns)
        before, other, target = _places(b, row, 4 * column, places)
        factor, summand = (v.load(b, F32, b.add(each, I64(4 * row)), 4) for each in (scale, shift))
        x = b.fadd(v.total(b, value), v.load(b, F32, before, 4))
        x = b.fadd(v.fma(b, x, factor, summand), v.load(b, F32, other, 4))
        v.store(b, clipped(b, x, low, high), target, 4)


def tell_ahead(b: Builder, index: Value, rows: Value, apart: Value) -> None:
    """Have a line of the cache brought to its second level: of rows, 1 KiB of each, line by line.

    Args:
        b: Writes it.
        index: Which line.
        rows: Address of the first row; no address is wrong.
        apart: Bytes from row to row.
    """
    row = b.mul(b.lshr(index, I64(4)), apart)
    address = b.add(rows, b.add(row, b.shl(b.and_(index, I64(15)), I64(6))))
    v.prefetch(b, address)
