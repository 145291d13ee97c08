"""Panels of bytes from quantized matrices: codes less their zero points, four rows interleaved.

Of codes of 8 bits the zero point must be the middle of the range: they fit a byte afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenonnx_cpu.jit.compiling import helper
from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.dot8 import BYTE_VECTOR, SUMS, dot, planes
from tenonnx_cpu.jit.vectors.lanes import LANES
from tenonnx_cpu.jit.vectors.memory import store_float, store_word
from tenonnx_cpu.jit.vectors.packed_ints import WIDTHS, code_at
from tenonnx_cpu.jit.vectors.shared import shared, under
from tenonnx_cpu.jit.vectors.tiles import side_by_side
from tenonnx_cpu.jit.vectors.vector import I8, I32, I64, Builder, Value
from tenonnx_cpu.matmul.kernels.pack import make_pack
from tenonnx_cpu.matmul.kernels.tile import COLUMNS, VECTORS

# The offset that makes activations unsigned; sums start from the term that removes it.
SHIFT = 128

# Bytes of a step of a panel.
STEP = 4 * COLUMNS


def _finish(b: Builder, sums: Sequence[Value], start: Value, weight: Value) -> None:
    weights = v.splat(b, b.trunc(weight, I32), LANES)
    for n, total in enumerate(sums):
        value = b.mul(total, weights)
        v.store(b, value, b.add(start, I64(4 * LANES * n)), 4)


@shared("tenonnx_q_pack_columns", [(bits,) for bits in WIDTHS])
def pack_columns(
    b: Builder, bits: int, /, words: Value, count: Value, zeros: Value, flip: Value, panel: Value,
    start: Value, weight: Value,
) -> None:  # fmt: skip
    """Turn words of codes, column beside column, into the steps of a group.

    ``start`` gets the sum of every column's bytes, times ``weight``.
    """
    each = 8 // bits
    flips = v.splat(b, b.trunc(flip, I8), 4 * LANES)
    own = side_by_side(b, BYTE_VECTOR, zeros, VECTORS)
    ones = v.constant(BYTE_VECTOR, 1)

    def step(index: Value, sums: list[Value]) -> list[Value]:
        source = b.add(words, b.mul(index, I64(STEP)))
        target = b.add(panel, b.mul(index, I64(STEP * each)))
        result = []
        for n in range(VECTORS):
            raw = v.load(b, BYTE_VECTOR, b.add(source, I64(4 * LANES * n)), 4)
            total = sums[n]
            for plane, part in enumerate(planes(b, bits, b.xor(raw, flips))):
                value = b.sub(part, own[n])
                v.store(b, value, b.add(target, I64(STEP * plane + 4 * LANES * n)), 4)
                total = dot(b, total, ones, value, 1)
            result.append(total)
        return result

    _finish(b, v.loop(b, count, [v.constant(SUMS, 0)] * VECTORS, step), start, weight)


@shared("tenonnx_q_pack_lines", [(bits,) for bits in WIDTHS])
def pack_lines(
    b: Builder, bits: int, /, source: Value, stride: Value, count: Value, zeros: Value,
    flip: Value, panel: Value, start: Value, weight: Value,
) -> None:  # fmt: skip
    """Interleave rows of codes, four at a time, into the steps of a group; sum them likewise."""
    width = COLUMNS * bits // 8
    narrow = v.vector(I8, width)
    flips = v.splat(b, b.trunc(flip, I8), width)
    own = side_by_side(b, BYTE_VECTOR, zeros, VECTORS)
    ones = v.constant(BYTE_VECTOR, 1)

    def line(address: Value) -> Value:
        """Load a panel's row of codes, one to a byte."""
        raw = b.xor(v.load(b, narrow, address), flips)
        parts = [
            b.and_(
                b.lshr(raw, v.constant(narrow, shift)) if shift else raw,
                v.constant(narrow, (1 << bits) - 1),
            )
            for shift in range(0, 8, bits)
        ]
        while len(parts) > 1:
            half = len(parts) // 2
            size = parts[0].type.count
            order = [lane // 2 + size * (lane % 2) for lane in range(2 * size)]
            parts = [v.shuffle(b, parts[i], parts[i + half], order) for i in range(half)]
        return parts[0]

    def step(index: Value, sums: list[Value]) -> list[Value]:
        top = b.add(source, b.mul(b.mul(index, I64(4)), stride))
        rows = [line(b.add(top, b.mul(stride, I64(n)))) for n in range(4)]
        pairs = [v.shuffle(b, rows[i], rows[i + 1], range(2 * COLUMNS)) for i in (0, 2)]
        target = b.add(panel, b.mul(index, I64(STEP)))
        result = []
        for n in range(VECTORS):
            order = [row * COLUMNS + n * LANES + lane for lane in range(LANES) for row in range(4)]
            value = b.sub(v.shuffle(b, pairs[0], pairs[1], order), own[n])
            v.store(b, value, b.add(target, I64(4 * LANES * n)), 4)
            result.append(dot(b, sums[n], ones, value, 1))
        return result

    _finish(b, v.loop(b, count, [v.constant(SUMS, 0)] * VECTORS, step), start, weight)


def make_pack_codes(bits: int) -> Any:
    """Return what fills a panel of bytes from codes of so many bits."""
    pack_words = make_pack("f32")
    each = 8 // bits
    columns, lines = under(pack_columns, bits), under(pack_lines, bits)

    @helper
    def pack_scales(
        weights: Any, row: Any, count: Any, group: Any, column: Any, target: Any
    ) -> None:
        """Write ``COLUMNS`` scales for every group."""
        scales, by_column, block = weights.scales, weights.by_column, weights.block
        line = 4 * scales.shape[1]
        if block == group:
            down, across = (4, line) if by_column else (line, 4)
            first = scales.ctypes.data + row // block * down + column * across
            pack_words(first, down, across, count, COLUMNS, target)
            return
        for g in range(count):
            number = (row + g * group) // block
            for i in range(COLUMNS):
                x = scales[column + i, number] if by_column else scales[number, column + i]
                store_float(x, target + 4 * (g * COLUMNS + i))

    @helper
    def pack_codes(
        weights: Any, row: Any, count: Any, group: Any, column: Any, words: Any, panel: Any,
        scales_at: Any, starts: Any,
    ) -> None:  # fmt: skip
        """Fill a panel of ``COLUMNS`` whole columns.

        Args:
            weights: ``Weights``.
            row: The first row, a multiple of ``group``.
            count: How many groups of rows.
            group: Rows that activations have a scale in common for; it divides a block's.
            column: The first column.
            words: Address of the panel's codes and a step more, to work in.
            panel: Address of the bytes.
            scales_at: Address of ``COLUMNS`` scales for every group.
            starts: Address of what the sums begin with, likewise.
        """
        source, code_line = weights.codes.ctypes.data, weights.code_line
        zeros, by_column, flip = weights.zeros, weights.by_column, weights.flip
        depth = group // (4 * each)
        own = words + 4 * COLUMNS * depth * count
        if by_column:
            first = source + column * code_line + row * bits // 8
            pack_words(first, 4, code_line, depth * count, COLUMNS, words)
        pack_scales(weights, row, count, group, column, scales_at)
        if not zeros.size:
            for i in range(COLUMNS):
                store_word(weights.zero * 0x01010101, own + 4 * i)
        for g in range(count):
            k = row + g * group
            if zeros.size:
                for i in range(COLUMNS):
                    number = k // weights.block
                    line, index = (column + i, number) if by_column else (number, column + i)
                    place = line * weights.zero_line + index
                    offset = code_at(zeros.ctypes.data, place, bits, flip)
                    store_word(offset * 0x01010101, own + 4 * i)
            target = panel + group * COLUMNS * g
            start = starts + 4 * COLUMNS * g
            if by_column:
                columns(words + 4 * COLUMNS * depth * g, depth, own, flip, target, start, -SHIFT)
            else:
                first = source + k * code_line + column * bits // 8
                lines(first, code_line, group // 4, own, flip, target, start, -SHIFT)

    return pack_codes
