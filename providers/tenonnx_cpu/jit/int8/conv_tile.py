"""The micro-kernel of convolutions of bytes: products of int8 by uint8, summed in int32."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from tenonnx_cpu.jit.code.cpu import cpu
from tenonnx_cpu.jit.conv.tile import tell_ahead
from tenonnx_cpu.jit.int8.conv_rows import between, load_masked
from tenonnx_cpu.jit.products.tile import ROW_GROUP, ROWS, VECTORS
from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.lanes import LANES, clipped
from tenonnx_cpu.jit.vectors.shared import Shared, one_of
from tenonnx_cpu.jit.vectors.vector import F32, I8, I16, I32, I64, Builder, Value

SUMS = v.vector(I32, LANES)
BYTES = v.vector(I8, 4 * LANES)

SUMMED, REAL, ROUNDED = 4, 5, 1
"""What a result is: sums as int32, those multiplied and shifted as float32, or that as bytes."""


class Finish(NamedTuple):
    """What becomes of sums, row by row; see ``multiply_bytes``.

    Attributes:
        extra: Address of an int32 for every row.
        factor: Address of a float32, likewise.
        summand: The same.
        form: ``SUMMED``, ``REAL`` or ``ROUNDED``: what the result is.
        low: The least result but for the zero point.
        high: The greatest.
        zero: The zero point.
    """

    extra: Any
    factor: Any
    summand: Any
    form: Any
    low: Any
    high: Any
    zero: Any


@intrinsic
def multiply_bytes(
    typing_context: Any,
    vectors: Any,
    rows: Any,
    a: Any,
    a_row: Any,
    b: Any,
    fours: Any,
    c: Any,
    c_row: Any,
    y: Any,
    y_row: Any,
    done: Any,
    extra: Any,
    factor: Any,
    summand: Any,
    ahead: Any,
    low: Any,
    high: Any,
    zero: Any,
) -> Any:
    """Computes ``A @ B + C`` for a tile of int32, and rounds it to bytes if it is complete.

    A complete tile becomes ``clip((A @ B + C) * factor + summand, low, high)`` as float32, or as
    bytes, rounded, from ``zero`` on.

    Args:
        vectors: Of a row: as many as ``COLUMNS`` take, or half as many.
        rows: 1 to ``ROWS``.
        a: Address of A, int8, whose columns are adjacent, and bytes from row to row.
        a_row: Likewise.
        b: Address of a panel of uint8, four rows interleaved.
        fours: How many.
        c: Address of C, and bytes from row to row; 0 if it is ``extra``, row by row.
        c_row: Likewise.
        y: Address of the result, and bytes from row to row.
        y_row: Likewise.
        done: What a complete tile becomes, ``REAL`` or ``ROUNDED``; 0 leaves sums.
        extra: Address of an int32 per row.
        factor: Address of a float32 per row.
        summand: Address of a float32 per row.
        ahead: Address of rows like A's that will be read next: memory is told.
        low: The least result but for the zero point.
        high: The greatest.
        zero: The zero point.
    """
    return one_of(TILES)


def _tile(rows: int, vectors: int) -> Callable[[Builder, Sequence[Value]], None]:
    cells = [(row, column) for row in range(rows) for column in range(vectors)]
    groups = range(0, rows, ROW_GROUP)

    def body(b: Builder, arguments: Sequence[Value]) -> None:
        a, a_row, panel, fours = arguments[:4]
        within = [I64(0), a_row, b.add(a_row, a_row)]
        starts = [b.add(a, b.mul(a_row, I64(group))) for group in groups]
        # Shorter rows follow one another: what a tile tells is all of them.
        apart = b.select(b.icmp_signed("<", a_row, I64(1024)), I64(1024), a_row)

        def step(index: Value, carried: list[Value]) -> list[Value]:
            tell_ahead(b, index, arguments[12], apart)
            pointers, line, sums = (
                carried[: len(groups)],
                carried[len(groups)],
                carried[-len(cells) :],
            )
            right = [
                v.load(b, BYTES, b.add(line, I64(4 * LANES * n)), 4 * LANES) for n in range(vectors)
            ]
            dot = dot_product(b, right)
            products = []
            for row in range(rows):
                address = b.add(pointers[row // ROW_GROUP], within[row % ROW_GROUP])
                left = v.splat(b, v.load(b, I32, address), LANES)
                products += dot(left, sums[row * vectors : (row + 1) * vectors])
            return [
                *(b.add(p, I64(4)) for p in pointers),
                b.add(line, I64(4 * LANES * VECTORS)),
                *products,
            ]

        first = _first_sums(b, cells, arguments)
        sums = v.loop(b, fours, [*starts, panel, *first], step)[-len(cells) :]
        with b.if_else(b.icmp_signed("!=", arguments[8], I64(0))) as (done, partial):
            with done:
                _round(b, dict(zip(cells, sums, strict=True)), arguments)
            with partial:
                y, y_row = arguments[6:8]
                for (row, column), value in zip(cells, sums, strict=True):
                    place = b.add(b.add(y, b.mul(y_row, I64(row))), I64(4 * LANES * column))
                    v.store(b, value, place, 4)

    return body


def _first_sums(
    b: Builder, cells: Sequence[tuple[int, int]], arguments: Sequence[Value]
) -> list[Value]:
    """Returns C, or what is added to every row's sums if there is none yet."""
    c, c_row = arguments[4:6]
    extra = arguments[9]
    with b.if_else(b.icmp_signed("==", c, I64(0))) as (without, given):
        with without:
            own = {
                row: v.splat(b, v.load(b, I32, b.add(extra, I64(4 * row)), 4), LANES)
                for row, _ in cells
            }
            start = b.block
        with given:
            before = [
                v.load(b, SUMS, b.add(b.add(c, b.mul(c_row, I64(row))), I64(4 * LANES * n)), 4)
                for row, n in cells
            ]
            resumed = b.block
    sums = []
    for cell, (row, _) in enumerate(cells):
        phi = b.phi(SUMS)
        phi.add_incoming(own[row], start)
        phi.add_incoming(before[cell], resumed)
        sums.append(phi)
    return sums


