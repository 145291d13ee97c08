"""Places of the greatest and the least elements of any type: in a row, or down columns."""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from tenonnx_cpu.elementwise.kernels import operations as o
from tenonnx_cpu.elementwise.kernels.typed import ELEMENTS, Element
from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.shared import shared
from tenonnx_cpu.jit.vectors.vector import I32, I64, Builder, Value
from tenonnx_cpu.reduce.kernels import GREATEST, LEAST
from tenonnx_cpu.reduce.kernels.row_reductions import TOTALS_BYTES, over_columns

I1 = ir.IntType(1)

SIGNS = {GREATEST: ">", LEAST: "<"}

PLACED_TYPES = {code: each for code, each in ELEMENTS.items() if code != o.BOOL}


def _is_nan(b: Builder, e: Element, x: Value) -> Value:
    return b.fcmp_unordered("uno", x, x) if e.is_float else v.constant(_like_bits(x), 0)


def _like_bits(x: Value) -> ir.Type:
    return v.vector(I1, x.type.count) if isinstance(x.type, ir.VectorType) else I1


def _compared(b: Builder, e: Element, sign: str, x: Value, y: Value) -> Value:
    if e.is_float:
        return b.fcmp_ordered(sign, x, y)
    return (b.icmp_signed if e.is_signed else b.icmp_unsigned)(sign, x, y)


@shared("tenonnx_place_in_row", {(code,): (each,) for code, each in PLACED_TYPES.items()})
def place_in_row(
    b: Builder, e: Element, /, x: Value, count: Value, wanted: Value, last: Value, place: Value
) -> None:
    """Find an element that a row has, or its NaN.

    Args:
        x: Address of the row's elements, side by side.
        count: How many there are.
        wanted: Address of the element, as of ``Element.computed``.
        last: Whether the last one is wanted, not the first.
        place: Address of the result.
    """
    lanes = TOTALS_BYTES // e.size
    from_end = b.icmp_signed("!=", last, I64(0))
    value = v.load(b, e.computed, wanted)
    values, end = v.splat(b, value, lanes), b.sub(count, I64(lanes))

    def found(x: Value, value: Value) -> Value:
        return b.or_(_compared(b, e, "==", x, value), _is_nan(b, e, x))

    with b.if_else(b.icmp_signed(">=", count, I64(lanes))) as (long, short):
        with long:
            before = b.block
            head, after = (b.append_basic_block(name) for name in ("head", "after"))
            b.branch(head)
            b.position_at_end(head)
            passed = b.phi(I64)
            passed.add_incoming(I64(0), before)
            ahead = b.select(b.icmp_signed("<", passed, end), passed, end)
            start = b.select(from_end, b.sub(end, ahead), ahead)
            some = found(e.load(b, b.add(x, b.mul(start, I64(e.size))), lanes), values)
            bits = b.bitcast(some, ir.IntType(lanes))
            bits = bits if lanes == 64 else b.zext(bits, I64)
            following = b.add(passed, I64(lanes))
            passed.add_incoming(following, head)
            # There is one, but for what other threads write meanwhile.
            goes_on = b.and_(
                b.icmp_unsigned("==", bits, I64(0)), b.icmp_signed("<", following, count)
            )
            b.cbranch(goes_on, head, after)
            b.position_at_end(after)
            first = b.cttz(bits, I1(0))
            lane = b.select(from_end, b.sub(I64(63), b.ctlz(bits, I1(0))), first)
            v.store(b, b.add(start, lane), place)
        with short:

            def one(index: Value, carried: list[Value]) -> list[Value]:
                at = b.select(from_end, index, b.sub(b.sub(count, I64(1)), index))
                here = found(e.load(b, b.add(x, b.mul(at, I64(e.size))), 0), value)
                return [b.select(here, at, carried[0])]

            (found_at,) = v.loop(b, count, [I64(0)], one)
            v.store(b, found_at, place)


@shared(
    "tenonnx_place_in_columns",
    {(kind, code): (kind, each) for kind in SIGNS for code, each in PLACED_TYPES.items()},
)
def place_in_columns(
    b: Builder, kind: int, e: Element, /, x: Value, step: Value, count: Value, rows: Value,
    row_step: Value, last: Value, places: Value,
) -> None:  # fmt: skip
    """Find the row of the greatest or the least of each column; NaN is it, the first one.

    Args:
        x: Address of the first row's first element.
        step: Bytes from one column to the next; vectors are for elements side by side.
        count: How many columns there are.
        rows: How many rows there are, less than 2**31.
        row_step: Bytes from one to the next.
        last: Whether of equals the last one is wanted, not the first.
        places: Address of the results, of 8 bytes.
    """
    beside = b.icmp_signed("==", step, I64(e.size))
    from_end = b.icmp_signed("!=", last, I64(0))

    def some(lanes: int, chains: int) -> Callable[[Value], None]:
        def block(column: Value) -> None:
            start = b.add(x, b.mul(column, step))
            width, own = max(lanes, 1), v.vector(I32, lanes) if lanes else I32
            starts = [b.add(start, I64(n * width * e.size)) for n in range(chains)]
            best = [e.load(b, each, lanes) for each in starts]
            any_equal = v.splat(b, from_end, lanes) if lanes else from_end

            def row(index: Value, carried: list[Value]) -> list[Value]:
                number = b.trunc(index, I32)
                number = v.splat(b, number, lanes) if lanes else number
                after = b.mul(index, row_step)
                tops, found = [], []
                for at, top, place in zip(starts, carried[:chains], carried[chains:], strict=True):
                    here = e.load(b, b.add(at, after), lanes)
                    nan = _is_nan(b, e, here)
                    better = b.and_(nan, b.not_(_is_nan(b, e, top)))
                    better = b.or_(better, _compared(b, e, SIGNS[kind], here, top))
                    equal = b.or_(nan, _compared(b, e, "==", here, top))
                    better = b.or_(better, b.and_(any_equal, equal))
                    tops.append(b.select(better, here, top))
                    found.append(b.select(better, number, place))
                return [*tops, *found]

            zeros = [v.constant(own, 0)] * chains
            done = v.loop(b, rows, [*best, *zeros], row)
            for n, found in enumerate(done[chains:]):
                wide = b.zext(found, v.vector(I64, lanes) if lanes else I64)
                v.store(b, wide, b.add(places, b.mul(b.add(column, I64(n * width)), I64(8))))

        return block

    over_columns(b, count, beside, TOTALS_BYTES // max(e.size, 2), some)
