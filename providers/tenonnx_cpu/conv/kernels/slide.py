"""Windows that slide along a row of a channel: what they see is summed, or its maximum taken."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from tenonnx_cpu.conv.depthwise import UNROLLED_WINDOWS
from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.lanes import KIND, LANES, clipped, lanes_below, read, write
from tenonnx_cpu.jit.vectors.vector import F32, I64, Builder, Value

UNROLLED = dict(enumerate(UNROLLED_WINDOWS, 1))
"""Windows that have code of their own, by number; 0 is any other."""

MOST_KNOWN = 9
"""Weights that fit the registers."""

Combine = Callable[[Value, Value, Value], Value]
"""From the result so far, what a tap sees, and the tap's number."""

Work = Callable[[Sequence[Value], Sequence[Value], "Value | None"], None]
"""Makes a vector of some lines: from where in the planes, to where in the result, which lanes."""

TOGETHER = 4
"""Lines that are summed at a time where the taps are not known: each of them waits for itself."""


@intrinsic
def slide_sums(
    typing_context: Any,
    planes: Any,
    pitch: Any,
    offsets: Any,
    weights: Any,
    taps: Any,
    target: Any,
    residual: Any,
    count: Any,
    lines: Any,
    variant: Any,
    scale: Any,
    shift: Any,
    low: Any,
    high: Any,
) -> Any:
    """Writes ``clip(sum(weight * seen) * scale + shift + residual, low, high)``, line by line.

    Args:
        planes: Address that the offsets count from; up to a vector beyond a line is read.
        pitch: Bytes from line to line of the planes.
        offsets: Address of an int64 per tap: bytes to what the first window sees.
        weights: Address of a float32 per tap.
        taps: How many.
        target: Address of the lines, which follow each other.
        residual: Address of as much that is added, or 0.
        count: Floats in a line.
        lines: How many.
        variant: Which of ``UNROLLED`` the windows are, or 0.
        scale: A factor.
        shift: What is added.
        low: The least result; NaN stays NaN.
        high: The greatest result.
    """

    def emit(unrolled: int) -> Callable[[Builder, Any], None]:
        def body(b: Builder, values: Any) -> None:
            planes, pitch, offsets, weights, taps, target, residual, count, lines = values[:9]
            scale, shift, low, high = (v.splat(b, x, LANES) for x in values[10:])
            # Kept in registers: LLVM cannot know that results do not overwrite them.
            count_of = UNROLLED[unrolled][0] ** 2 if unrolled else 0
            known = [_weight(b, weights, I64(tap)) for tap in range(count_of)]

            def combine(total: Value, seen: Value, tap: Value) -> Value:
                is_known = isinstance(tap, ir.Constant) and count_of <= MOST_KNOWN
                weight = known[tap.constant] if is_known else _weight(b, weights, tap)
                return v.fma(b, seen, weight, total)

            see = _seer(b, planes, offsets, taps, unrolled, combine, 0.0)

            def finish(other: Value | None) -> Work:
                def work(seen: Sequence[Value], made: Sequence[Value], mask: Value | None) -> None:
                    for total, place in zip(see(seen), made, strict=True):
                        x = v.fma(b, total, scale, shift)
                        if other is not None:
                            x = b.fadd(x, read(b, b.add(other, place), mask))
                        write(b, clipped(b, x, low, high), b.add(target, place), mask)

                return work

            with b.if_else(b.icmp_signed("==", residual, I64(0))) as (without, given):
                with without:
                    _over_lines(b, count, lines, pitch, unrolled, finish(None))
                with given:
                    _over_lines(b, count, lines, pitch, unrolled, finish(residual))

        return body

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        _choose(builder, "tenonnx_sums", values[9], values, emit)
        return context.get_dummy_value()

    return types.void(*[types.intp] * 10, *[types.float32] * 4), generate


@intrinsic
def slide_maxima(
    typing_context: Any,
    planes: Any,
    pitch: Any,
    offsets: Any,
    taps: Any,
    target: Any,
    count: Any,
    lines: Any,
    variant: Any,
) -> Any:
    """Writes the maximum of what each window sees, line by line; NaN is greater than anything."""

    def emit(unrolled: int) -> Callable[[Builder, Any], None]:
        def body(b: Builder, values: Any) -> None:
            planes, pitch, offsets, taps, target, count, lines = values[:7]

            def combine(best: Value, seen: Value, tap: Value) -> Value:
                return v.call(b, "llvm.maximum", KIND, best, seen)

            see = _seer(b, planes, offsets, taps, unrolled, combine, float("-inf"))

            def work(seen: Sequence[Value], made: Sequence[Value], mask: Value | None) -> None:
                for best, place in zip(see(seen), made, strict=True):
                    write(b, best, b.add(target, place), mask)

            _over_lines(b, count, lines, pitch, unrolled, work)

        return body

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        _choose(builder, "tenonnx_maxima", values[7], values, emit)
        return context.get_dummy_value()

    return types.void(*[types.intp] * 8), generate


