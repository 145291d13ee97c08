"""Windows that slide along the lines of a channel of bytes, four neighbours at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from numba.extending import intrinsic

from tenonnx_cpu.int8.depthwise import STRIDES
from tenonnx_cpu.jit.int8.conv_tile import REAL, ROUNDED, SUMMED, to_bytes
from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.dot8 import BYTES, dot
from tenonnx_cpu.jit.vectors.lanes import LANES, clipped
from tenonnx_cpu.jit.vectors.shared import Shared, one_of
from tenonnx_cpu.jit.vectors.vector import F32, I32, I64, Builder, Value

KNOWN = (3, 10)
"""Entries of windows of 3 x 3 and 5 x 5, which have code of their own."""

WIDE = v.vector(F32, LANES)


def _slide(stride: int, known: int) -> Callable[[Builder, Sequence[Value]], None]:
    order = [stride * lane + n for lane in range(LANES) for n in range(4)]

    def body(b: Builder, arguments: Sequence[Value]) -> None:
        plane, line_step, offsets, words, entries, target, count, lines, first, form = arguments[
            :10
        ]
        factor, summand, low, high, zero = (v.splat(b, x, LANES) for x in arguments[10:])
        start = v.splat(b, b.trunc(first, I32), LANES)
        vectors = b.sdiv(b.add(count, I64(LANES - 1)), I64(LANES))

        def word(entry: Value) -> Value:
            own = v.load(b, I32, b.add(words, b.mul(entry, I64(4))), 4)
            return b.bitcast(v.splat(b, own, LANES), BYTES)

        kept = [word(I64(entry)) for entry in range(known)]

        def add(entry: Value, place: Value, weight: Value, total: Value) -> Value:
            offset = v.load(b, I64, b.add(offsets, b.mul(entry, I64(8))), 8)
            seen = v.load(b, BYTES, b.add(place, offset))
            return dot(b, total, v.shuffle(b, seen, seen, order), weight)

        def summed(place: Value) -> Value:
            if known:
                total = start
                for entry, weight in enumerate(kept):
                    total = add(I64(entry), place, weight, total)
                return total

            def step(entry: Value, carried: list[Value]) -> list[Value]:
                return [add(entry, place, word(entry), carried[0])]

            return v.loop(b, entries, [start], step)[0]

        def over(finish: Callable[[Value, Value], None], width: int) -> None:
            def line(number: Value, carried: list[Value]) -> list[Value]:
                source, made = carried

                def step(index: Value, none: list[Value]) -> list[Value]:
                    total = summed(b.add(source, b.mul(index, I64(LANES * stride))))
                    finish(total, b.add(made, b.mul(index, I64(LANES * width))))
                    return []

                v.loop(b, vectors, [], step)
                return [b.add(source, line_step), b.add(made, b.mul(count, I64(width)))]

            v.loop(b, lines, [plane, target], line)

        def real(total: Value) -> Value:
            return v.fma(b, b.sitofp(total, WIDE), factor, summand)

        def rounded(total: Value, place: Value) -> None:
            v.store(b, to_bytes(b, real(total), low, high, zero), place)

        with b.if_then(b.icmp_signed("==", form, I64(ROUNDED))):
            over(rounded, 1)
        with b.if_then(b.icmp_signed("==", form, I64(REAL))):
            over(lambda total, place: v.store(b, clipped(b, real(total), low, high), place, 4), 4)
        with b.if_then(b.icmp_signed("==", form, I64(SUMMED))):
            over(lambda total, place: v.store(b, total, place, 4), 4)

    return body


SLIDES = {
    (stride, known): Shared(
        __file__,
        f"tenonnx_byte_slide_{stride}_{known}",
        [*[I64] * 10, *[F32] * 4, I32],
        _slide(stride, known),
    )
    for stride in STRIDES
    for known in (0, *KNOWN)
}


@intrinsic
def slide_bytes(
    typing_context: Any, stride: Any, known: Any, plane: Any, line_step: Any, offsets: Any,
    words: Any, entries: Any, target: Any, count: Any, lines: Any, first: Any, form: Any,
    factor: Any, summand: Any, low: Any, high: Any, zero: Any,
) -> Any:  # fmt: skip
    """Writes lines of results, each a sum over the window at its place, and what becomes of it.

    Args:
        stride: One of ``STRIDES``.
        known: ``entries`` if it is one of ``KNOWN``, else 0.
        plane: Address of the bytes that the first window begins at.
        line_step: Bytes from one line of windows to the next.
        offsets: Address of an int64 per entry: bytes from a window's first to the entry's.
        words: Address of four int8 per entry.
        entries: How many.
        target: Address of the lines, one after the other; up to a vector beyond is written.
        count: Results of a line.
        lines: How many.
        first: What sums begin with.
        form: ``SUMMED``, ``REAL`` or ``ROUNDED``; see ``tile`` for what is left.
        factor: What sums are multiplied by.
        summand: What is added then.
        low: The least result but for the zero point.
        high: The greatest.
        zero: The zero point.
    """
    return one_of(SLIDES)
