"""Rows of float32 rounded to bfloat16, to the nearest one and of two such to the even one."""

from __future__ import annotations

import math
from typing import Any

from llvmlite import ir

from tenonnx_cpu.jit.code.cpu import cpu
from tenonnx_cpu.jit.compiling import helper
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.dot16 import BF16
from tenonnx_cpu.jit.vectors.lanes import (
    KIND,
    LANES,
    MASK,
    lanes_below,
    load_masked,
    over_row,
    read,
    vectors_for,
)
from tenonnx_cpu.jit.vectors.shared import shared
from tenonnx_cpu.jit.vectors.vector import F32, I16, I32, I64, Builder, Value
from tenonnx_cpu.jit.vectors.views import floats

# Elements of the rows that a task rounds: some microseconds.
NARROW_TASK = 1 << 14

# The polynomial nearest to 2**x from -1/2 to 1/2, of all of its degree, by the relative error.
POWERS = (0.99992808, 0.69326102, 0.24261111, 0.05517148)

# A power of two that is 0.
LEAST_POWER = -200.0

# Whether there are instructions for bfloat16.
NARROWS = cpu().bf16

WORDS, PAIRS = v.vector(I16, LANES), v.vector(I32, LANES)


def narrowed(b: Builder, x: Value) -> Value:
    """Return a vector of float32 as the bits of bfloat16; of NaN, some unless ``NARROWS``."""
    if not NARROWS:  # LLVM would call a function that no kernel has
        bits = b.bitcast(x, PAIRS)
        half, one, most = (ir.Constant(PAIRS, [n] * LANES) for n in (16, 1, 0x7FFF))
        odd = b.and_(b.lshr(bits, half), one)
        return b.trunc(b.lshr(b.add(bits, b.add(odd, most)), half), WORDS)
    return b.bitcast(b.fptrunc(x, v.vector(BF16, LANES)), WORDS)


def store_some(b: Builder, words: Value, address: Value, mask: Value) -> None:
    """Store the lanes of a mask of a vector of bfloat16."""
    v.store_lanes(b, words, address, mask, 2)


@shared("tenonnx_narrow_row")
def narrow_row(
    b: Builder, /, source: Value, count: Value, target: Value, padded: Value
) -> None:  # fmt: skip
    """Round a row to ``padded`` bfloat16, of which those beyond its ``count`` floats are 0."""
    lanes, whole = I64(LANES), b.sdiv(count, I64(LANES))

    def step(index: Value, carried: list[Value]) -> list[Value]:
        x = v.load(b, KIND, b.add(source, b.mul(index, I64(4 * LANES))), 4)
        v.store(b, narrowed(b, x), b.add(target, b.mul(index, I64(2 * LANES))), 2)
        return []

    def part(index: Value, carried: list[Value]) -> list[Value]:
        first = b.mul(b.add(whole, index), lanes)
        start = b.add(source, b.mul(first, I64(4)))
        x = load_masked(b, start, lanes_below(b, b.sub(count, first)))
        mask = lanes_below(b, b.sub(padded, first))
        store_some(b, narrowed(b, x), b.add(target, b.mul(first, I64(2))), mask)
        return []

    v.loop(b, whole, [], step)
    v.loop(b, b.sub(vectors_for(b, padded), whole), [], part)


@shared("tenonnx_narrow_square")
def narrow_square(
    b: Builder, /, source: Value, apart: Value, rows: Value, columns: Value, target: Value,
    target_row: Value, padded: Value,
) -> None:  # fmt: skip
    """Round the transpose of some rows of floats, ``LANES`` of each at most.

    Args:
        source: Address of the first row; ``apart`` is bytes from row to row.
        rows: How many.
        columns: Floats of each.
        target: Address of the first column's numbers, as bfloat16; ``target_row`` is bytes from
            column to column.
        padded: Numbers of a column; those beyond its rows are 0.
    """
    mask, places = lanes_below(b, columns), lanes_below(b, padded)
    found = []
    for row in range(LANES):
        is_there = b.icmp_signed("<", I64(row), rows)
        own = b.select(is_there, mask, v.constant(MASK, 0))
        start = b.select(is_there, b.add(source, b.mul(apart, I64(row))), source)
        found.append(load_masked(b, start, own))
    for column, x in enumerate(v.transpose(b, found)):
        with b.if_then(b.icmp_signed("<", I64(column), columns), likely=True):
            place = b.add(target, b.mul(target_row, I64(column)))
            store_some(b, narrowed(b, x), place, places)


@shared("tenonnx_narrow_words")
def narrow_words(
    b: Builder, /, source: Value, apart: Value, rows: Value, columns: Value, target: Value,
    steps: Value,
) -> None:  # fmt: skip
    """Round rows to pairs that go down, one pair of each of ``LANES`` rows side by side.

    Args:
        source: Address of the first row; ``apart`` is bytes from row to row.
        rows: How many, ``LANES`` at most; others are 0.
        columns: Floats of each; those beyond are 0.
        target: Address of the pairs; a line of them is ``2 * 4 * LANES`` bytes from the next.
        steps: How many times ``LANES`` lines.
    """

    def step(index: Value, carried: list[Value]) -> list[Value]:
        first = b.mul(index, I64(2 * LANES))
        masks = [lanes_below(b, b.sub(columns, b.add(first, I64(LANES * n)))) for n in (0, 1)]
        lines = []
        for row in range(LANES):
            is_there = b.icmp_signed("<", I64(row), rows)
            start = b.select(is_there, b.add(source, b.mul(apart, I64(row))), source)
            start = b.add(start, b.mul(first, I64(4)))
            parts = []
            for n, mask in enumerate(masks):
                own = b.select(is_there, mask, v.constant(MASK, 0))
                parts.append(narrowed(b, load_masked(b, b.add(start, I64(4 * LANES * n)), own)))
            lines.append(b.bitcast(v.shuffle(b, parts[0], parts[1], range(2 * LANES)), PAIRS))
        place = b.add(target, b.mul(index, I64(8 * LANES * LANES)))
        for line, pairs in enumerate(v.transpose(b, lines)):
            v.store(b, pairs, b.add(place, I64(8 * LANES * line)), 4)
        return []

    v.loop(b, steps, [], step)


