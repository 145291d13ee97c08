"""A few rows of bytes by codes that lie column after column: each element a dot product."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from numba.extending import intrinsic

from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.dot8 import BYTES, SUMS, dot, planes
from tenonnx_cpu.jit.vectors.lanes import LANES
from tenonnx_cpu.jit.vectors.packed_ints import WIDTHS
from tenonnx_cpu.jit.vectors.shared import Shared, one_of, under
from tenonnx_cpu.jit.vectors.vector import F32, I8, I32, I64, Builder, Value

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
        x, x_row, x_scales, scale_row, starts, start_row = arguments[:6]
        codes, code_line, scales, scale_line, chunks, shared, flip, out, out_row = arguments[6:]
        flips = v.splat(b, b.trunc(flip, I8), CHUNK)
        tops = [b.add(codes, b.mul(code_line, I64(line))) for line in range(lines)]
        later = [b.add(top, b.mul(code_line, I64(lines))) for top in tops]
        factors = [b.add(scales, b.mul(scale_line, I64(line))) for line in range(lines)]
        lefts = [b.add(x, b.mul(x_row, I64(row))) for row in range(rows)]
        left_scales = [b.add(x_scales, b.mul(scale_row, I64(row))) for row in range(rows)]
        firsts = [b.add(starts, b.mul(start_row, I64(row))) for row in range(rows)]

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
            begins = [v.load(b, SUMS, b.add(first, offset), 4) for first in firsts]
            result = []
            for line, top in enumerate(tops):
                raw = b.xor(v.load(b, BYTES, b.add(top, offset)), flips)
                parts = planes(b, bits, raw)
                if lines > 1:
                    v.prefetch(b, b.add(later[line], offset))
                    if lanes < LANES:
                        # Scales are a fifth of all that is read; nothing else fetches them.
                        soon = b.add(factors[line], b.mul(scale_line, I64(lines)))
                        v.prefetch(b, b.add(soon, b.mul(index, I64(4 * LANES // lanes))))
                scale = numbers(factors[line], index)
                for row in range(rows):
                    total = begins[row]
                    for part, left in zip(parts, xs[row], strict=True):
                        total = dot(b, total, part, left)
                    factor = b.fmul(scale, own_scales[row])
                    cell = sums[line * rows + row]
                    result.append(v.fma(b, b.sitofp(total, WIDE), factor, cell))
            return result

        sums = v.loop(b, chunks, [v.constant(WIDE, 0.0)] * (rows * lines), step)
        for row in range(rows):
            place = b.add(out, b.mul(out_row, I64(row)))
            v.store(b, v.totals(b, sums[row::rows]), place, 4)

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
        [I64] * 15,
        _dots(bits, lanes, rows, lines),
    )
    for bits in WIDTHS
    for lanes in SPANS
    for rows in ROWS
    for lines in LINES
}


def _starts(bits: int) -> Shared:
    """Writes what the sums of every chunk begin with: a factor times the bytes of each lane."""
    each = 8 // bits

    def body(b: Builder, arguments: Sequence[Value]) -> None:
        x, chunks, factor, out = arguments
        ones = v.constant(BYTES, 1)
        factors = v.splat(b, b.trunc(factor, I32), LANES)

        def step(index: Value, carried: list[Value]) -> list[Value]:
            total = v.constant(SUMS, 0)
            for n in range(each):
                at = b.add(b.mul(index, I64(CHUNK * each)), I64(CHUNK * n))
                total = dot(b, total, ones, v.load(b, BYTES, b.add(x, at)))
            v.store(b, b.mul(total, factors), b.add(out, b.mul(index, I64(CHUNK))), 4)
            return []

        v.loop(b, chunks, [], step)

    return Shared(__file__, f"tenonnx_q_starts_{bits}", [I64] * 4, body)


STARTS = {bits: _starts(bits) for bits in WIDTHS}


def make_code_dots(bits: int) -> Any:
    """Returns ``code_dots(lanes, rows, lines, ...)``: see ``_dots``."""

    @intrinsic
    def code_dots(
        typing_context: Any, lanes: Any, rows: Any, lines: Any, x: Any, x_row: Any,
        x_scales: Any, scale_row: Any, starts: Any, start_row: Any,
        codes: Any, code_line: Any, scales: Any, scale_line: Any, chunks: Any,
        shared: Any, flip: Any, out: Any, out_row: Any,
    ) -> Any:  # fmt: skip
        """Multiplies ``rows`` by ``lines``; ``shared`` chunks have a scale in common."""
        return one_of(under(DOTS, bits))

    return code_dots
