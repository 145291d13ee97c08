"""Reductions of adjacent float32 elements that LLVM does not vectorize, or not well enough."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, SupportsFloat

from numba import types

from tenonnx_cpu.jit.compiling import helper, inlined
from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors import vmath
from tenonnx_cpu.jit.vectors.lanes import KIND, LANES, over_row, read, write
from tenonnx_cpu.jit.vectors.vector import I32, I64, Builder, Value

# Vectors compared side by side, so that none waits for the one before it.
CHAINS = 4

# The x below which e**x is less than a normal number.
LOWEST = -87.33

# The start of a maximum, and the value of lanes beyond a row's end.
LEAST = v.constant(KIND, float("-inf"))


def _greater(b: Builder, x: Value, y: Value) -> Value:
    return b.select(b.fcmp_ordered(">", x, y), x, y)


def _highest_lane(b: Builder, best: Value) -> Value:
    lanes = LANES
    while lanes > 1:
        lanes //= 2
        one = v.shuffle(b, best, best, range(lanes))
        best = _greater(b, one, v.shuffle(b, best, best, range(lanes, 2 * lanes)))
    return b.extract_element(best, I32(0))


@v.inline_llvm(types.float32, types.intp, types.intp)
def greatest_at(b: Builder, address: Value, count: Value) -> Value:
    """Return the greatest number at an address, as ``greatest`` does."""
    whole = b.sdiv(count, I64(LANES * CHAINS))

    def wide(index: Value, carried: list[Value]) -> list[Value]:
        place = b.add(address, b.mul(index, I64(4 * LANES * CHAINS)))
        offsets = [I64(4 * LANES * n) for n in range(CHAINS)]
        loaded = [v.load(b, KIND, b.add(place, offset), 4) for offset in offsets]
        return [_greater(b, x, most) for x, most in zip(loaded, carried, strict=True)]

    best, *others = v.loop(b, whole, [LEAST] * CHAINS, wide)
    for other in others:
        best = _greater(b, other, best)
    done = b.mul(whole, I64(LANES * CHAINS))
    start = b.add(address, b.mul(done, I64(4)))

    def single(offset: Value, mask: Value | None, carried: list[Value]) -> list[Value]:
        return [_greater(b, read(b, b.add(start, offset), mask, LEAST), carried[0])]

    return _highest_lane(b, over_row(b, b.sub(count, done), [best], single)[0])


@v.inline_llvm(types.float32, types.intp, types.intp, types.float32, types.intp, types.float32)
def scores_at(
    b: Builder, address: Value, count: Value, scale: Value, added: Value, fill: Value
) -> Value:
    """Multiply in place, add what is at an address if it is not 0; return the greatest.

    Where -inf is added the result is ``fill``, unless that is NaN.
    """
    factor, filled = v.splat(b, scale, LANES), v.splat(b, fill, LANES)
    # NaN is equal to no summand.
    hiding = b.select(b.fcmp_ordered("==", filled, filled), LEAST, filled)
    plain = b.icmp_signed("==", added, I64(0))

    def work(is_plain: bool) -> Callable[[Value, Value | None, list[Value]], list[Value]]:
        def step(offset: Value, mask: Value | None, carried: list[Value]) -> list[Value]:
            place = b.add(address, offset)
            x = read(b, place, mask, LEAST)
            if is_plain:
                x = b.fmul(x, factor)
            else:
                summand = read(b, b.add(added, offset), mask)
                is_hidden = b.fcmp_ordered("==", summand, hiding)
                x = b.select(is_hidden, filled, v.fma(b, x, factor, summand))
            write(b, x, place, mask)
            if mask is not None:
                x = b.select(mask, x, LEAST)
            return [_greater(b, x, carried[0])]

        return step

    best = over_row(b, b.select(plain, count, I64(0)), [LEAST], work(True))
    best = over_row(b, b.select(plain, I64(0), count), best, work(False))
    return _highest_lane(b, best[0])


@v.inline_llvm(types.void, types.intp, types.intp, types.intp, types.float32)
def times_at(b: Builder, source: Value, target: Value, count: Value, factor: Value) -> None:
    """Write the products with a factor to an address, which may be the same."""
    factors = v.splat(b, factor, LANES)

    def step(offset: Value, mask: Value | None, carried: list[Value]) -> list[Value]:
        x = b.fmul(read(b, b.add(source, offset), mask), factors)
        write(b, x, b.add(target, offset), mask)
        return []

    over_row(b, count, [], step)


@inlined
def greatest(x: Any) -> Any:
    """Return the greatest element, passing over NaN; minus infinity of none."""
    return greatest_at(x.ctypes.data, x.size)


def _exp(b: Builder, x: Value) -> Value:
    """Return e**x of a vector of numbers up to 0, as exact as ``vmath.exp``; 0 for no normal."""
    kind = x.type

    def number(value: SupportsFloat) -> Value:
        return v.constant(kind, float(value))

    shifted = v.fma(b, x, number(vmath.LOG2E), number(vmath.SHIFT))
    n = b.fsub(shifted, number(vmath.SHIFT))
    r = v.fma(b, n, number(-vmath.LN2_HIGH), x)
    r = v.fma(b, n, number(-vmath.LN2_LOW), r)
    p = number(vmath.E6)
    for factor in (vmath.E5, vmath.E4, vmath.E3, vmath.E2):
        p = v.fma(b, p, r, number(factor))
    p = b.fadd(v.fma(b, b.fmul(p, r), r, r), number(1))
    bits = v.vector(I32, kind.count)
    power = b.shl(b.bitcast(shifted, bits), v.constant(bits, 23))
    scaled = b.bitcast(b.add(b.bitcast(p, bits), power), kind)
    kept = b.select(b.fcmp_ordered("<", x, number(LOWEST)), number(0), scaled)
    return b.select(b.fcmp_unordered("uno", x, x), x, kept)


@v.inline_llvm(types.float32, types.intp, types.intp, types.intp, types.float32)
def exponentials_at(b: Builder, source: Value, target: Value, count: Value, top: Value) -> Value:
    """Do what ``exponentials`` does, at addresses."""
    subtracted = v.splat(b, top, LANES)

    def step(offset: Value, mask: Value | None, carried: list[Value]) -> list[Value]:
        y = _exp(b, b.fsub(read(b, b.add(source, offset), mask, LEAST), subtracted))
        write(b, y, b.add(target, offset), mask)
        if mask is not None:
            y = b.select(mask, y, v.constant(KIND, 0.0))
        return [b.fadd(carried[0], y)]

    return v.total(b, over_row(b, count, [v.constant(KIND, 0.0)], step)[0])


@helper
def exponentials(x: Any, y: Any, top: Any) -> Any:
    """Write ``exp(x - top)`` into ``y``, which may be ``x``; return the sum.

    ``top`` is the greatest element. What is not a normal number becomes 0.
    """
    return exponentials_at(x.ctypes.data, y.ctypes.data, x.size, top)
