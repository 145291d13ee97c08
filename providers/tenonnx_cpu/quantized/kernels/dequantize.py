"""Panels of float32 from blockwise quantized matrices, as they are stored."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.jit.compiling import helper
from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.lanes import KIND, LANES
from tenonnx_cpu.jit.vectors.memory import load_float, store_float
from tenonnx_cpu.jit.vectors.packed_ints import WIDTHS, code_at, spread
from tenonnx_cpu.jit.vectors.shared import shared, under
from tenonnx_cpu.jit.vectors.tiles import side_by_side
from tenonnx_cpu.jit.vectors.vector import I8, I32, I64, Builder, Value
from tenonnx_cpu.matmul.kernels.tile import COLUMNS, VECTORS


@shared("tenonnx_dequantize_lines", [(bits,) for bits in WIDTHS])
def dequantize_lines(
    b: Builder, bits: int, /, source: Value, stride: Value, count: Value, numbers: Value,
    flip: Value, panel: Value,
) -> None:  # fmt: skip
    """Turn rows of adjacent codes into rows of a panel."""
    flip = b.trunc(flip, I8)
    scales = side_by_side(b, KIND, numbers, VECTORS)
    zeros = side_by_side(b, KIND, b.add(numbers, I64(4 * COLUMNS)), VECTORS)

    def step(index: Value, carried: list[Value]) -> list[Value]:
        line, place = carried
        for n, (scale, zero) in enumerate(zip(scales, zeros, strict=True)):
            codes = spread(b, bits, b.add(line, I64(LANES * bits // 8 * n)), flip, LANES)
            x = b.fmul(b.fsub(b.sitofp(codes, KIND), zero), scale)
            v.store(b, x, b.add(place, I64(4 * LANES * n)), 4)
        return [b.add(line, stride), b.add(place, I64(4 * COLUMNS))]

    v.loop(b, count, [source, panel], step)


@shared("tenonnx_dequantize_words", [(bits,) for bits in WIDTHS])
def dequantize_words(
    b: Builder, bits: int, /, source: Value, stride: Value, count: Value, numbers: Value,
    flip: Value, panel: Value,
) -> None:  # fmt: skip
    """Turn so many words of adjacent codes of ``LANES`` columns into rows of a panel."""
    kind = v.vector(I32, LANES)
    flips = v.splat(b, b.mul(b.trunc(flip, I32), I32(0x01010101)), LANES)
    mask = v.constant(kind, (1 << bits) - 1)
    scale = v.load(b, KIND, numbers, 4)
    zero = v.load(b, KIND, b.add(numbers, I64(4 * COLUMNS)), 4)

    def step(index: Value, carried: list[Value]) -> list[Value]:
        place, row = carried
        words = v.constant(kind, 0)
        for n in range(LANES):
            word = v.load(b, I32, b.add(place, b.mul(stride, I64(n))))
            words = b.insert_element(words, word, I32(n))
        words = b.xor(words, flips)
        for n in range(32 // bits):
            codes = b.and_(b.lshr(words, v.constant(kind, n * bits)), mask)
            x = b.fmul(b.fsub(b.sitofp(codes, KIND), zero), scale)
            v.store(b, x, b.add(row, I64(4 * COLUMNS * n)), 4)
        return [b.add(place, I64(4)), b.add(row, I64(4 * COLUMNS * 32 // bits))]

    v.loop(b, count, [source, panel], step)


@helper
def block_numbers(weights: Any, bits: Any, column: Any, span: Any, number: Any, out: Any) -> None:
    """Write ``COLUMNS`` scales of a block of rows at an address, and as many zero points after.

    Args:
        weights: ``Weights``.
        bits: Of a code.
        column: The first column.
        span: How many there are; beyond them the scale is 0.
        number: The block's.
        out: The address.
    """
    scales, zeros = weights.scales, weights.zeros
    for i in range(COLUMNS):
        scale, offset = np.float32(0), np.float32(weights.zero)
        if i < span:
            line, index = (column + i, number) if weights.by_column else (number, column + i)
            scale = scales[line, index]
            if zeros.size:
                place = line * weights.zero_line + index
                offset = np.float32(code_at(zeros.ctypes.data, place, bits, weights.flip))
        store_float(scale, out + 4 * i)
        store_float(offset, out + 4 * (COLUMNS + i))


def make_dequantize(bits: int) -> Any:
    """Return what fills a panel of float32 from codes of so many bits."""
    each = 32 // bits
    lines, words = under(dequantize_lines, bits), under(dequantize_words, bits)

    @helper
    def dequantize(
        weights: Any, row: Any, depth: Any, column: Any, span: Any, numbers: Any, panel: Any
    ) -> None:
        """Fill a panel of ``depth`` rows, with zeros beyond ``span`` columns.

        Args:
            weights: ``Weights``.
            row: The first row, a multiple of ``LANES`` beyond a block's first.
            depth: How many rows.
            column: The first column; its code begins a byte.
            span: How many columns.
            numbers: Address of ``2 * COLUMNS`` floats to work in.
            panel: Address of the panel.
        """
        by_column, block, flip = weights.by_column, weights.block, weights.flip
        start, line = weights.codes.ctypes.data, weights.code_line
        end = row + depth
        while row < end:
            stop = min(end, (row // block + 1) * block)
            block_numbers(weights, bits, column, span, row // block, numbers)
            place = panel
            count = stop - row
            done = 0
            if span == COLUMNS and by_column:
                done = count // each * each
                for n in range(0, COLUMNS, LANES):
                    source = start + (column + n) * line + row * bits // 8
                    words(source, line, count // each, numbers + 4 * n, flip, place + 4 * n)
            elif span == COLUMNS:
                done = count
                source = start + row * line + column * bits // 8
                lines(source, line, count, numbers, flip, place)
            for k in range(done, count):
                for n in range(COLUMNS):
                    x = np.float32(0)
                    if n < span:
                        at = (column + n, row + k) if by_column else (row + k, column + n)
                        code = code_at(start + at[0] * line, at[1], bits, flip)
                        x = (np.float32(code) - load_float(numbers + 4 * (COLUMNS + n))) * (
                            load_float(numbers + 4 * n)
                        )
                    store_float(x, place + 4 * (k * COLUMNS + n))
            panel += 4 * COLUMNS * count
            row = stop

    return dequantize
