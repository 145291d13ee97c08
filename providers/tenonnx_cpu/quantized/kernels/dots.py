"""A few rows by codes that lie column after column: each element of the result a dot product."""

from __future__ import annotations

from tenonnx_cpu.jit.code.cpu import cpu
from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.dot8 import BYTE_VECTOR, SUMS, dot, planes
from tenonnx_cpu.jit.vectors.lanes import KIND, LANES
from tenonnx_cpu.jit.vectors.packed_ints import WIDTHS
from tenonnx_cpu.jit.vectors.shared import shared
from tenonnx_cpu.jit.vectors.tiles import addresses
from tenonnx_cpu.jit.vectors.vector import F32, I8, I32, I64, Builder, Value
from tenonnx_cpu.quantized.kernels.gemv_groups import code_offset, real_codes
from tenonnx_cpu.quantized.kernels.round8 import CHUNK

# Columns of codes at a time, by rows of activations, as their sums stay in registers; 1 at the
# end.
DOT_COLUMNS = {1: 4, 2: 4, 4: 4 if cpu().registers == 32 else 2}

# Bytes of codes that are summed in a lane, by what activations are.
PER_LANE = {"bytes": 4, "reals": 1}


def lanes_of(kind: str, bits: int) -> list[int]:
    """Return how many lanes can share a scale: blocks have 16 codes at least."""
    if kind == "bytes":
        return [lanes for lanes in (2, 4, 8, 16) if lanes <= LANES]
    return [LANES, *(n for n in (LANES // 2, LANES // 4) if n * 8 // bits >= 16)]


@shared(
    "tenonnx_q_dots",
    [
        (kind, bits, lanes, rows, lines)
        for kind in PER_LANE
        for bits in WIDTHS
        for lanes in lanes_of(kind, bits)
        for rows, most in DOT_COLUMNS.items()
        for lines in (1, most)
    ],
)
def code_dots(
    b: Builder, kind: str, bits: int, lanes: int, rows: int, lines: int, /, x: Value, x_row: Value,
    x_scales: Value, scale_row: Value, starts: Value, start_row: Value, codes: Value,
    code_line: Value, scales: Value, scale_line: Value, chunks: Value, shares: Value, flip: Value,
    zero: Value, out: Value, out_row: Value,
) -> None:  # fmt: skip
    """Multiply rows by columns; ``lanes`` lanes of a sum, or ``shares`` chunks, share a scale.

    Reals have no scales and no ``starts``, which are what the bytes' sums of a chunk begin with,
    their zero point's part among it; ``zero`` is that of reals' codes.
    """
    each, wide = 8 // bits, PER_LANE[kind] * LANES
    flips = v.splat(b, b.trunc(flip, I8), wide)
    tops = addresses(b, codes, code_line, range(lines))
    later = [b.add(top, b.mul(code_line, I64(lines))) for top in tops]
    factors = addresses(b, scales, scale_line, range(lines))
    lefts = addresses(b, x, x_row, range(rows))
    left_scales = addresses(b, x_scales, scale_row, range(rows))
    firsts = addresses(b, starts, start_row, range(rows))
    middle = v.splat(b, b.sitofp(zero, F32), LANES)
    offsets = [code_offset(b, bits, plane, middle) for plane in range(each)]
    count = LANES // lanes
    # To scale codes is less work than to scale each row's sum of a chunk.
    scales_codes = kind == "reals" and rows > each

    def several(place: Value, index: Value) -> Value:
        """Load the scales of a chunk, each in the lanes that it is for."""
        own = v.load(b, v.vector(F32, count), b.add(place, b.mul(index, I64(4 * count))), 4)
        return v.shuffle(b, own, own, [lane // lanes for lane in range(LANES)])

    def numbers(place: Value, index: Value) -> Value:
        """Load the scales of a chunk, or the one that chunks share."""
        if count > 1:
            return several(place, index)
        own = b.add(place, b.mul(b.udiv(index, shares), I64(4)))
        return v.splat(b, v.load(b, F32, own, 4), LANES)

    def tell_next(line: int, index: Value, offset: Value) -> None:
        """Have memory bring the columns that follow, and their scales, which nothing else does."""
        v.prefetch(b, b.add(later[line], offset))
        if kind == "reals" or count > 1:
            own = b.udiv(index, shares) if count == 1 else b.mul(index, I64(count))
            soon = b.add(factors[line], b.mul(scale_line, I64(lines)))
            v.prefetch(b, b.add(soon, b.mul(own, I64(4))))

    def codes_at(line: int, index: Value) -> tuple[list[Value], Value]:
        """Load the codes of a chunk and their scale."""
        offset = b.mul(index, I64(wide))
        raw = b.xor(v.load(b, v.vector(I8, wide), b.add(tops[line], offset)), flips)
        reals = kind == "reals"
        parts = real_codes(b, bits, raw, offsets) if reals else planes(b, bits, raw)
        if lines > 1:
            tell_next(line, index, offset)
        return parts, numbers(factors[line], index)

    def loaded(index: Value, row: int) -> list[Value]:
        """Load a row at a chunk."""
        at = b.add(lefts[row], b.mul(index, I64(4 * LANES * each)))
        taken = BYTE_VECTOR if kind == "bytes" else KIND
        return [v.load(b, taken, b.add(at, I64(4 * LANES * n))) for n in range(each)]

    def step_scaled(index: Value, sums: list[Value]) -> list[Value]:
        """Add reals' products with a chunk's codes, which are scaled first."""
        scaled = []
        for line in range(lines):
            parts, scale = codes_at(line, index)
            scaled.append([b.fmul(part, scale) for part in parts])
        result = list(sums)
        for row in range(rows):
            for n, left in enumerate(loaded(index, row)):
                for line in range(lines):
                    cell = line * rows + row
                    result[cell] = v.fma(b, scaled[line][n], left, result[cell])
        return result

    def step(index: Value, sums: list[Value]) -> list[Value]:
        """Add products with a chunk's codes, which are scaled then."""
        xs = [loaded(index, row) for row in range(rows)]
        offset = b.mul(index, I64(wide))
        own_scales, begins = [], []
        if kind == "bytes":
            own_scales = [several(place, index) for place in left_scales]
            begins = [v.load(b, SUMS, b.add(first, offset), 4) for first in firsts]
        result = []
        for line in range(lines):
            parts, scale = codes_at(line, index)
            for row in range(rows):
                cell = sums[line * rows + row]
                if kind == "reals":
                    total = b.fmul(parts[0], xs[row][0])
                    for part, left in zip(parts[1:], xs[row][1:], strict=True):
                        total = v.fma(b, part, left, total)
                    result.append(v.fma(b, total, scale, cell))
                    continue
                total = begins[row]
                for part, left in zip(parts, xs[row], strict=True):
                    total = dot(b, total, part, left, bits)
                factor = b.fmul(scale, own_scales[row])
                result.append(v.fma(b, b.sitofp(total, KIND), factor, cell))
        return result

    add = step_scaled if scales_codes else step
    sums = v.loop(b, chunks, [v.constant(KIND, 0.0)] * (rows * lines), add)
    for row, place in enumerate(addresses(b, out, out_row, range(rows))):
        v.store(b, v.totals(b, sums[row::rows]), place, 4)


@shared("tenonnx_q_starts", [(bits,) for bits in WIDTHS])
def begin_sums(
    b: Builder, bits: int, /, x: Value, chunks: Value, factor: Value, out: Value
) -> None:
    """Write what the sums of every chunk begin with: a factor times the bytes of each lane."""
    each, ones = 8 // bits, v.constant(BYTE_VECTOR, 1)
    factors = v.splat(b, b.trunc(factor, I32), LANES)

    def step(index: Value, carried: list[Value]) -> list[Value]:
        total = v.constant(SUMS, 0)
        for n in range(each):
            at = b.add(b.mul(index, I64(CHUNK * each)), I64(CHUNK * n))
            total = dot(b, total, ones, v.load(b, BYTE_VECTOR, b.add(x, at)), 1)
        v.store(b, b.mul(total, factors), b.add(out, b.mul(index, I64(CHUNK))), 4)
        return []

    v.loop(b, chunks, [], step)
