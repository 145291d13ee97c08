"""Products of a few rows: B is read once, as fast as memory gives it, and never packed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic

from tenonnx_cpu.jit import vector as v
from tenonnx_cpu.jit.compiling import f32, helper, kernel, u16
from tenonnx_cpu.jit.epilogue import finish_rows
from tenonnx_cpu.jit.gemm import signature
from tenonnx_cpu.jit.memory import load_float, store_float
from tenonnx_cpu.jit.pack import WIDTH, make_load, widened
from tenonnx_cpu.jit.pool import parallel
from tenonnx_cpu.jit.tile import LANES
from tenonnx_cpu.jit.vector import F32, I64, Builder, Value

ROWS = 4
"""Rows of A that are multiplied at a time."""

LINES = {1: (1, 4, 8), 2: (1, 4, 8), 3: (1, 4), 4: (1, 4)}
"""Rows of B that can be multiplied at a time, by rows of A: what they add to fits the registers."""

SLAB = 2048
"""Columns of one task at most: so much of a few rows of the result fits the first-level cache."""

Emit = Callable[[int, int], Callable[[Builder, Any], None]]


def _variants(name: str, arguments: int, emit: Emit) -> Any:
    """Returns what ``f(rows, lines, *arguments)`` is: a function for each pair in ``LINES``."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        done = builder.append_basic_block("done")
        key = builder.add(builder.mul(values[0], I64(16)), values[1])
        choice = builder.switch(key, done)
        for rows, choices in LINES.items():
            for lines in choices:
                made = v.function(
                    builder, f"{name}_{rows}_{lines}", [I64] * arguments, emit(rows, lines)
                )
                block = builder.append_basic_block(f"case_{rows}_{lines}")
                choice.add_case(I64(16 * rows + lines), block)
                builder.position_at_end(block)
                builder.call(made, values[2:])
                builder.branch(done)
        builder.position_at_end(done)
        return context.get_dummy_value()

    return types.void(*[types.intp] * (arguments + 2)), generate


def _add_lines(kind: str) -> Any:
    @intrinsic
    def add_lines(
        typing_context: Any, rows: Any, lines: Any, a: Any, a_row: Any, a_column: Any,
        b: Any, b_row: Any, c: Any, c_row: Any, vectors: Any,
    ) -> Any:  # fmt: skip
        """Adds the product of ``rows`` x ``lines`` of A by whole vectors of B's rows to C's."""

        def emit(rows: int, lines: int) -> Callable[[Builder, Any], None]:
            wide = v.vector(F32, LANES)

            def body(b: Builder, arguments: Any) -> None:
                a, a_row, a_column, right, b_row, c, c_row, vectors = arguments
                factors = []
                for row in range(rows):
                    start = b.add(a, b.mul(a_row, I64(row)))
                    for line in range(lines):
                        place = b.add(start, b.mul(a_column, I64(line)))
                        factors.append(v.splat(b, v.load(b, F32, place, 4), LANES))
                tops = [b.add(right, b.mul(b_row, I64(line))) for line in range(lines)]
                targets = [b.add(c, b.mul(c_row, I64(row))) for row in range(rows)]

                def step(index: Value, carried: list[Value]) -> list[Value]:
                    near, far = b.mul(index, I64(WIDTH[kind] * LANES)), b.mul(index, I64(4 * LANES))
                    xs = [widened(b, kind, b.add(top, near), LANES) for top in tops]
                    for row, target in enumerate(targets):
                        place = b.add(target, far)
                        value = v.load(b, wide, place, 4)
                        for x, factor in zip(xs, factors[row * lines :], strict=False):
                            value = v.fma(b, x, factor, value)
                        v.store(b, value, place, 4)
                    return []

                v.loop(b, vectors, [], step)

            return body

        return _variants(f"tenonnx_lines_{kind}", 8, emit)

    return add_lines


def _dot_lines(kind: str) -> Any:
    @intrinsic
    def dot_lines(
        typing_context: Any, rows: Any, lines: Any, a: Any, a_row: Any,
        b: Any, b_row: Any, c: Any, c_row: Any, vectors: Any,
    ) -> Any:  # fmt: skip
        """Stores the products of rows of A and columns of B, each adjacent, whole vectors long."""

        def emit(rows: int, lines: int) -> Callable[[Builder, Any], None]:
            wide = v.vector(F32, LANES)

            def body(b: Builder, arguments: Any) -> None:
                a, a_row, right, b_row, c, c_row, vectors = arguments
                lefts = [b.add(a, b.mul(a_row, I64(row))) for row in range(rows)]
                tops = [b.add(right, b.mul(b_row, I64(line))) for line in range(lines)]

                def step(index: Value, carried: list[Value]) -> list[Value]:
                    near, far = b.mul(index, I64(WIDTH[kind] * LANES)), b.mul(index, I64(4 * LANES))
                    ys = [v.load(b, wide, b.add(left, far), 4) for left in lefts]
                    result = []
                    for line, top in enumerate(tops):
                        x = widened(b, kind, b.add(top, near), LANES)
                        sums = carried[line * rows : (line + 1) * rows]
                        result += [v.fma(b, x, y, z) for y, z in zip(ys, sums, strict=True)]
                    return result

                sums = v.loop(b, vectors, [v.constant(wide, 0.0)] * (rows * lines), step)
                for line in range(lines):
                    for row in range(rows):
                        place = b.add(b.add(c, b.mul(c_row, I64(row))), I64(4 * line))
                        v.store(b, v.total(b, sums[line * rows + row]), place, 4)

            return body

        return _variants(f"tenonnx_dots_{kind}", 7, emit)

    return dot_lines


