"""A few rows of float32 by codes that lie column after column: each element a dot product."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from numba.extending import intrinsic

from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.lanes import LANES
from tenonnx_cpu.jit.vectors.packed_ints import WIDTHS
from tenonnx_cpu.jit.vectors.shared import Shared, one_of, under
from tenonnx_cpu.jit.vectors.vector import F32, I8, I64, Builder, Value
from tenonnx_cpu.quantized.kernels.dots import LINES, ROWS, WIDE
from tenonnx_cpu.quantized.kernels.gemv_groups import code_offset, real_codes


def _dots(
    bits: int, lanes: int, rows: int, lines: int
) -> Callable[[Builder, Sequence[Value]], None]:
    """Writes the products of chunks of ``LANES`` bytes, of which ``lanes`` share a scale."""
    each = 8 // bits
    count = LANES // lanes

    def body(b: Builder, arguments: Sequence[Value]) -> None:
        x, x_row, codes, code_line, scales, scale_line = arguments[:6]
        chunks, shared, flip, zero, out, out_row = arguments[6:]
        flips = v.splat(b, b.trunc(flip, I8), LANES)
        tops = [b.add(codes, b.mul(code_line, I64(line))) for line in range(lines)]
        later = [b.add(top, b.mul(code_line, I64(lines))) for top in tops]
        factors = [b.add(scales, b.mul(scale_line, I64(line))) for line in range(lines)]
        lefts = [b.add(x, b.mul(x_row, I64(row))) for row in range(rows)]
        middle = v.splat(b, b.sitofp(zero, F32), LANES)
        offsets = [code_offset(b, bits, plane, middle) for plane in range(each)]

        def numbers(place: Value, index: Value) -> Value:
            """Loads the scales of a chunk, each in the lanes that it is for."""
            if count == 1:
                own = b.add(place, b.mul(b.udiv(index, shared), I64(4)))
                return v.splat(b, v.load(b, F32, own, 4), LANES)
            own = v.load(b, v.vector(F32, count), b.add(place, b.mul(index, I64(4 * count))), 4)
            return v.shuffle(b, own, own, [lane // lanes for lane in range(LANES)])

        def step(index: Value, sums: list[Value]) -> list[Value]:
            at = b.mul(index, I64(4 * LANES * each))
            xs = [
                [
                    v.load(b, WIDE, b.add(b.add(left, at), I64(4 * LANES * n)), 4)
                    for n in range(each)
                ]
                for left in lefts
            ]
            offset = b.mul(index, I64(LANES))
            result = []
            for line, top in enumerate(tops):
                raw = b.xor(v.load(b, v.vector(I8, LANES), b.add(top, offset)), flips)
                parts = real_codes(b, bits, raw, offsets)
                if lines > 1:
                    v.prefetch(b, b.add(later[line], offset))
                    own = b.udiv(index, shared) if count == 1 else b.mul(index, I64(count))
                    soon = b.add(factors[line], b.mul(scale_line, I64(lines)))
                    v.prefetch(b, b.add(soon, b.mul(own, I64(4))))
                scale = numbers(factors[line], index)
                for row in range(rows):
                    total = b.fmul(parts[0], xs[row][0])
                    for part, left in zip(parts[1:], xs[row][1:], strict=True):
                        total = v.fma(b, part, left, total)
                    result.append(v.fma(b, total, scale, sums[line * rows + row]))
            return result

        sums = v.loop(b, chunks, [v.constant(WIDE, 0.0)] * (rows * lines), step)
        for row in range(rows):
            place = b.add(out, b.mul(out_row, I64(row)))
            v.store(b, v.totals(b, sums[row::rows]), place, 4)

    return body


DOTS = {
    (bits, lanes, rows, lines): Shared(
        __file__,
        f"tenonnx_q_real_dots_{bits}_{lanes}_{rows}_{lines}",
        [I64] * 12,
        _dots(bits, lanes, rows, lines),
    )
    for bits in WIDTHS
    for lanes in (LANES, LANES // 2, LANES // 4)
    if lanes == LANES or lanes * 8 // bits >= 16
    for rows in ROWS
    for lines in LINES
}


def make_real_dots(bits: int) -> Any:
    """Returns ``real_dots(lanes, rows, lines, ...)``: see ``_dots``."""

    @intrinsic
    def real_dots(
        typing_context: Any, lanes: Any, rows: Any, lines: Any, x: Any, x_row: Any,
        codes: Any, code_line: Any, scales: Any, scale_line: Any, chunks: Any, shared: Any,
        flip: Any, zero: Any, out: Any, out_row: Any,
    ) -> Any:  # fmt: skip
        """Multiplies ``rows`` by ``lines``; ``shared`` chunks have a scale in common."""
        return one_of(under(DOTS, bits))

    return real_dots