@shared("tenonnx_narrow_pairs")
def narrow_pairs(
    b: Builder, /, source: Value, apart: Value, rows: Value, columns: Value, target: Value,
    pairs: Value,
) -> None:  # fmt: skip
    """Round rows to lines of pairs: two rows' numbers of each column, of two vectors of columns.

    Args:
        source: Address of the first row; ``apart`` is bytes from row to row.
        rows: How many; others are 0.
        columns: How many count; others are 0.
        target: Address of the lines, one after the other.
        pairs: How many lines.
    """
    masks = [lanes_below(b, b.sub(columns, I64(LANES * n))) for n in (0, 1)]

    def line(index: Value, carried: list[Value]) -> list[Value]:
        for n, mask in enumerate(masks):
            parts = []
            for odd in (0, 1):
                row = b.add(b.mul(index, I64(2)), I64(odd))
                is_there = b.icmp_signed("<", row, rows)
                start = b.select(is_there, b.add(source, b.mul(apart, row)), source)
                own = b.select(is_there, mask, v.constant(MASK, 0))
                parts.append(narrowed(b, load_masked(b, b.add(start, I64(4 * LANES * n)), own)))
            order = [lane + LANES * odd for lane in range(LANES) for odd in (0, 1)]
            place = b.add(target, b.add(b.mul(index, I64(8 * LANES)), I64(4 * LANES * n)))
            v.store(b, v.shuffle(b, parts[0], parts[1], order), place, 4)
        return []

    v.loop(b, pairs, [], line)


@shared("tenonnx_narrow_exponentials", last=(F32, F32))
def narrow_exponentials(
    b: Builder, /, source: Value, target: Value, count: Value, total: Value, scale: Value,
    top: Value,
) -> None:  # fmt: skip
    """Write ``exp(scale * x - top)`` as bfloat16, and add the sum of them to a float32.

    They are within 1e-4 of themselves before they are rounded; less than 2**-149 is 0.

    Args:
        source: Address of x.
        target: Address of the results: it may be the source's, as they are half as long.
        count: How many.
        total: Address of the sum.
        scale: The factor.
        top: What is subtracted, so that no result is over 1.
    """
    if not NARROWS:
        return
    log2e = v.constant(F32, math.log2(math.e))
    factor = v.splat(b, b.fmul(scale, log2e), LANES)
    offset = v.splat(b, b.fneg(b.fmul(top, log2e)), LANES)
    least = v.constant(KIND, LEAST_POWER)

    def step(place: Value, mask: Value | None, carried: list[Value]) -> list[Value]:
        x = read(b, b.add(source, place), mask)
        power = v.fma(b, x, factor, offset)
        power = b.select(b.fcmp_ordered("<", power, least), least, power)
        whole = v.call(b, "llvm.roundeven", KIND, power)
        rest = b.fsub(power, whole)
        y = v.constant(KIND, POWERS[-1])
        for coefficient in POWERS[-2::-1]:
            y = v.fma(b, y, rest, v.constant(KIND, coefficient))
        y = times_power(b, y, whole)
        half = b.add(target, b.lshr(place, I64(1)))
        if mask is None:
            v.store(b, narrowed(b, y), half, 2)
        else:
            store_some(b, narrowed(b, y), half, mask)
            y = b.select(mask, y, v.constant(KIND, 0.0))
        return [b.fadd(carried[0], y)]

    sums = over_row(b, count, [v.constant(KIND, 0.0)], step)[0]
    v.store(b, b.fadd(v.load(b, F32, total, 4), v.total(b, sums)), total, 4)


def times_power(b: Builder, x: Value, power: Value) -> Value:
    """Return ``x * 2**power`` for whole powers, rounded once; AVX-512 alone has this."""
    bits, rounding = ir.Constant(I16, -1), I32(4)
    name = "llvm.x86.avx512.mask.scalef.ps.512"
    return v.call_function(b, name, KIND, x, power, x, bits, rounding)


@parallel
def narrow_some(arguments: Any, task: Any, worker: Any) -> None:
    """Round some rows of a matrix of any strides."""
    a, rows, padded, line, memory, share, grain = arguments
    depth, apart = a.shape[1], a.strides[1]
    for row in range(task * grain, min(a.shape[0], (task + 1) * grain)):
        source = a.ctypes.data + row * a.strides[0]
        if apart != 4:
            own = floats(memory.ctypes.data + 4 * share * worker, depth)
            for i in range(depth):
                own[i] = a[row, i]
            source = own.ctypes.data
        narrow_row(source, depth, rows.ctypes.data + row * line, padded)


@helper
def narrow_rows(
    a: Any, rows: Any, padded: Any, line: Any, memory: Any, share: Any, threads: Any
) -> None:
    """Round the rows of a matrix of any strides.

    Args:
        a: The matrix, float32.
        rows: Bytes for the rows.
        padded: Elements of each, a multiple of ``LANES``; those beyond the matrix are 0.
        line: Bytes from row to row.
        memory: ``share`` floats for every thread, as many as a row has.
        share: How many.
        threads: How many threads to use.
    """
    grain: int = max(1, NARROW_TASK // a.shape[1])
    tasks = -(-a.shape[0] // grain)
    narrow_some((a, rows, padded, line, memory, share, grain), tasks, min(threads, tasks))
