"""The operations on sums of products of bytes: keep, scale to real numbers, or round those."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from tenonnx_cpu.jit.compiling import Contract, helper
from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.dot8 import SUMS
from tenonnx_cpu.jit.vectors.lanes import LANES, clipped, for_columns
from tenonnx_cpu.jit.vectors.memory import load_word, store_float, store_word
from tenonnx_cpu.jit.vectors.vector import F32, I8, I64, Builder, Value
from tenonnx_cpu.matmul.kernels.tile import COLUMNS

# The kinds of results: int32 sums; those, scaled and shifted, as float32; that as bytes.
SUMMED, REAL, ROUNDED = 4, 5, 1

# Bytes of each kind of numbers that a panel's columns have.
NUMBERS_BYTES = 4 * COLUMNS

WIDE = v.vector(F32, LANES)

SCALED = Contract(
    plan="a scale, a zero point and a bias have one number, or one per channel, and their dtypes",
    launch="the image has the dtype of its zero point; windows as for real numbers",
)


def own_numbers(b: Builder, numbers: Value, place: int, n: int, kind: Any) -> Value:
    """Load a vector of the numbers of a kind, as ``pack_numbers`` writes them."""
    return v.load(b, kind, b.add(numbers, I64(NUMBERS_BYTES * place + 4 * LANES * n)), 4)


def finish_sums(
    b: Builder, sums: Sequence[Value], vectors: int, numbers: Value, result: Sequence[Value]
) -> None:
    """Write what becomes of sums, vectors of int32, row after row.

    Args:
        b: Writes it.
        sums: As many of each row as ``vectors`` says.
        vectors: Of a row.
        numbers: Address of what ``pack_numbers`` writes.
        result: Address of the first row and bytes from row to row, how many columns are written,
            the form, the least result but for the zero point, the greatest, and the zero point.
    """
    c, c_row, columns, form = result[:4]
    low, high, zero = (v.splat(b, x, LANES) for x in result[4:])
    factors, summands = (
        [own_numbers(b, numbers, place, n, WIDE) for n in range(vectors)] for place in (2, 3)
    )

    def real(value: Value, n: int) -> Value:
        return b.fadd(b.fmul(b.sitofp(value, WIDE), factors[n]), summands[n])

    makers: dict[int, Callable[[Value, int], Value]] = {
        SUMMED: lambda value, n: value,
        REAL: lambda value, n: clipped(b, real(value, n), low, high),
        ROUNDED: lambda value, n: to_bytes(b, real(value, n), low, high, zero),
    }

    def write(masks: Sequence[Value | None]) -> None:
        for wanted, make in makers.items():
            width = 1 if wanted == ROUNDED else 4
            with b.if_then(b.icmp_signed("==", form, I64(wanted))):
                for cell, value in enumerate(sums):
                    row, n = divmod(cell, vectors)
                    start = b.add(c, b.mul(c_row, I64(row)))
                    place = b.add(start, I64(width * LANES * n))
                    _store(b, make(value, n), place, width, masks[n])

    for_columns(b, columns, vectors, write)


def _store(b: Builder, value: Value, address: Value, align: int, mask: Value | None) -> None:
    """Store a vector, or the lanes of a mask."""
    if mask is None:
        v.store(b, value, address, align)
    else:
        v.store_lanes(b, value, address, mask, align)


def to_bytes(b: Builder, x: Value, low: Value, high: Value, zero: Value) -> Value:
    """Return numbers as bytes: clipped, rounded half to even, moved to the zero point.

    NaN is the least byte.
    """
    x = b.select(b.fcmp_ordered(">", x, low), x, low)
    x = b.select(b.fcmp_ordered("<", x, high), x, high)
    if llvm.llvm_version_info[0] >= 20:
        name = f"llvm.lrint.v{LANES}i32.v{LANES}f32"
        whole = v.call_function(b, name, SUMS, x)
    else:
        whole = b.fptosi(v.call(b, "llvm.rint", x.type, x), SUMS)
    return b.trunc(b.add(whole, zero), v.vector(I8, LANES))


@helper
def pack_numbers(column: Any, depth: Any, columns_own: Any, numbers: Any) -> None:
    """Write what becomes of the sums of ``COLUMNS`` columns, of which B's sums are there.

    With o A's zero point, z B's, and s a column's sum, what is added to sums less z times a row's
    total is ``o * (depth * z - s)``.

    Args:
        column: The first of them.
        depth: Rows of B.
        columns_own: A's zero point; how many columns there are; B's zero point, or that of every
            column; what is added to every column's sums, what they are multiplied by, one or for
            every column, and what is added then.
        numbers: An address: of two int32, then two float32, ``COLUMNS`` of each.
    """
    origin, columns, zeros, extra, factor, summand = columns_own
    for i in range(COLUMNS):
        j = min(column + i, columns - 1)
        zero = zeros[j if zeros.size > 1 else 0]
        start = origin * (np.int32(depth) * zero - np.int32(load_word(numbers + 4 * i)))
        if extra.size:
            start += extra[j]
        store_word(start, numbers + 4 * i)
        store_word(zero, numbers + NUMBERS_BYTES + 4 * i)
        store_float(factor[j if factor.size > 1 else 0], numbers + 2 * NUMBERS_BYTES + 4 * i)
        shift = summand[j] if summand.size else np.float32(0)
        store_float(shift, numbers + 3 * NUMBERS_BYTES + 4 * i)
