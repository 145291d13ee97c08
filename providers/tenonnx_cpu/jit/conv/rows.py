"""Rows of an image: copied and cleared in whole vectors, the last of them masked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from tenonnx_cpu.jit.products.tile import LANES
from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.vector import F32, I32, I64, Builder, Value

KIND = v.vector(F32, LANES)
MASK = v.vector(ir.IntType(1), LANES)


def lanes_below(b: Builder, count: Value) -> Value:
    """Returns the mask of the first ``count`` lanes."""
    numbers = ir.Constant(v.vector(I32, LANES), list(range(LANES)))
    return b.icmp_signed("<", numbers, v.splat(b, b.trunc(count, I32), LANES))


def lanes_between(b: Builder, first: Value, stop: Value) -> Value:
    """Returns the mask of the lanes from ``first`` to before ``stop``, which may be no lanes."""
    before = b.xor(lanes_below(b, first), v.constant(MASK, 1))
    return b.and_(before, lanes_below(b, stop))


def load_masked(b: Builder, address: Value, mask: Value, others: Value | None = None) -> Value:
    """Loads the lanes of a mask; the others are 0 or as given, and their memory is not touched."""
    others = v.constant(KIND, 0.0) if others is None else others
    pointer = b.inttoptr(address, KIND.as_pointer())
    name = f"llvm.masked.load.v{LANES}f32.p0"
    kind = ir.FunctionType(KIND, [KIND.as_pointer(), I32, MASK, KIND])
    function = cgutils.get_or_insert_function(b.module, kind, name)
    return b.call(function, [pointer, I32(4), mask, others])


def store_masked(b: Builder, value: Value, address: Value, mask: Value) -> None:
    """Stores the lanes of a mask."""
    pointer = b.inttoptr(address, KIND.as_pointer())
    name = f"llvm.masked.store.v{LANES}f32.p0"
    kind = ir.FunctionType(v.VOID, [KIND, KIND.as_pointer(), I32, MASK])
    function = cgutils.get_or_insert_function(b.module, kind, name)
    b.call(function, [value, pointer, I32(4), mask])


def over_row(b: Builder, count: Value, work: Callable[[Value, Value | None], None]) -> None:
    """Runs ``work(offset in bytes, mask)`` over a row of ``count`` floats; whole vectors first."""
    whole = b.sdiv(count, I64(LANES))

    def each(index: Value, carried: list[Value]) -> list[Value]:
        work(b.mul(index, I64(4 * LANES)), None)
        return []

    v.loop(b, whole, [], each)
    done = b.mul(whole, I64(LANES))
    rest = b.sub(count, done)
    with b.if_then(b.icmp_signed(">", rest, I64(0))):
        work(b.mul(done, I64(4)), lanes_below(b, rest))


def read(b: Builder, address: Value, mask: Value | None) -> Value:
    """Loads a vector, or the lanes of a mask."""
    return v.load(b, KIND, address, 4) if mask is None else load_masked(b, address, mask)


def write(b: Builder, value: Value, address: Value, mask: Value | None) -> None:
    """Stores a vector, or the lanes of a mask."""
    if mask is None:
        v.store(b, value, address, 4)
    else:
        store_masked(b, value, address, mask)


@intrinsic
def load_int(typing_context: Any, address: Any) -> Any:
    """Returns the int64 at an address."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return v.load(builder, I64, values[0], 8)

    return types.intp(types.intp), generate


@intrinsic
def copy_row(typing_context: Any, source: Any, target: Any, count: Any) -> Any:
    """Copies adjacent floats from address to address."""

    def body(b: Builder, values: Any) -> None:
        source, target, count = values

        def work(offset: Value, mask: Value | None) -> None:
            write(b, read(b, b.add(source, offset), mask), b.add(target, offset), mask)

        over_row(b, count, work)

    return _procedure("tenonnx_copy_row", 3, body)


