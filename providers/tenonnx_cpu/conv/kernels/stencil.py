"""Small kernels that slide over a channel where it lies: every row is read once for each column.

What a row of the image adds to the next rows of the result is kept in registers until they are
complete.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from tenonnx_cpu.conv.kernels.signature import UNROLLED
from tenonnx_cpu.conv.kernels.slide import greater
from tenonnx_cpu.jit.code.cpu import cpu
from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.lanes import (
    KIND,
    LANES,
    MASK,
    clipped,
    lanes_below,
    lanes_between,
    load_masked,
    store_masked,
)
from tenonnx_cpu.jit.vectors.shared import shared
from tenonnx_cpu.jit.vectors.tiles import number
from tenonnx_cpu.jit.vectors.vector import F32, I64, Builder, Value

# Whether the processor loads some lanes of a vector alone.
DIRECT = cpu().lanes >= 8


class _Stencil:
    """The writer of the function for a square kernel and a stride.

    A step makes one line. It reads as many rows as the stride; they are the last ones of this
    line's windows, and earlier ones of those of the next lines.
    """

    start = 0.0
    """The start of a window's sum, and the value of elements beyond the channel."""
    residual: Value
    numbers: Sequence[Value]
    weights: Sequence[Value]

    def __init__(
        self, b: Builder, kernel: int, stride: int, image: Sequence[Value], result: Sequence[Value]
    ) -> None:
        self.b, self.kernel, self.stride = b, kernel, stride
        self.source, self.height, self.width, self.top, self.left = image
        self.target, self.count, self.lines = result
        self.pending = -(-kernel // stride)
        # What later columns of a window see is shifted in registers where that costs few lanes,
        # for loads that are not aligned take twice as long.
        self.shifted = self.pending - 1 <= LANES // 8
        self.step = LANES - self.pending + 1 if self.shifted else LANES

    def columns(self) -> None:
        """Make all lines, a vector's width at a time."""
        b = self.b

        def column(index: Value, carried: list[Value]) -> list[Value]:
            self.column(b.mul(index, I64(self.step)))
            return []

        columns = b.sdiv(b.add(self.count, I64(self.step - 1)), I64(self.step))
        v.loop(b, columns, [], column)

    def column(self, lane: Value) -> None:
        """Make a vector's width of all lines."""
        b = self.b
        first = b.add(b.mul(lane, I64(self.stride)), self.left)
        # Of a stride of 2, the even columns and the odd ones come from the same two vectors.
        loads = 1 if self.shifted else self.pending if self.stride == 2 else self.kernel
        starts = [
            b.add(first, I64(self.stride * n + LANES * half))
            for n in range(loads)
            for half in range(self.stride)
        ]
        masks = [lanes_between(b, b.neg(start), b.sub(self.width, start)) for start in starts]
        rest = b.sub(self.count, lane)
        fewer = b.icmp_signed("<", rest, I64(self.step))
        inside = lanes_below(b, b.select(fewer, rest, I64(self.step)))
        sums = [v.constant(KIND, self.start)] * self.pending
        early = self.kernel - self.stride
        for y in range(early):
            sums = self.add_row(b.add(self.top, I64(y)), y, starts, masks, sums)

        def line(number: Value, carried: list[Value]) -> list[Value]:
            row = b.add(self.top, b.mul(number, I64(self.stride)))
            sums = carried
            for y in range(early, self.kernel):
                sums = self.add_row(b.add(row, I64(y)), y, starts, masks, sums)
            place = b.mul(b.add(b.mul(number, self.count), lane), I64(4))
            self.finish(sums[0], place, inside)
            return [*sums[1:], v.constant(KIND, self.start)]

        v.loop(b, self.lines, sums, line)

    def add_row(
        self,
        row: Value,
        y: int,
        starts: Sequence[Value],
        masks: Sequence[Value],
        sums: Sequence[Value],
    ) -> list[Value]:
        """Add what a row means for this line, whose windows it is row ``y`` of, and the next."""
        b = self.b
        within = b.and_(b.icmp_signed(">=", row, I64(0)), b.icmp_signed("<", row, self.height))
        address = b.add(self.source, b.mul(b.mul(row, self.width), I64(4)))
        loaded = [
            load_masked(
                b,
                b.add(address, b.mul(start, I64(4))),
                b.select(within, mask, v.constant(MASK, 0)),
                v.constant(KIND, self.start),
            )
            for start, mask in zip(starts, masks, strict=True)
        ]
        return self.combine(y, self.seen(loaded), sums)

    def seen(self, loaded: Sequence[Value]) -> list[Value]:
        """Return what each column of the windows sees of a row."""
        b = self.b
        phases = list(loaded)
        if self.stride == 2:
            pairs = zip(loaded[::2], loaded[1::2], strict=True)
            phases = [
                v.shuffle(b, low, high, range(first, 2 * LANES, 2))
                for low, high in pairs
                for first in range(2)
            ]
        if not self.shifted:
            return phases[: self.kernel]
        return [
            v.shuffle(b, phase, phase, [(lane + x // self.stride) % LANES for lane in range(LANES)])
            for x in range(self.kernel)
            for phase in [phases[x % self.stride]]
        ]

    def combine(self, y: int, seen: Sequence[Value], sums: Sequence[Value]) -> list[Value]:
        """Return sums with what row ``y`` of windows adds to them and to those of next lines."""
        made = list(sums)
        for later in range(self.pending):
            own = y - later * self.stride
            if own >= 0:
                for x in range(self.kernel):
                    weight = self.weights[own * self.kernel + x]
                    made[later] = v.fma(self.b, seen[x], weight, made[later])
        return made

    def finish(self, total: Value, place: Value, inside: Value) -> None:
        b = self.b
        scale, shift, low, high = self.numbers
        x = v.fma(b, total, scale, shift)
        given = b.icmp_signed("!=", self.residual, I64(0))
        mask = b.select(given, inside, v.constant(MASK, 0))
        # Of memory that does not exist, even no lanes are slow to load.
        other = b.select(given, b.add(self.residual, place), self.source)
        x = b.fadd(x, load_masked(b, other, mask))
        store_masked(b, clipped(b, x, low, high), b.add(self.target, place), inside)


class _Maxima(_Stencil):
    """The writer of maxima of windows."""

    start = float("-inf")

    def combine(self, y: int, seen: Sequence[Value], sums: Sequence[Value]) -> list[Value]:
        greatest = functools.reduce(functools.partial(greater, self.b), seen)
        return [
            greater(self.b, total, greatest) if y >= later * self.stride else total
            for later, total in enumerate(sums)
        ]

    def finish(self, total: Value, place: Value, inside: Value) -> None:
        store_masked(self.b, total, self.b.add(self.target, place), inside)


@shared("tenonnx_stencil", UNROLLED, last=(F32,) * 4)
def slide_directly(
    b: Builder, kernel: int, stride: int, /, source: Value, height: Value, width: Value,
    top: Value, left: Value, weights: Value, target: Value, residual: Value, count: Value,
    lines: Value, scale: Value, shift: Value, low: Value, high: Value,
) -> None:  # fmt: skip
    """Write ``clip(sum(weight * seen) * scale + shift + residual, low, high)``, line by line.

    Args:
        source: Address of the channel.
        height: Of the channel.
        top: The row of the channel where the first window begins; it may be before the first.
        left: The column, likewise.
        weights: Address of a float32 per tap.
        target: Address of the lines, which follow each other.
        residual: Address of as much that is added, or 0.
        count: Floats in a line.
        lines: How many.
        scale: A factor.
        shift: What is added.
        low: The least result; NaN stays NaN.
        high: The greatest result.
    """
    made = _Stencil(b, kernel, stride, (source, height, width, top, left), (target, count, lines))
    made.residual = residual
    made.numbers = [v.splat(b, x, LANES) for x in (scale, shift, low, high)]
    made.weights = [number(b, b.add(weights, I64(4 * tap))) for tap in range(kernel**2)]
    made.columns()


@shared("tenonnx_maxima", UNROLLED)
def slide_maxima_directly(
    b: Builder, kernel: int, stride: int, /, source: Value, height: Value, width: Value,
    top: Value, left: Value, target: Value, count: Value, lines: Value,
) -> None:  # fmt: skip
    """Write the maximum of what each window sees, line by line; NaN is greater than anything.

    Args are those of ``slide_directly``.
    """
    _Maxima(b, kernel, stride, (source, height, width, top, left), (target, count, lines)).columns()
