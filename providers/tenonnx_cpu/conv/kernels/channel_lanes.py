"""Channels of images in the lanes of vectors, a vector for each place: there, windows, and back."""

from __future__ import annotations

from tenonnx_cpu.conv.kernels.signature import UNROLLED
from tenonnx_cpu.jit.code.cpu import cpu
from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.lanes import (
    KIND,
    LANES,
    MASK,
    clipped,
    lanes_below,
    load_masked,
    read,
    store_masked,
    vectors_for,
    write,
)
from tenonnx_cpu.jit.vectors.shared import shared
from tenonnx_cpu.jit.vectors.vector import F32, I64, Builder, Value

VECTOR_BYTES = 4 * LANES

# Windows side by side that are summed together: sums and weights of 3 x 3 fill the registers.
WINDOWS_TOGETHER = 7 if cpu().registers == 32 else 4

# Whether code for all lanes is apart: with AVX2, a store of some lanes takes a dozen cycles.
WHOLE = LANES == 8


@shared("tenonnx_spread_lines")
def spread_lines(
    b: Builder, /, source: Value, channel: Value, channels: Value, line: Value, lines: Value,
    columns: Value, target: Value, target_line: Value,
) -> None:  # fmt: skip
    """Write lines of some channels with a vector of channels for each column.

    Args:
        source: Address of the first channel's first line.
        channel: Bytes from channel to channel.
        channels: How many lanes count; at least one.
        line: Bytes from line to line.
        lines: How many.
        columns: In a line.
        target: Address of the first vector. From line to line, what is written beyond columns is
            overwritten; up to ``LANES`` vectors beyond the last are.
        target_line: Bytes from line to line of the target.
    """
    last = b.sub(channels, I64(1))
    starts = []
    for lane in range(LANES):
        number = b.select(b.icmp_signed("<", I64(lane), channels), I64(lane), last)
        starts.append(b.add(source, b.mul(number, channel)))

    def row(index: Value, carried: list[Value]) -> list[Value]:
        read, write = b.mul(index, line), b.add(target, b.mul(index, target_line))

        def block(number: Value, carried: list[Value]) -> list[Value]:
            first = b.mul(number, I64(LANES))
            mask = lanes_below(b, b.sub(columns, first))
            place = b.add(read, b.mul(first, I64(4)))
            seen = [load_masked(b, b.add(start, place), mask) for start in starts]
            for lane, x in enumerate(v.transpose(b, seen)):
                v.store(b, x, b.add(write, b.mul(b.add(first, I64(lane)), I64(VECTOR_BYTES))), 4)
            return []

        v.loop(b, vectors_for(b, columns), [], block)
        return []

    v.loop(b, lines, [], row)


@shared("tenonnx_finish_lines", last=(F32, F32))
def finish_lines(
    b: Builder, /, source: Value, source_line: Value, lines: Value, columns: Value, channels: Value,
    target: Value, target_line: Value, target_channel: Value, residual: Value, scales: Value,
    shifts: Value, low: Value, high: Value,
) -> None:  # fmt: skip
    """Write ``clip(source * scale + shift + residual, low, high)``, lanes of which are channels.

    Args:
        source: Address of the first line; of each of its columns there is a vector of channels.
        source_line: Bytes from line to line of it.
        lines: How many.
        columns: In a line.
        channels: How many lanes count; at least one.
        target: Address of the first line of the first channel.
        target_line: Bytes to its next line, and to the next channel.
        residual: Address of what is added, as the target lies; 0 if nothing is.
        scale: Address of a factor per channel.
        shift: Address of a summand per channel.
        low: The least result; NaN stays NaN.
        high: The greatest result.
    """
    low, high = v.splat(b, low, LANES), v.splat(b, high, LANES)
    given = b.icmp_signed("!=", residual, I64(0))
    blocks = vectors_for(b, columns)

    def block(number: Value, carried: list[Value]) -> list[Value]:
        first = b.mul(number, I64(LANES))
        mask = lanes_below(b, b.sub(columns, first))
        added = b.select(given, mask, v.constant(MASK, 0))

        def line(index: Value, carried: list[Value]) -> list[Value]:
            start = b.add(b.add(source, b.mul(index, source_line)), b.mul(first, I64(VECTOR_BYTES)))
            seen = [v.load(b, KIND, b.add(start, I64(VECTOR_BYTES * n)), 4) for n in range(LANES)]
            place = b.add(b.mul(index, target_line), b.mul(first, I64(4)))
            for channel, x in enumerate(v.transpose(b, seen)):
                with b.if_then(b.icmp_signed(">", channels, I64(channel)), likely=True):
                    factor, summand = (
                        v.splat(b, v.load(b, F32, b.add(numbers, I64(4 * channel)), 4), LANES)
                        for numbers in (scales, shifts)
                    )
                    here = b.add(place, b.mul(target_channel, I64(channel)))
                    # Of memory that does not exist, even no lanes are slow to load.
                    other = b.select(given, b.add(residual, here), source)
                    x = b.fadd(v.fma(b, x, factor, summand), load_masked(b, other, added))
                    store_masked(b, clipped(b, x, low, high), b.add(target, here), mask)
            return []

        v.loop(b, lines, [], line)
        return []

    v.loop(b, blocks, [], block)


