"""A few rows by codes that lie row after row: groups of rows of codes, summed column beside column.

Results are kept in the order in which codes come out of their bytes: ``LANES`` bytes after the
other, of those the first codes, then the second ones, and so on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenonnx_cpu.jit.code.cpu import cpu
from tenonnx_cpu.jit.compiling import helper
from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.dot8 import SUMS, dot, planes
from tenonnx_cpu.jit.vectors.lanes import KIND, LANES
from tenonnx_cpu.jit.vectors.packed_ints import WIDTHS
from tenonnx_cpu.jit.vectors.shared import shared
from tenonnx_cpu.jit.vectors.tiles import add_products, addresses, number, word
from tenonnx_cpu.jit.vectors.vector import F32, I8, I32, I64, Builder, Value

# Rows of activations that are multiplied at a time.
ROWS_AT_A_TIME = (1, 2, 4)

# The kinds of activations. Codes of 8 bits take as long to read as reals take to multiply.
ACTIVATION_KINDS = ("bytes", "reals")

MAX_WIDE_ROWS = 1 if cpu().registers == 16 else 2


@helper
def line_bytes(bits: Any, rows: Any) -> Any:
    """Return how many bytes of a row of codes a panel has: its sums stay in registers."""
    return LANES * (2 if rows > MAX_WIDE_ROWS or bits == 2 else 4)


def interleaved(b: Builder, lines: Sequence[Value]) -> list[Value]:
    """Return the bytes of four lines, each byte beside those below it, as vectors of BYTES."""
    width = lines[0].type.count
    pairs = [
        v.shuffle(b, lines[i], lines[i + 1], [j // 2 + width * (j % 2) for j in range(2 * width)])
        for i in (0, 2)
    ]
    orders = [
        [
            2 * (start + lane) + byte % 2 + 2 * width * (byte // 2)
            for lane in range(LANES)
            for byte in range(4)
        ]
        for start in range(0, width, LANES)
    ]
    return [v.shuffle(b, pairs[0], pairs[1], order) for order in orders]


def _spread(b: Builder, bits: int, raw: Value) -> list[Value]:
    """Return the codes of ``LANES`` bytes as int32: first codes, second ones, and so on."""
    wide = b.zext(raw, SUMS)
    mask = v.constant(SUMS, (1 << bits) - 1)
    shifted = [b.lshr(wide, v.constant(SUMS, n)) if n else wide for n in range(0, 8, bits)]
    return [b.and_(x, mask) for x in shifted] if bits < 8 else shifted


def real_codes(b: Builder, bits: int, raw: Value, offsets: Sequence[Value]) -> list[Value]:
    """Return the codes of ``LANES`` bytes less their offsets, as float32.

    A code is put where a power of two has its lowest bits: an offset is that power and the zero
    point, and their difference is exact.
    """
    wide = b.zext(raw, SUMS)
    result = []
    for n, offset in enumerate(offsets):
        own = b.and_(wide, v.constant(SUMS, (1 << bits) - 1 << n * bits)) if bits < 8 else wide
        power = v.constant(SUMS, 127 + 23 - n * bits << 23)
        result.append(b.fsub(b.bitcast(b.or_(own, power), KIND), offset))
    return result


def code_offset(b: Builder, bits: int, plane: int, zero: Value) -> Value:
    """Return the offset of a place in the byte that ``real_codes`` takes for a zero point."""
    return b.fadd(zero, v.constant(zero.type, float(1 << 23 - plane * bits)))


@shared(
    "tenonnx_q_lines",
    [
        (kind, bits, rows, zeroed)
        for kind in ACTIVATION_KINDS
        for bits in (WIDTHS if kind == "reals" else WIDTHS[:2])
        for rows in ROWS_AT_A_TIME
        for zeroed in (0, 1)
    ],
)
def add_group(
    b: Builder, kind: str, bits: int, rows: int, zeroed: int, /, x: Value, x_row: Value,
    x_scales: Value, x_sums: Value, number_row: Value, codes: Value, code_row: Value,
    scales: Value, zeros: Value, zero: Value, steps: Value, panels: Value, flip: Value,
    ahead: Value, scales_ahead: Value, c: Value, c_row: Value,
) -> None:  # fmt: skip
    """Add to C what a group of rows of codes contributes.

    Args:
        x: Address of X at the group, int8 or float32, and bytes from row to row.
        x_scales: Address of X's scales for the group, of no use for float32.
        x_sums: Address of the sums of X's bytes, int32, likewise.
        number_row: Bytes from row to row of both.
        codes: Address of the group's codes, and bytes from row to row.
        scales: Address of the columns' scales.
        zeros: Address of the columns' zero points.
        zero: The zero point without them.
        steps: Rows of codes, four of which are a step for bytes.
        panels: How many panels of ``line_bytes``.
        flip: See ``codes``.
        ahead: Bytes from a row of codes to the one that will be needed later.
        scales_ahead: Bytes from a scale to the one that will be needed later.
        c: Address of C, float32 in the order of panels, and bytes from row to row.
    """
    each = 8 // bits
    width = LANES * (2 if rows > MAX_WIDE_ROWS or bits == 2 else 4)
    vectors = width // LANES
    narrow = v.vector(I8, LANES)
    places = [(vector, plane) for vector in range(vectors) for plane in range(each)]
    flip = b.trunc(flip, I8)
    flips = v.splat(b, flip, width)
    lefts = addresses(b, x, x_row, range(rows))
    numbers = [b.mul(number_row, I64(row)) for row in range(rows)]

    # ceil(2**32 / panels): what follows is brought along row by row, not panel by panel.
    share = b.udiv(b.add(I64((1 << 32) - 1), panels), panels)

    def later(panel: Value, step: Value, count: int) -> Value:
        """Return the address of the next of the lines that follow this group."""
        done = b.mul(b.add(b.mul(panel, steps), step), I64(count))
        row = b.lshr(b.mul(done, share), I64(32))
        column = b.sub(done, b.mul(row, panels))
        return b.add(b.add(codes, ahead), b.add(b.mul(row, code_row), b.mul(column, I64(width))))

    def points(panel: Value) -> list[Value]:
        """Return the zero points of a panel as int32, place by place."""
        if not zeroed:
            return [v.splat(b, b.trunc(zero, I32), LANES)] * len(places)
        result = []
        for vector in range(vectors):
            raw = v.load(b, narrow, b.add(b.add(zeros, panel), I64(LANES * vector)))
            result += _spread(b, bits, b.xor(raw, v.splat(b, flip, LANES)))
        return result

    def dot_codes(b: Builder, x: Value, part: Value, total: Value) -> Value:
        return dot(b, total, part, x, bits)

    def bytes_sums(panel: Value, line: Value, own: list[Value]) -> list[Value]:
        sums = []
        for row in numbers:
            total = b.sub(I32(0), v.load(b, I32, b.add(x_sums, row), 4))
            sums += [b.mul(point, v.splat(b, total, LANES)) for point in own]

        def step(index: Value, carried: list[Value]) -> list[Value]:
            top, sums = carried[0], carried[1:]
            lines, soon = [], later(panel, index, 4)
            for n in range(4):
                place = b.add(top, b.mul(code_row, I64(n)))
                v.prefetch(b, b.add(soon, I64(width * n)))
                lines.append(b.xor(v.load(b, v.vector(I8, width), place), flips))
            parts = [part for raw in interleaved(b, lines) for part in planes(b, bits, raw)]
            rights = (word(b, b.add(left, b.mul(index, I64(4)))) for left in lefts)
            result = add_products(b, dot_codes, rights, parts, sums)
            return [b.add(top, b.mul(code_row, I64(4))), *result]

        sums = v.loop(b, steps, [line, *sums], step)[1:]
        return [b.sitofp(total, KIND) for total in sums]

    def real_sums(panel: Value, line: Value, own: list[Value]) -> list[Value]:
        offsets = [
            code_offset(b, bits, plane, b.sitofp(point, KIND))
            for point, (_, plane) in zip(own, places, strict=True)
        ]

        def step(index: Value, carried: list[Value]) -> list[Value]:
            top, sums = carried[0], carried[1:]
            v.prefetch(b, later(panel, index, 1))
            parts = []
            for vector in range(vectors):
                raw = v.load(b, narrow, b.add(top, I64(LANES * vector)))
                raw = b.xor(raw, v.splat(b, flip, LANES))
                own = offsets[vector * each : (vector + 1) * each]
                parts += real_codes(b, bits, raw, own)
            rights = (number(b, b.add(left, b.mul(index, I64(4)))) for left in lefts)
            return [b.add(top, code_row), *add_products(b, v.fma, rights, parts, sums)]

        nothing = [v.constant(KIND, 0.0)] * (rows * len(places))
        return v.loop(b, steps, [line, *nothing], step)[1:]

    def panel(index: Value, carried: list[Value]) -> list[Value]:
        at = b.mul(index, I64(width))
        own = points(at)
        sums = (bytes_sums if kind == "bytes" else real_sums)(index, b.add(codes, at), own)
        columns = b.mul(index, I64(4 * width * each))
        for vector in range(vectors):
            source = b.add(b.add(scales, columns), I64(4 * LANES * each * vector))
            for n in range(each):
                v.prefetch(b, b.add(b.add(source, scales_ahead), I64(4 * LANES * n)))
            loaded = v.load(b, v.vector(F32, LANES * each), source, 4)
            for plane in range(each):
                scale = v.shuffle(b, loaded, loaded, range(plane, LANES * each, each))
                n = vector * each + plane
                for row in range(rows):
                    factor = scale
                    if kind == "bytes":
                        left = v.load(b, F32, b.add(x_scales, numbers[row]), 4)
                        factor = b.fmul(scale, v.splat(b, left, LANES))
                    place = b.add(b.add(c, columns), b.mul(c_row, I64(row)))
                    place = b.add(place, I64(4 * LANES * n))
                    total = v.load(b, KIND, place, 4)
                    total = v.fma(b, sums[row * len(places) + n], factor, total)
                    v.store(b, total, place, 4)
        return []

    v.loop(b, panels, [], panel)
