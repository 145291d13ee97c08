"""Rows of float32 in whole vectors, the last of them masked."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llvmlite import ir

from tenonnx_cpu.jit.code.cpu import cpu
from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.vector import F32, I8, I32, I64, Builder, Value

# float32 elements of a vector.
LANES = cpu().lanes

KIND = v.vector(F32, LANES)
MASK = v.vector(ir.IntType(1), LANES)

# Lanes of AVX2's vectors: some processors take 20 cycles to store some of the lanes of one.
BY_PIECES = 8


def lanes_below(b: Builder, count: Value) -> Value:
    """Return the mask of the first ``count`` lanes."""
    numbers = ir.Constant(v.vector(I32, LANES), list(range(LANES)))
    return b.icmp_signed("<", numbers, v.splat(b, b.trunc(count, I32), LANES))


def lanes_between(b: Builder, first: Value, stop: Value) -> Value:
    """Return the mask of the lanes from ``first`` to before ``stop``, which may be no lanes."""
    before = b.xor(lanes_below(b, first), v.constant(MASK, 1))
    return b.and_(before, lanes_below(b, stop))


def load_masked(b: Builder, address: Value, mask: Value, others: Value | None = None) -> Value:
    """Load the lanes of a mask; the others are 0 or as given, and their memory is not touched."""
    return v.load_lanes(b, address, mask, v.constant(KIND, 0.0) if others is None else others, 4)


def store_masked(b: Builder, value: Value, address: Value, mask: Value) -> None:
    """Store the lanes of a mask, which are the first ones, as ``lanes_below`` says."""
    if LANES == BY_PIECES:
        _store_pieces(b, value, address, b.bitcast(mask, I8))
    else:
        v.store_lanes(b, value, address, mask, 4)


def _store_pieces(b: Builder, value: Value, address: Value, bits: Value) -> None:
    """Store all of eight lanes, or the first four, two and one of those that are left."""
    with b.if_else(b.icmp_unsigned("==", bits, I8(255)), likely=True) as (whole, some):
        with whole:
            v.store(b, value, address, 4)
        with some:
            lanes = LANES // 2
            while lanes:
                low, high = (v.shuffle(b, value, value, range(n, n + lanes)) for n in (0, lanes))
                full = b.icmp_unsigned("!=", b.and_(bits, I8(1 << (lanes - 1))), I8(0))
                with b.if_then(full):
                    v.store(b, low, address, 4)
                value = b.select(full, high, low)
                address = b.select(full, b.add(address, I64(4 * lanes)), address)
                bits = b.select(full, b.lshr(bits, I8(lanes)), bits)
                lanes //= 2


def read(b: Builder, address: Value, mask: Value | None, others: Value | None = None) -> Value:
    """Load a vector, or the lanes of a mask, as ``load_masked`` does."""
    return v.load(b, KIND, address, 4) if mask is None else load_masked(b, address, mask, others)


def write(b: Builder, value: Value, address: Value, mask: Value | None) -> None:
    """Store a vector, or the lanes of a mask."""
    if mask is None:
        v.store(b, value, address, 4)
    else:
        store_masked(b, value, address, mask)


def over_row(
    b: Builder,
    count: Value,
    initial: Sequence[Value],
    step: Callable[[Value, Value | None, list[Value]], Sequence[Value]],
) -> list[Value]:
    """Run ``step(offset in bytes, mask, carried) -> carried`` over a row; return what is carried.

    Whole vectors have no mask; the rest of the row, if there is one, does.
    """
    whole = b.sdiv(count, I64(LANES))
    done = b.mul(whole, I64(LANES))
    rest = b.sub(count, done)
    carried = v.loop(
        b, whole, initial, lambda index, own: step(b.mul(index, I64(4 * LANES)), None, own)
    )
    ragged = b.zext(b.icmp_signed(">", rest, I64(0)), I64)
    last = b.mul(done, I64(4))
    return v.loop(b, ragged, carried, lambda _, own: step(last, lanes_below(b, rest), own))


def vectors_for(b: Builder, count: Value) -> Value:
    """Return how many vectors so many elements take."""
    return b.sdiv(b.add(count, I64(LANES - 1)), I64(LANES))


def clipped(b: Builder, x: Value, low: Value, high: Value) -> Value:
    """Return x, or the bound that it is beyond; NaN stays."""
    x = b.select(b.fcmp_ordered("<", x, low), low, x)
    return b.select(b.fcmp_ordered(">", x, high), high, x)


def for_columns(
    b: Builder, columns: Value, vectors: int, write: Callable[[Sequence[Value | None]], None]
) -> None:
    """Have vectors side by side written: all lanes (their masks are ``None``), or ``columns``."""
    whole = b.icmp_signed(">=", columns, I64(LANES * vectors))
    with b.if_else(whole, likely=True) as (every, some):
        with every:
            write([None] * vectors)
        with some:
            write([lanes_below(b, b.sub(columns, I64(LANES * n))) for n in range(vectors)])
