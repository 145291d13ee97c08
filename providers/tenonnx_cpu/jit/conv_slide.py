"""Windows that slide along a row of a channel: what they see is summed, or its maximum taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import types
from numba.extending import intrinsic

from tenonnx_cpu.jit import vector as v
from tenonnx_cpu.jit.conv_rows import KIND, clipped, over_row, read, write
from tenonnx_cpu.jit.tile import LANES
from tenonnx_cpu.jit.vector import F32, I64, Builder, Value

UNROLLED = (9, 25)
"""Numbers of taps that have code of their own, without a loop over them."""

Combine = Callable[[Value, Value, Value], Value]
"""From the result so far, what a tap sees, and the address of the tap's weight."""


@intrinsic
def slide_sums(
    typing_context: Any,
    planes: Any,
    offsets: Any,
    weights: Any,
    taps: Any,
    target: Any,
    residual: Any,
    count: Any,
    scale: Any,
    shift: Any,
    low: Any,
    high: Any,
) -> Any:
    """Writes ``clip(sum(weight * seen) * scale + shift + residual, low, high)`` along a row.

    Args:
        planes: Address that the offsets count from; up to a vector beyond the row is read.
        offsets: Address of an int64 per tap: bytes to what the first window sees.
        weights: Address of a float32 per tap.
        taps: How many.
        target: Address of the row.
        residual: Address of as much that is added, or 0.
        count: Floats in the row.
        scale: A factor.
        shift: What is added.
        low: The least result; NaN stays NaN.
        high: The greatest result.
    """

    def emit(unrolled: int) -> Callable[[Builder, Any], None]:
        def body(b: Builder, values: Any) -> None:
            planes, offsets, weights, taps, target, residual, count, *numbers = values
            scale, shift, low, high = (v.splat(b, x, LANES) for x in numbers)

            def combine(total: Value, seen: Value, weight: Value) -> Value:
                return v.fma(b, seen, v.splat(b, v.load(b, F32, weight, 4), LANES), total)

            see = _seer(b, planes, offsets, weights, taps, unrolled, combine, 0.0)

            def finish(other: Value | None) -> Callable[[Value, Value | None], None]:
                def work(offset: Value, mask: Value | None) -> None:
                    x = v.fma(b, see(offset), scale, shift)
                    if other is not None:
                        x = b.fadd(x, read(b, b.add(other, offset), mask))
                    write(b, clipped(b, x, low, high), b.add(target, offset), mask)

                return work

            with b.if_else(b.icmp_signed("==", residual, I64(0))) as (without, given):
                with without:
                    over_row(b, count, finish(None))
                with given:
                    over_row(b, count, finish(residual))

        return body

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        done = builder.append_basic_block("done")
        other = builder.append_basic_block("other")
        choice = builder.switch(values[3], other)
        for unrolled in (0, *UNROLLED):
            made = v.function(
                builder, f"tenonnx_slide_{unrolled}", [I64] * 7 + [F32] * 4, emit(unrolled)
            )
            block = builder.append_basic_block("case") if unrolled else other
            if unrolled:
                choice.add_case(I64(unrolled), block)
            builder.position_at_end(block)
            builder.call(made, values)
            builder.branch(done)
        builder.position_at_end(done)
        return context.get_dummy_value()

    return types.void(*[types.intp] * 7, *[types.float32] * 4), generate


@intrinsic
def slide_maxima(
    typing_context: Any, planes: Any, offsets: Any, taps: Any, target: Any, count: Any
) -> Any:
    """Writes the maximum of what each window sees along a row; NaN is greater than anything."""

    def emit(unrolled: int) -> Callable[[Builder, Any], None]:
        def body(b: Builder, values: Any) -> None:
            planes, offsets, taps, target, count = values

            def combine(best: Value, seen: Value, weight: Value) -> Value:
                return v.call(b, "llvm.maximum", KIND, best, seen)

            see = _seer(b, planes, offsets, offsets, taps, unrolled, combine, float("-inf"))
            over_row(
                b, count, lambda offset, mask: write(b, see(offset), b.add(target, offset), mask)
            )

        return body

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        made = v.function(builder, "tenonnx_slide_maxima", [I64] * 5, emit(0))
        builder.call(made, values)
        return context.get_dummy_value()

    return types.void(*[types.intp] * 5), generate


def _seer(
    b: Builder,
    planes: Value,
    offsets: Value,
    weights: Value,
    taps: Value,
    unrolled: int,
    combine: Combine,
    start: float,
) -> Callable[[Value], Value]:
    """Returns what combines all that a vector of windows, some bytes into the row, sees."""
    places = [
        b.add(planes, v.load(b, I64, b.add(offsets, I64(8 * tap)), 8)) for tap in range(unrolled)
    ]

    def see(offset: Value) -> Value:
        total = v.constant(KIND, start)
        if unrolled:
            for tap, place in enumerate(places):
                seen = v.load(b, KIND, b.add(place, offset), 4)
                total = combine(total, seen, b.add(weights, I64(4 * tap)))
            return total

        def step(tap: Value, carried: list[Value]) -> list[Value]:
            place = b.add(planes, v.load(b, I64, b.add(offsets, b.mul(tap, I64(8))), 8))
            seen = v.load(b, KIND, b.add(place, offset), 4)
            return [combine(carried[0], seen, b.add(weights, b.mul(tap, I64(4))))]

        return v.loop(b, taps, [total], step)[0]

    return see
