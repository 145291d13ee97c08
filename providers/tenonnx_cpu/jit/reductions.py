"""Reductions of adjacent float32 elements that LLVM does not vectorise by itself."""

from __future__ import annotations

from typing import Any

from numba import types
from numba.extending import intrinsic

from tenonnx_cpu.jit import vector as v
from tenonnx_cpu.jit.compiling import inlined
from tenonnx_cpu.jit.cpu import cpu
from tenonnx_cpu.jit.vector import F32, I32, I64, Builder, Value

LANES = cpu().lanes


def _greater(b: Builder, x: Value, y: Value) -> Value:
    return b.select(b.fcmp_ordered(">", x, y), x, y)


@intrinsic
def _greatest(typing_context: Any, address: Any, count: Any) -> Any:
    def generate(context: Any, b: Any, signature: Any, values: Any) -> Any:
        address, count = values
        kind = v.vector(F32, LANES)
        low = v.constant(kind, float("-inf"))
        whole = b.sdiv(count, I64(LANES))

        def wide(index: Value, carried: list[Value]) -> list[Value]:
            place = b.add(address, b.mul(index, I64(4 * LANES)))
            return [_greater(b, v.load(b, kind, place, 4), carried[0])]

        best = v.loop(b, whole, [low], wide)[0]
        done = b.mul(whole, I64(LANES))

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