@intrinsic
def place_lines(
    typing_context: Any,
    source: Any,
    source_line: Any,
    target: Any,
    count: Any,
    first: Any,
    stop: Any,
    lines: Any,
    fill: Any,
) -> Any:
    """Writes lines of ``count`` floats, of which from ``first`` to ``stop`` are the source's.

    Args:
        source: Address of what comes to ``first`` in the first line.
        source_line: Bytes from line to line of the source.
        target: Address of the lines, one after the other; up to a vector beyond them is written.
        count: Floats of a line.
        first: Where the source begins.
        stop: Where it ends.
        lines: How many lines.
        fill: What the others are.
    """

    def body(b: Builder, values: Any) -> None:
        source, source_line, target, count, first, stop, lines, fill = values
        others = v.splat(b, fill, LANES)

        def column(lane: Value) -> Callable[[Value], Value]:
            mask = lanes_between(b, b.sub(first, lane), b.sub(stop, lane))
            start = b.add(source, b.mul(b.sub(lane, first), I64(4)))
            return lambda offset: load_masked(b, b.add(start, offset), mask, others)

        _columns(b, source_line, target, count, lines, column)

    return _procedure("tenonnx_place_lines", 7, body, 1)


@intrinsic
def place_halved_lines(
    typing_context: Any,
    source: Any,
    source_line: Any,
    target: Any,
    count: Any,
    first: Any,
    stop: Any,
    lines: Any,
    fill: Any,
) -> Any:
    """Like ``place_lines``, of every second float of the source."""

    def body(b: Builder, values: Any) -> None:
        source, source_line, target, count, first, stop, lines, fill = values
        others = v.splat(b, fill, LANES)
        low, high = b.mul(first, I64(2)), b.sub(b.mul(stop, I64(2)), I64(1))

        def column(lane: Value) -> Callable[[Value], Value]:
            halves = []
            for n in range(2):
                half = b.add(b.mul(lane, I64(2)), I64(n * LANES))
                mask = lanes_between(b, b.sub(low, half), b.sub(high, half))
                halves.append((b.add(source, b.mul(b.sub(half, low), I64(4))), mask))

            def read_line(offset: Value) -> Value:
                parts = [
                    load_masked(b, b.add(start, offset), mask, others) for start, mask in halves
                ]
                return v.shuffle(b, parts[0], parts[1], range(0, 2 * LANES, 2))

            return read_line

        _columns(b, source_line, target, count, lines, column)

    return _procedure("tenonnx_place_halved", 7, body, 1)


def _columns(
    b: Builder,
    source_line: Value,
    target: Value,
    count: Value,
    lines: Value,
    column: Callable[[Value], Callable[[Value], Value]],
) -> None:
    """Writes lines a vector's width at a time.

    It begins on the right: what is written beyond a line is overwritten by the next line's own.
    """
    vectors = vectors_for(b, count)

    def step(index: Value, carried: list[Value]) -> list[Value]:
        lane = b.mul(b.sub(b.sub(vectors, I64(1)), index), I64(LANES))
        read_line = column(lane)
        start = b.add(target, b.mul(lane, I64(4)))

        def line(number: Value, carried: list[Value]) -> list[Value]:
            offset, place = carried
            v.store(b, read_line(offset), place, 4)
            return [b.add(offset, source_line), b.add(place, b.mul(count, I64(4)))]

        v.loop(b, lines, [I64(0), start], line)
        return []

    v.loop(b, vectors, [], step)


def vectors_for(b: Builder, count: Value) -> Value:
    """Returns how many vectors so many elements take."""
    return b.sdiv(b.add(count, I64(LANES - 1)), I64(LANES))


def clipped(b: Builder, x: Value, low: Value, high: Value) -> Value:
    """Returns x, or the bound that it is beyond; NaN stays."""
    x = b.select(b.fcmp_ordered("<", x, low), low, x)
    return b.select(b.fcmp_ordered(">", x, high), high, x)


def _procedure(
    name: str, integers: int, body: Callable[[Builder, Any], None], floats: int = 0
) -> Any:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        made = v.function(builder, name, [I64] * integers + [F32] * floats, body)
        builder.call(made, values)
        return context.get_dummy_value()

    return types.void(*[types.intp] * integers, *[types.float32] * floats), generate