@shared("tenonnx_slide_channels", UNROLLED, last=(F32, F32))
def slide_channels(
    b: Builder, kernel: int, stride: int, /, source: Value, source_line: Value, source_place: Value,
    top: Value, left: Value, height: Value, width: Value, weights: Value, channels: Value,
    target: Value, target_line: Value, target_place: Value, count: Value, lines: Value,
    residual: Value, scale: Value, shift: Value, zeros: Value, low: Value, high: Value,
) -> None:  # fmt: skip
    """Write ``clip(sum * scale + shift + residual, low, high)`` of what windows see.

    Args:
        source: Address of some channels of the image's first place.
        source_line: Bytes from line to line, and from place to place.
        top: Line and column of what the first window sees first; less than 0 is padding.
        height: Lines and columns of the image; what is beyond is padding.
        weights: Address of a vector per tap.
        channels: How many lanes count; at least one.
        target: Address of those channels of the first result; bytes from line to line of results,
            and from place to place.
        count: Windows in a line.
        lines: How many lines of windows.
        residual: Address of what is added, as the target lies; 0 if nothing is.
        scale: Address of a factor per channel.
        shift: Address of a summand per channel.
        zeros: Address of a vector of zeros.
        low: The least result; NaN stays NaN.
        high: The greatest result.
    """
    taps = [(y, x) for y in range(kernel) for x in range(kernel)]
    low, high = v.splat(b, low, LANES), v.splat(b, high, LANES)
    some_lanes = lanes_below(b, channels)
    known = {
        (y, x): v.load(b, KIND, b.add(weights, I64(VECTOR_BYTES * (y * kernel + x))), 4)
        for y, x in taps
    }
    given = b.icmp_signed("!=", residual, I64(0))
    added = b.select(given, residual, zeros)

    def slide(mask: Value | None) -> None:
        factor, summand = read(b, scale, mask), read(b, shift, mask)

        def store(total: Value, place: Value) -> None:
            other = b.add(added, b.select(given, place, I64(0)))
            x = b.fadd(v.fma(b, total, factor, summand), read(b, other, mask))
            write(b, clipped(b, x, low, high), b.add(target, place), mask)

        def line(index: Value, carried: list[Value]) -> list[Value]:
            made = b.mul(index, target_line)
            seen: Seen = []
            for y in range(kernel):
                row = b.add(top, b.add(b.mul(index, I64(stride)), I64(y)))
                valid = b.icmp_unsigned("<", row, height)
                start = b.add(source, b.mul(row, source_line))
                seen.append((b.select(valid, start, zeros), b.select(valid, source_place, I64(0))))

            def some(wide: int, window: Value, padded: bool) -> None:
                column = b.add(left, b.mul(window, I64(stride)))
                columns = [b.add(column, I64(x)) for x in range((wide - 1) * stride + kernel)]
                there = [b.icmp_unsigned("<", each, width) for each in columns]
                sums = [v.constant(KIND, 0.0)] * wide
                for y, (start, place) in enumerate(seen):
                    here = b.add(start, b.mul(column, place))
                    for x, valid in enumerate(there):
                        address = b.select(valid, here, zeros) if padded else here
                        value = read(b, address, mask)
                        here = b.add(here, place)
                        for n in range(wide):
                            tap = x - n * stride
                            if 0 <= tap < kernel:
                                sums[n] = v.fma(b, value, known[y, tap], sums[n])
                result = b.add(made, b.mul(window, target_place))
                for total in sums:
                    store(total, result)
                    result = b.add(result, target_place)

            def block(index: Value, carried: list[Value]) -> list[Value]:
                # The last ones are among those before, if that many are not left.
                window, most = (
                    b.mul(index, I64(WINDOWS_TOGETHER)),
                    b.sub(count, I64(WINDOWS_TOGETHER)),
                )
                window = b.select(b.icmp_signed("<", window, most), window, most)
                column = b.add(left, b.mul(window, I64(stride)))
                end = b.add(column, I64((WINDOWS_TOGETHER - 1) * stride + kernel))
                inside = b.and_(
                    b.icmp_signed(">=", column, I64(0)), b.icmp_signed("<=", end, width)
                )
                with b.if_else(inside) as (plain, padded):
                    with plain:
                        some(WINDOWS_TOGETHER, window, padded=False)
                    with padded:
                        some(WINDOWS_TOGETHER, window, padded=True)
                return []

            def alone(window: Value, carried: list[Value]) -> list[Value]:
                some(1, window, padded=True)
                return []

            enough = b.icmp_signed(">=", count, I64(WINDOWS_TOGETHER))
            blocks = b.sdiv(b.add(count, I64(WINDOWS_TOGETHER - 1)), I64(WINDOWS_TOGETHER))
            v.loop(b, b.select(enough, blocks, I64(0)), [], block)
            v.loop(b, b.select(enough, I64(0), count), [], alone)
            return []

        v.loop(b, lines, [], line)

    if WHOLE:
        with b.if_else(b.icmp_signed(">=", channels, I64(LANES)), likely=True) as (whole, some_):
            with whole:
                slide(None)
            with some_:
                slide(some_lanes)
    else:
        slide(some_lanes)


# Of each line that windows see, the address of its first column and bytes to the next one.
Seen = list[tuple[Value, Value]]