def make_stream(kind: str) -> Any:
    """Returns the product of a few rows of float32 by B of a kind of elements.

    B's columns are adjacent in its rows, or its rows in its columns; then A's columns are, too.
    """
    add_lines, dot_lines, load_one = _add_lines(kind), _dot_lines(kind), make_load(kind)
    width = WIDTH[kind]

    @helper
    def by_lines(rows: Any, columns: Any, depth: Any, a: Any, b: Any, c: Any, c_row: Any) -> None:
        """B's columns are adjacent: adds row after row of B to the result."""
        a_start, a_row, a_column = a
        b_start, b_row = b
        vectors = columns // LANES
        for row in range(rows):
            for column in range(columns):
                store_float(np.float32(0), c + row * c_row + 4 * column)
        k = 0
        while k < depth:
            lines = 8 if rows <= 2 else 4
            lines = lines if depth - k >= lines else 1
            for top in range(0, rows, ROWS):
                count = min(ROWS, rows - top)
                add_lines(
                    count, lines, a_start + top * a_row + k * a_column, a_row, a_column,
                    b_start + k * b_row, b_row, c + top * c_row, c_row, vectors,
                )  # fmt: skip
            k += lines
        for column in range(vectors * LANES, columns):
            for row in range(rows):
                total = np.float32(0)
                for k in range(depth):
                    x = load_float(a_start + row * a_row + k * a_column)
                    total += x * load_one(b_start + k * b_row + column * width)
                store_float(total, c + row * c_row + 4 * column)

    @helper
    def by_dots(rows: Any, columns: Any, depth: Any, a: Any, b: Any, c: Any, c_row: Any) -> None:
        """B's rows are adjacent: every element is the product of two vectors."""
        a_start, a_row, _ = a
        b_start, b_column = b
        vectors = depth // LANES
        column = 0
        while column < columns:
            lines = 8 if rows <= 2 else 4
            lines = lines if columns - column >= lines else 1
            b_top = b_start + column * b_column
            for top in range(0, rows, ROWS):
                count = min(ROWS, rows - top)
                place = c + top * c_row + 4 * column
                dot_lines(
                    count, lines, a_start + top * a_row, a_row, b_top, b_column, place, c_row,
                    vectors,
                )  # fmt: skip
            for row in range(rows if vectors * LANES < depth else 0):
                for line in range(lines):
                    target = c + row * c_row + 4 * (column + line)
                    total = load_float(target)
                    for k in range(vectors * LANES, depth):
                        x = load_float(a_start + row * a_row + 4 * k)
                        total += x * load_one(b_top + line * b_column + k * width)
                    store_float(total, target)
            column += lines

    @parallel
    def compute_slab(arguments: Any, task: Any, worker: Any) -> None:
        a, b, c, offsets, extras, span = arguments
        columns = b.shape[1]
        rows = c.shape[0] // offsets.shape[0]
        across = -(-columns // span)
        item, left = task // across, task % across * span
        right = min(columns, left + span)
        a_place = (a.ctypes.data + offsets[item, 0], a.strides[0], a.strides[1])
        b_start = b.ctypes.data + offsets[item, 1] + left * b.strides[1]
        target = c.ctypes.data + 4 * (item * rows * columns + left)
        if b.strides[1] == width:
            b_place = (b_start, b.strides[0])
            by_lines(rows, right - left, b.shape[0], a_place, b_place, target, 4 * columns)
        else:
            b_place = (b_start, b.strides[1])
            by_dots(rows, right - left, b.shape[0], a_place, b_place, target, 4 * columns)
        finish_rows(c, item * rows, (item + 1) * rows, left, right, extras)

    @helper
    def stream(a: Any, b: Any, c: Any, offsets: Any, extras: Any, threads: Any) -> None:
        """Computes what ``make_product``'s does."""
        batch, columns = offsets.shape[0], b.shape[1]
        wanted = -(-2 * threads // batch)
        span = min(SLAB, max(2 * LANES, -(-columns // wanted)))
        span = -(-span // LANES) * LANES
        compute_slab((a, b, c, offsets, extras, span), batch * -(-columns // span), threads)

    return stream


_stream_f32 = make_stream("f32")


@kernel(signature(f32))
def stream_f32(
    a: Any, b: Any, c: Any, offsets: Any, bias: Any, residual: Any,
    alpha: Any, activation: Any, first: Any, second: Any, memory: Any, threads: Any,
) -> None:  # fmt: skip
    """See ``make_stream``."""
    extras = (bias, residual, alpha, activation, first, second)
    _stream_f32(a, b, c, offsets, extras, threads)


_stream_f16 = make_stream("f16")


@kernel(signature(u16))
def stream_f16(
    a: Any, b: Any, c: Any, offsets: Any, bias: Any, residual: Any,
    alpha: Any, activation: Any, first: Any, second: Any, memory: Any, threads: Any,
) -> None:  # fmt: skip
    """See ``make_stream``."""
    extras = (bias, residual, alpha, activation, first, second)
    _stream_f16(a, b, c, offsets, extras, threads)


_stream_bf16 = make_stream("bf16")


@kernel(signature(u16))
def stream_bf16(
    a: Any, b: Any, c: Any, offsets: Any, bias: Any, residual: Any,
    alpha: Any, activation: Any, first: Any, second: Any, memory: Any, threads: Any,
) -> None:  # fmt: skip
    """See ``make_stream``."""
    extras = (bias, residual, alpha, activation, first, second)
    _stream_bf16(a, b, c, offsets, extras, threads)