def _round(b: Builder, sums: dict[tuple[int, int], Value], arguments: Sequence[Value]) -> None:
    y, y_row, _, _, factor, summand = arguments[6:12]
    low, high = (v.splat(b, x, LANES) for x in arguments[13:15])
    zero = v.splat(b, arguments[15], LANES)
    with b.if_else(b.icmp_signed("==", arguments[8], I64(ROUNDED))) as (whole, real):
        for branch, width in ((whole, 1), (real, 4)):
            with branch:
                for (row, column), value in sums.items():
                    scale, shift = (
                        v.splat(b, v.load(b, F32, b.add(numbers, I64(4 * row)), 4), LANES)
                        for numbers in (factor, summand)
                    )
                    x = v.fma(b, b.sitofp(value, v.vector(F32, LANES)), scale, shift)
                    result = (
                        to_bytes(b, x, low, high, zero) if width == 1 else clipped(b, x, low, high)
                    )
                    start = b.add(y, b.mul(y_row, I64(row)))
                    v.store(b, result, b.add(start, I64(width * LANES * column)), width)


@intrinsic
def scaled(typing_context: Any, x: Any, factor: Any, summand: Any) -> Any:
    """Returns ``x * factor + summand``, rounded once, as in tiles."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        x, factor, summand = values
        return v.fma(builder, builder.sitofp(x, F32), factor, summand)

    return types.float32(types.int32, types.float32, types.float32), generate


def to_bytes(b: Builder, x: Value, low: Value, high: Value, zero: Value) -> Value:
    """Returns numbers as bytes: clipped, rounded half to even, moved to the zero point."""
    x = clipped(b, x, low, high)
    if llvm.llvm_version_info[0] >= 20:
        name = f"llvm.lrint.v{LANES}i32.v{LANES}f32"
        function = cgutils.get_or_insert_function(b.module, ir.FunctionType(SUMS, [x.type]), name)
        whole = b.call(function, [x])
    else:
        whole = b.fptosi(v.call(b, "llvm.rint", x.type, x), SUMS)
    return b.trunc(b.add(whole, zero), v.vector(I8, LANES))


TILES = {
    (vectors, rows): Shared(
        __file__,
        f"tenonnx_bytes_{rows}_{vectors}",
        [*[I64] * 13, F32, F32, I32],
        _tile(rows, vectors),
    )
    for vectors in (VECTORS // 2, VECTORS)
    for rows in range(1, ROWS + 1)
}

DOTS = LANES // 4 if cpu().lanes == 16 and cpu().vnni else 0
"""Columns at most that are better multiplied along the depth than side by side in a vector."""
DOT_ROWS = 7


@intrinsic
def multiply_byte_columns(
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
    extra: Any,
    first: Any,
) -> Any:
    """Computes ``C += A @ B`` for a few columns of uint8, or from ``extra`` on, row by row.

    Args:
        rows: 1 to ``DOT_ROWS``.
        columns: 1 to ``DOTS``.
        a: Address of A, int8, whose columns are adjacent, and bytes from row to row.
        a_row: Likewise.
        b: Address of B, whose rows are adjacent; whole vectors are read.
        b_column: Bytes from column to column of B.
        depth: Columns of A, rows of B.
        c: Address of C, int32, whose columns are adjacent, and bytes from row to row.
        c_row: Likewise.
        extra: Address of an int32 per row.
        first: Whether C is ``extra`` so far.
    """
    return one_of(COLUMN_TILES)


def _columns(rows: int, columns: int) -> Callable[[Builder, Sequence[Value]], None]:
    cells = [(row, column) for row in range(rows) for column in range(columns)]

    def body(b: Builder, arguments: Sequence[Value]) -> None:
        a, a_row, bp, b_column, depth, c, c_row, extra, first = arguments
        lines = [b.add(a, b.mul(a_row, I64(row))) for row in range(rows)]
        bars = [b.add(bp, b.mul(b_column, I64(column))) for column in range(columns)]

        def add(offset: Value, mask: Value | None, sums: Sequence[Value]) -> list[Value]:
            dot = dot_product(b, [v.load(b, BYTES, b.add(bar, offset)) for bar in bars])
            made: list[Value] = []
            for row, line in enumerate(lines):
                place = b.add(line, offset)
                left = v.load(b, BYTES, place) if mask is None else load_masked(b, place, mask)
                made += dot(left, sums[row * columns : (row + 1) * columns])
            return made

        whole = b.sdiv(depth, I64(4 * LANES))
        zeros = [v.constant(SUMS, 0)] * len(cells)
        sums = v.loop(b, whole, zeros, lambda n, s: add(b.mul(n, I64(4 * LANES)), None, s))
        done = b.mul(whole, I64(4 * LANES))
        sums = add(done, between(b, I64(0), b.sub(depth, done)), sums)
        fresh = b.icmp_signed("!=", first, I64(0))
        for (row, column), value in zip(cells, sums, strict=True):
            place = b.add(b.add(c, b.mul(c_row, I64(row))), I64(4 * column))
            own = v.load(b, I32, b.add(extra, I64(4 * row)), 4)
            before = b.select(fresh, own, v.load(b, I32, place, 4))
            total = _total(b, value)
            v.store(b, b.add(before, total), place, 4)

    return body


COLUMN_TILES = {
    (rows, columns): Shared(
        __file__, f"tenonnx_byte_columns_{rows}_{columns}", [I64] * 9, _columns(rows, columns)
    )
    for rows in range(1, DOT_ROWS + 1)
    for columns in range(1, max(1, DOTS) + 1)
}


def _total(b: Builder, x: Value) -> Value:
    """Returns the sum of the lanes."""
    name = f"llvm.vector.reduce.add.v{LANES}i32"
    return b.call(cgutils.get_or_insert_function(b.module, ir.FunctionType(I32, [SUMS]), name), [x])


def dot_product(
    b: Builder, right: Sequence[Value]
) -> Callable[[Value, Sequence[Value]], list[Value]]:
    """Returns what adds products of four int8, in every lane, by vectors of uint8 to sums."""
    if name := {"avx512": "avx512.vpdpbusd.512", "avx": "avx512.vpdpbusd.256"}.get(cpu().vnni):
        # LLVM 22 has bytes where older ones have int32 of the same bits.
        taken = BYTES if llvm.llvm_version_info[0] >= 22 else SUMS
        kind = ir.FunctionType(SUMS, [SUMS, taken, taken])
        function = cgutils.get_or_insert_function(b.module, kind, f"llvm.x86.{name}")
        vectors = [b.bitcast(x, taken) for x in right]

        def instruction(left: Value, sums: Sequence[Value]) -> list[Value]:
            row = b.bitcast(left, taken)
            return [b.call(function, [s, x, row]) for s, x in zip(sums, vectors, strict=True)]

        return instruction
    halves = v.vector(I16, 2 * LANES)
    eight = v.constant(halves, 8)
    words = [b.bitcast(x, halves) for x in right]
    split = [(b.and_(x, v.constant(halves, 255)), b.lshr(x, eight)) for x in words]

    def widened(left: Value, sums: Sequence[Value]) -> list[Value]:
        row = b.bitcast(left, halves)
        even, odd = b.ashr(b.shl(row, eight), eight), b.ashr(row, eight)
        return [
            b.add(b.add(s, _add_pairs(b, x, even)), _add_pairs(b, y, odd))
            for s, (x, y) in zip(sums, split, strict=True)
        ]

    return widened


def _add_pairs(b: Builder, x: Value, y: Value) -> Value:
    """Returns the sums of adjacent products of int16; one instruction where there is one."""
    wide = v.vector(I32, 2 * LANES)
    products = b.mul(b.sext(x, wide), b.sext(y, wide))
    even, odd = (v.shuffle(b, products, products, range(n, 2 * LANES, 2)) for n in (0, 1))
    return b.add(even, odd)
