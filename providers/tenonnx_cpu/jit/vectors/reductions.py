"""Reductions of adjacent float32 elements that LLVM does not vectorise, or not well enough."""

from __future__ import annotations

from typing import Any, SupportsFloat

from numba import types
from numba.extending import intrinsic

from tenonnx_cpu.jit.code.cpu import cpu
from tenonnx_cpu.jit.compiling import helper, inlined
from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors import vmath
from tenonnx_cpu.jit.vectors.vector import F32, I32, I64, Builder, Value

LANES = cpu().lanes
CHAINS = 4
"""Vectors compared side by side, so that none waits for the one before it."""

LOWEST = -87.33
"""Where e**x begins to be less than a normal number."""


def _greater(b: Builder, x: Value, y: Value) -> Value:
    return b.select(b.fcmp_ordered(">", x, y), x, y)


@intrinsic
def _greatest(typing_context: Any, address: Any, count: Any) -> Any:
    def generate(context: Any, b: Any, signature: Any, values: Any) -> Any:
        address, count = values
        kind = v.vector(F32, LANES)
        low = v.constant(kind, float("-inf"))
        whole = b.sdiv(count, I64(LANES * CHAINS))

        def wide(index: Value, carried: list[Value]) -> list[Value]:
            place = b.add(address, b.mul(index, I64(4 * LANES * CHAINS)))
            offsets = [I64(4 * LANES * n) for n in range(CHAINS)]
            loaded = [v.load(b, kind, b.add(place, offset), 4) for offset in offsets]
            return [_greater(b, x, most) for x, most in zip(loaded, carried, strict=True)]

        best, *others = v.loop(b, whole, [low] * CHAINS, wide)
        for other in others:
            best = _greater(b, other, best)
        done = b.mul(whole, I64(LANES * CHAINS))

        def single(index: Value, carried: list[Value]) -> list[Value]:
            place = b.add(address, b.mul(b.add(done, index), I64(4)))
            return [_greater(b, v.load(b, F32, place, 4), carried[0])]

        lanes = LANES
        while lanes > 1:
            lanes //= 2
            one = v.shuffle(b, best, best, range(lanes))
            best = _greater(b, one, v.shuffle(b, best, best, range(lanes, 2 * lanes)))
        start = b.extract_element(best, I32(0))
        return v.loop(b, b.sub(count, done), [start], single)[0]

    return types.float32(types.intp, types.intp), generate


@inlined
def greatest(x: Any) -> Any:
    """Returns the greatest element, passing over NaN; minus infinity of none."""
    return _greatest(x.ctypes.data, x.size)


def _exp(b: Builder, x: Value) -> Value:
    """Returns e**x of a vector of numbers up to 0, as exact as ``vmath.exp``; 0 for no normal."""
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


@intrinsic
def _vector_exponentials(
    typing_context: Any, source: Any, target: Any, count: Any, top: Any
) -> Any:
    def generate(context: Any, b: Any, signature: Any, values: Any) -> Any:
        source, target, count, top = values
        kind = v.vector(F32, LANES)
        subtracted = v.splat(b, top, LANES)

        def step(index: Value, carried: list[Value]) -> list[Value]:
            offset = b.mul(index, I64(4 * LANES))
            x = b.fsub(v.load(b, kind, b.add(source, offset), 4), subtracted)
            y = _exp(b, x)
            v.store(b, y, b.add(target, offset), 4)
            return [b.fadd(carried[0], y)]

        sums = v.loop(b, b.sdiv(count, I64(LANES)), [v.constant(kind, 0.0)], step)
        return v.total(b, sums[0])

    return types.float32(types.intp, types.intp, types.intp, types.float32), generate


@helper
def exponentials(x: Any, y: Any, top: Any) -> Any:
    """Writes ``exp(x - top)`` into ``y``, which may be ``x``; returns the sum.

    ``top`` is the greatest element. What is not a normal number becomes 0.
    """
    total = _vector_exponentials(x.ctypes.data, y.ctypes.data, x.size, top)
    for i in range(x.size // LANES * LANES, x.size):
        y[i] = vmath.exp(x[i] - top)
        total += y[i]
    return total
