"""A few rows of bytes by codes that lie column after column: each element a dot product."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from numba import types
from numba.extending import intrinsic

from tenonnx_cpu.jit import vector as v
from tenonnx_cpu.jit.codes import WIDTHS, spread
from tenonnx_cpu.jit.dot8 import BYTES, SUMS, dot, planes
from tenonnx_cpu.jit.shared import Shared
from tenonnx_cpu.jit.tile import LANES
from tenonnx_cpu.jit.vector import F32, I8, I64, Builder, Value

ROWS = (1, 2, 4)
LINES = (1, 4)
"""Rows of activations, and columns of codes, that are multiplied at a time."""

CHUNK = 4 * LANES
"""Bytes of codes that fill a vector."""

WIDE = v.vector(F32, LANES)


def _dots(
    bits: int, lanes: int, rows: int, lines: int
) -> Callable[[Builder, Sequence[Value]], None]:
    """Writes the products of whole chunks, where ``lanes`` lanes of a sum share a scale."""
    each = 8 // bits

    def body(b: Builder, arguments: Sequence[Value]) -> None:
        x, x_row, x_scales, scale_row, codes, code_line, scales, scale_line = arguments[:8]
        chunks, shared, flip, out, out_row = arguments[8:]
        flips = v.splat(b, b.trunc(flip, I8), CHUNK)
        tops = [b.add(codes, b.mul(code_line, I64(line))) for line in range(lines)]
        later = [b.add(top, b.mul(code_line, I64(lines))) for top in tops]
        factors = [b.add(scales, b.mul(scale_line, I64(line))) for line in range(lines)]
        lefts = [b.add(x, b.mul(x_row, I64(row))) for row in range(rows)]
        left_scales = [b.add(x_scales, b.mul(scale_row, I64(row))) for row in range(rows)]

        def numbers(place: Value, index: Value) -> Value:
            """Loads the scales of a chunk, each in the lanes that it is for."""
            count = LANES // lanes
            if count == 1:
                own = b.add(place, b.mul(b.udiv(index, shared), I64(4)))
                return v.splat(b, v.load(b, F32, own, 4), LANES)
            own = v.load(b, v.vector(F32, count), b.add(place, b.mul(index, I64(4 * count))), 4)
            return v.shuffle(b, own, own, [lane // lanes for lane in range(LANES)])

        def step(index: Value, sums: list[Value]) -> list[Value]:
            at = b.mul(index, I64(CHUNK * each))
            xs = [
                [v.load(b, BYTES, b.add(b.add(left, at), I64(CHUNK * n))) for n in range(each)]
                for left in lefts
            ]
            own_scales = [_group_scales(b, place, index, lanes) for place in left_scales]
            offset = b.mul(index, I64(CHUNK))
            result = []
            for line, top in enumerate(tops):
                raw = b.xor(v.load(b, BYTES, b.add(top, offset)), flips)
                parts = planes(b, bits, raw)
                if lines > 1:
                    v.prefetch(b, b.add(later[line], offset))
                scale = numbers(factors[line], index)
                for row in range(rows):
                    total = v.constant(SUMS, 0)
                    for part, left in zip(parts, xs[row], strict=True):
                        total = dot(b, total, part, left)
                    factor = b.fmul(scale, own_scales[row])
                    cell = sums[line * rows + row]
                    result.append(v.fma(b, b.sitofp(total, WIDE), factor, cell))
            return result

        sums = v.loop(b, chunks, [v.constant(WIDE, 0.0)] * (rows * lines), step)
        for line in range(lines):
            for row in range(rows):
                place = b.add(b.add(out, b.mul(out_row, I64(row))), I64(4 * line))
                v.store(b, v.total(b, sums[line * rows + row]), place, 4)

    return body


def _group_scales(b: Builder, place: Value, index: Value, lanes: int) -> Value:
    """Loads the activations' scales of a chunk: one for ``lanes`` lanes."""
    count = LANES // lanes
    own = v.load(b, v.vector(F32, count), b.add(place, b.mul(index, I64(4 * count))), 4)
    return v.shuffle(b, own, own, [lane // lanes for lane in range(LANES)])


SPANS = tuple(lanes for lanes in (2, 4, 8, 16) if lanes <= LANES)

DOTS = {
    (bits, lanes, rows, lines): Shared(
        __file__,
        f"tenonnx_q_dots_{bits}_{lanes}_{rows}_{lines}",
        [I64] * 13,
        _dots(bits, lanes, rows, lines),
    )
    for bits in WIDTHS
    for lanes in SPANS
    for rows in ROWS
    for lines in LINES
}


def _zeros(bits: int) -> Shared:
    """Sums, over whole vectors of blocks, products of zero points, scales and sums of bytes."""
    each = 4

    def body(b: Builder, arguments: Sequence[Value]) -> None:
        zeros, scales, sums, vectors, flip, out = arguments
        flip = b.trunc(flip, I8)
        kind = v.vector(F32, each)

        def step(index: Value, carried: list[Value]) -> list[Value]:
            codes = spread(b, bits, b.add(zeros, b.mul(index, I64(each * bits // 8))), flip, each)
            at = b.mul(index, I64(4 * each))
            factor = b.fmul(
                v.load(b, kind, b.add(scales, at), 4), v.load(b, kind, b.add(sums, at), 4)
            )
            return [v.fma(b, b.sitofp(codes, kind), factor, carried[0])]

        (result,) = v.loop(b, vectors, [v.constant(kind, 0.0)], step)
        v.store(b, v.total(b, result), out, 4)

    return Shared(__file__, f"tenonnx_q_zeros_{bits}", [I64] * 6, body)


ZEROS = {bits: _zeros(bits) for bits in WIDTHS}


def make_code_dots(bits: int) -> Any:
    """Returns ``code_dots(lanes, rows, lines, ...)``: see ``_dots``."""

    @intrinsic
    def code_dots(
        typing_context: Any, lanes: Any, rows: Any, lines: Any, x: Any, x_row: Any,
        x_scales: Any, scale_row: Any, codes: Any, code_line: Any, scales: Any, scale_line: Any,
        chunks: Any, shared: Any, flip: Any, out: Any, out_row: Any,
    ) -> Any:  # fmt: skip
        """Multiplies ``rows`` by ``lines``; ``shared`` chunks have a scale in common."""

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            key = builder.add(
                builder.mul(values[0], I64(64)),
                builder.add(builder.mul(values[1], I64(8)), values[2]),
            )
            done = builder.append_basic_block("done")
            choice = builder.switch(key, done)
            for (own, lanes, rows, lines), function in DOTS.items():
                if own == bits:
                    block = builder.append_basic_block(function.name)
                    choice.add_case(I64(64 * lanes + 8 * rows + lines), block)
                    builder.position_at_end(block)
                    function.call(builder, values[3:])
                    builder.branch(done)
            builder.position_at_end(done)
            return context.get_dummy_value()

        return types.void(*[types.intp] * 16), generate

    return code_dots
