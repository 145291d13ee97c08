"""Windows that slide along a row of a channel: what they see is summed, or its maximum taken."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llvmlite import ir

from tenonnx_cpu.conv.kernels.signature import UNROLLED
from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.lanes import KIND, LANES, clipped, lanes_below, read, write
from tenonnx_cpu.jit.vectors.shared import shared
from tenonnx_cpu.jit.vectors.vector import F32, I64, Builder, Value

# Weights that fit the registers.
MOST_KNOWN = 9

# From the result so far, what a tap sees, and the tap's number.
Combine = Callable[[Value, Value, Value], Value]

# Makes a vector of some lines: from where in the planes, to where in the result, which lanes.
Work = Callable[[Sequence[Value], Sequence[Value], "Value | None"], None]

# Lines that are summed at a time where the taps are not known: each of them waits for itself.
LINES_TOGETHER = 4


@shared("tenonnx_sums", {(0,): (0, 0), **UNROLLED}, last=(F32,) * 4)
def slide_sums(
    b: Builder, kernel: int, stride: int, /, planes: Value, pitch: Value, offsets: Value,
    weights: Value, taps: Value, target: Value, residual: Value, count: Value, lines: Value,
    scale: Value, shift: Value, low: Value, high: Value,
) -> None:  # fmt: skip
    """Write ``clip(sum(weight * seen) * scale + shift + residual, low, high)``, line by line.

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
        scale: A factor.
        shift: What is added.
        low: The least result; NaN stays NaN.
        high: The greatest result.
    """
    scale, shift, low, high = (v.splat(b, x, LANES) for x in (scale, shift, low, high))
    # Kept in registers: LLVM cannot know that results do not overwrite them.
    known = [_weight(b, weights, I64(tap)) for tap in range(kernel**2)]

    def combine(total: Value, seen: Value, tap: Value) -> Value:
        is_known = isinstance(tap, ir.Constant) and len(known) <= MOST_KNOWN
        weight = known[tap.constant] if is_known else _weight(b, weights, tap)
        return v.fma(b, seen, weight, total)

    see = _seer(b, planes, offsets, taps, kernel, stride, combine, 0.0)

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
            _over_lines(b, count, lines, pitch, kernel > 0, finish(None))
        with given:
            _over_lines(b, count, lines, pitch, kernel > 0, finish(residual))


@shared("tenonnx_greatest", {(0,): (0, 0), **UNROLLED})
def slide_maxima(
    b: Builder, kernel: int, stride: int, /, planes: Value, pitch: Value, offsets: Value,
    taps: Value, target: Value, count: Value, lines: Value,
) -> None:  # fmt: skip
    """Write the maximum of what each window sees, line by line; NaN is greater than anything."""

    def combine(best: Value, seen: Value, tap: Value) -> Value:
        return greater(b, best, seen)

    see = _seer(b, planes, offsets, taps, kernel, stride, combine, float("-inf"))

    def work(seen: Sequence[Value], made: Sequence[Value], mask: Value | None) -> None:
        for best, place in zip(see(seen), made, strict=True):
            write(b, best, b.add(target, place), mask)

    _over_lines(b, count, lines, pitch, kernel > 0, work)


def greater(b: Builder, x: Value, y: Value) -> Value:
    """Return the greater elements, NaN among them; of zeros of both signs either.

    LLVM's own maximum tells zeros apart, which takes twice as long.
    """
    best = b.select(b.fcmp_ordered(">", x, y), x, y)  # y if either is NaN
    return b.select(b.fcmp_unordered("uno", x, x), x, best)


def _weight(b: Builder, weights: Value, tap: Value) -> Value:
    return v.splat(b, v.load(b, F32, b.add(weights, b.mul(tap, I64(4))), 4), LANES)


def _over_lines(
    b: Builder, count: Value, lines: Value, pitch: Value, unrolled: bool, work: Work
) -> None:
    """Run ``work`` on vectors of each line, or of ``LINES_TOGETHER`` if taps are not known."""
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
        if not unrolled:
            start = some(LINES_TOGETHER, b.sdiv(lines, I64(LINES_TOGETHER)), start, mask)
            rest = b.srem(lines, I64(LINES_TOGETHER))
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
    kernel: int,
    stride: int,
    combine: Combine,
    start: float,
) -> Callable[[Sequence[Value]], list[Value]]:
    """Return what combines all that vectors of windows, some bytes into the planes, see."""
    if kernel:
        one = _unrolled(b, planes, offsets, kernel, stride, combine, start)
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
    """Return what combines all that a vector of windows of a square kernel sees.

    What taps see of a row is shifted out of two aligned loads: one that is not aligned takes part
    of two cache lines, which is slower than a shift.
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