def _weight(b: Builder, weights: Value, tap: Value) -> Value:
    return v.splat(b, v.load(b, F32, b.add(weights, b.mul(tap, I64(4))), 4), LANES)


def _choose(
    builder: Builder,
    name: str,
    variant: Value,
    values: list[Value],
    emit: Callable[[int], Callable[[Builder, Any], None]],
) -> None:
    """Calls the function for a variant, which ``emit`` writes."""
    done = builder.append_basic_block("done")
    other = builder.append_basic_block("other")
    choice = builder.switch(variant, other)
    for number in (0, *UNROLLED):
        kinds = [value.type for value in values]
        made = v.function(builder, f"{name}_{number}", kinds, emit(number))
        block = builder.append_basic_block("case") if number else other
        if number:
            choice.add_case(I64(number), block)
        builder.position_at_end(block)
        builder.call(made, values)
        builder.branch(done)
    builder.position_at_end(done)


def _over_lines(
    b: Builder, count: Value, lines: Value, pitch: Value, variant: int, work: Work
) -> None:
    """Runs ``work`` on vectors of each line, or of ``TOGETHER`` lines if there is no variant."""
    apart = b.mul(count, I64(4))

    def some(many: int, times: Value, start: list[Value], mask: Value | None) -> list[Value]:
        def step(number: Value, carried: list[Value]) -> list[Value]:
            seen, made = (
                [b.add(first, b.mul(line, I64(n))) for n in range(many + 1)]
                for first, line in zip(carried, (pitch, apart), strict=True)
            )
            work(seen[:many], made[:many], mask)
            return [seen[many], made[many]]

        return v.loop(b, times, start, step)

    def column(lane: Value, mask: Value | None) -> None:
        start, rest = [b.mul(lane, I64(4))] * 2, lines
        if not variant:
            start = some(TOGETHER, b.sdiv(lines, I64(TOGETHER)), start, mask)
            rest = b.srem(lines, I64(TOGETHER))
        some(1, rest, start, mask)

    whole = b.sdiv(count, I64(LANES))

    def each(index: Value, carried: list[Value]) -> list[Value]:
        column(b.mul(index, I64(LANES)), None)
        return []

    v.loop(b, whole, [], each)
    done = b.mul(whole, I64(LANES))
    rest = b.sub(count, done)
    with b.if_then(b.icmp_signed(">", rest, I64(0))):
        column(done, lanes_below(b, rest))


def _seer(
    b: Builder,
    planes: Value,
    offsets: Value,
    taps: Value,
    variant: int,
    combine: Combine,
    start: float,
) -> Callable[[Sequence[Value]], list[Value]]:
    """Returns what combines all that vectors of windows, some bytes into the planes, see."""
    if variant:
        one = _unrolled(b, planes, offsets, *UNROLLED[variant], combine, start)
        return lambda places: [one(place) for place in places]

    def see(places: Sequence[Value]) -> list[Value]:
        def step(tap: Value, carried: list[Value]) -> list[Value]:
            first = b.add(planes, v.load(b, I64, b.add(offsets, b.mul(tap, I64(8))), 8))
            return [
                combine(total, v.load(b, KIND, b.add(first, place), 4), tap)
                for total, place in zip(carried, places, strict=True)
            ]

        return v.loop(b, taps, [v.constant(KIND, start)] * len(places), step)

    return see


def _unrolled(
    b: Builder,
    planes: Value,
    offsets: Value,
    kernel: int,
    stride: int,
    combine: Combine,
    start: float,
) -> Callable[[Value], Value]:
    """Likewise, for square kernels: what taps see of a row is shifted out of two aligned loads.

    A load that is not aligned takes part of two cache lines, which is slower than a shift.
    """
    phases = range(min(stride, kernel))
    places = {
        (y, x): b.add(planes, v.load(b, I64, b.add(offsets, I64(8 * (y * kernel + x))), 8))
        for y in range(kernel)
        for x in phases
    }

    def see(offset: Value) -> Value:
        total = v.constant(KIND, start)
        for y in range(kernel):
            for phase in phases:
                here = b.add(places[y, phase], offset)
                own = v.load(b, KIND, here, 4 * LANES)
                shifts = range(len(range(phase, kernel, stride)))
                rest = v.load(b, KIND, b.add(here, I64(4 * LANES)), 4 * LANES)
                for shift in shifts:
                    if shift <= LANES:
                        seen = v.shuffle(b, own, rest, range(shift, shift + LANES))
                    else:
                        seen = v.load(b, KIND, b.add(here, I64(4 * shift)), 4)
                    total = combine(total, seen, I64(y * kernel + phase + shift * stride))
        return total

    return see
