"""Elements of any type reduced in registers: along a row, or down columns."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from llvmlite import ir

from tenonnx_cpu.elementwise.kernels import operations as o
from tenonnx_cpu.elementwise.kernels.typed import ELEMENTS, MEANINGS, Element, cast
from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.shared import shared
from tenonnx_cpu.jit.vectors.vector import I32, I64, Builder, Value
from tenonnx_cpu.reduce.kernels import (
    GREATEST,
    LEAST,
    MAGNITUDES,
    PRODUCT,
    REAL_SQUARES,
    SQUARES,
    SUM,
    total_of,
)

TOTALS_BYTES = 64

# Vectors that are combined side by side, so that none waits for the one before it.
COMBINED_CHAINS = 4

# The operations on two elements that are not added.
COMBINED = {GREATEST: o.MAX, LEAST: o.MIN, PRODUCT: o.MUL}


class Reduction(NamedTuple):
    """A kind of reduction of a type.

    Attributes:
        kind: One of ``reduce.kernels``.
        source: The elements' type.
        total: The type that they are combined in.
    """

    kind: int
    source: Element
    total: Element

    @property
    def lanes(self) -> int:
        """Elements of a vector."""
        return TOTALS_BYTES // self.total.size

    def start(self, lanes: int) -> ir.Constant:
        """Return what changes nothing that it is combined with."""
        kind, total = self.total.computed, self.total
        if self.kind not in (GREATEST, LEAST):
            value: float = int(self.kind == PRODUCT)
        elif total.is_float:
            value = float("-inf" if self.kind == GREATEST else "inf")
        else:
            bits = 8 * total.size - total.is_signed
            least = -(1 << bits) if total.is_signed else 0
            value = least if self.kind == GREATEST else (1 << bits) - 1
        return v.constant(v.vector(kind, lanes) if lanes else kind, value)

    def load(self, b: Builder, address: Value, lanes: int) -> Value:
        """Load an element, or some if ``lanes`` is not 0, as they are combined."""
        x = cast(self.total)(b, self.source, self.source.load(b, address, lanes))
        if self.kind == MAGNITUDES:
            return MEANINGS[o.ABS](b, self.total, x)
        return MEANINGS[o.MUL](b, self.total, x, x) if self.kind in (SQUARES, REAL_SQUARES) else x

    def combine(self, b: Builder, x: Value, y: Value) -> Value:
        """Combine two of what elements came to."""
        return MEANINGS[COMBINED.get(self.kind, o.ADD)](b, self.total, x, y)


def reductions() -> Iterator[tuple[tuple[int, int], tuple[Reduction]]]:
    """Yield every kind and type that is computed by itself, and how."""
    for kind in (SUM, MAGNITUDES, SQUARES, REAL_SQUARES, GREATEST, LEAST, PRODUCT):
        for source in ELEMENTS.values():
            if (total := total_of(kind, source.code)) is not None:
                yield (kind, source.code), (Reduction(kind, source, ELEMENTS[total]),)


def halves_of(lanes: int) -> Iterator[int]:
    """Yield the halves of a vector: its lanes' count, down to 2."""
    while lanes > 2:
        lanes //= 2
        yield lanes


def _some(b: Builder, rest: Value, lanes: int, beside: Value) -> Value:
    """Return 1 if a part of a vector is left over, else 0."""
    left = b.and_(b.sdiv(rest, I64(lanes)), I64(1))
    return b.select(beside, left, I64(0))


@shared("tenonnx_reduce_row", dict(reductions()))
def reduce_row(
    b: Builder, form: Reduction, /, x: Value, step: Value, count: Value, rows: Value,
    row_step: Value, units: Value, unit_step: Value, totals: Value, is_first: Value,
) -> None:  # fmt: skip
    """Combine all elements of some rows, and what is at an address; several times.

    Args:
        x: Address of the first row's first element.
        step: Bytes from one to the next; vectors are for elements side by side.
        count: How many a row has.
        rows: How many rows are combined.
        row_step: Bytes from one to the next.
        units: How many results there are.
        unit_step: Bytes from the first row of one to that of the next.
        totals: Address of the results, of the type that elements are combined in.
        is_first: Whether there is nothing at it yet.
    """
    begins, kind = b.icmp_signed("!=", is_first, I64(0)), form.total.computed
    beside = b.icmp_signed("==", step, I64(form.source.size))
    # Of rows' vectors, of parts of one, and of single elements.
    widths = [form.lanes] * COMBINED_CHAINS + [*halves_of(form.lanes), 0]

    def unit(number: Value, carried: list[Value]) -> list[Value]:
        to = b.add(totals, b.mul(number, I64(form.total.size)))
        start = b.add(x, b.mul(number, unit_step))

        def row(index: Value, carried: list[Value]) -> list[Value]:
            at = b.add(start, b.mul(index, row_step))
            return _row(b, form, at, step, count, beside, carried)

        begun = b.select(begins, form.start(0), v.load(b, kind, to))
        starts = [form.start(width) for width in widths[:-1]]
        v.store(b, _total(b, form, v.loop(b, rows, [*starts, begun], row)), to)
        return carried

    v.loop(b, units, [], unit)


def _row(
    b: Builder, form: Reduction, at: Value, step: Value, rest: Value, beside: Value,
    found: list[Value],
) -> list[Value]:  # fmt: skip
    """Combine a row's elements with those before it, each kind of vectors apart."""
    size, lanes = I64(form.source.size), form.lanes
    sums, parts, alone = found[:COMBINED_CHAINS], found[COMBINED_CHAINS:-1], found[-1]
    for chains in (COMBINED_CHAINS, 1):
        wide = lanes * chains
        vectors = b.select(beside, b.sdiv(rest, I64(wide)), I64(0))
        more = functools.partial(_vectors, b, form, at, lanes)
        sums[:chains] = v.loop(b, vectors, sums[:chains], more)
        done = b.mul(vectors, I64(wide))
        at, rest = b.add(at, b.mul(done, size)), b.sub(rest, done)
    for n, half in enumerate(halves_of(lanes)):
        some = _some(b, rest, half, beside)
        (parts[n],) = v.loop(b, some, [parts[n]], functools.partial(_vectors, b, form, at, half))
        done = b.mul(some, I64(half))
        at, rest = b.add(at, b.mul(done, size)), b.sub(rest, done)

    def one(index: Value, carried: list[Value]) -> list[Value]:
        return [form.combine(b, carried[0], form.load(b, b.add(at, b.mul(index, step)), 0))]

    return [*sums, *parts, *v.loop(b, rest, [alone], one)]


def _total(b: Builder, form: Reduction, found: list[Value]) -> Value:
    """Combine what ``_row`` found, with half as many lanes each time."""
    *parts, alone = found[COMBINED_CHAINS:]
    (sum_,) = _joined(b, form, found[:COMBINED_CHAINS])
    for half, part in zip(halves_of(form.lanes), parts, strict=True):
        low, high = (v.shuffle(b, sum_, sum_, range(n, n + half)) for n in (0, half))
        sum_ = form.combine(b, form.combine(b, low, high), part)
    two = [b.extract_element(sum_, I32(n)) for n in (0, 1)]
    return form.combine(b, form.combine(b, *two), alone)


def _vectors(
    b: Builder, form: Reduction, at: Value, lanes: int, index: Value, sums: list[Value]
) -> list[Value]:
    """Combine as many adjacent vectors as there are sums, from one index on."""
    size = lanes * form.source.size
    place = b.add(at, b.mul(index, I64(size * len(sums))))
    places = [b.add(place, I64(size * n)) for n in range(len(sums))]
    pairs = zip(sums, places, strict=True)
    return [form.combine(b, sum_, form.load(b, each, lanes)) for sum_, each in pairs]


def _joined(b: Builder, form: Reduction, sums: list[Value]) -> list[Value]:
    """Combine vectors to one, pair by pair."""
    while len(sums) > 1:
        pairs = zip(sums[::2], sums[1::2], strict=True)
        sums = [form.combine(b, *pair) for pair in pairs]
    return sums


def over_columns(
    b: Builder, count: Value, beside: Value, lanes: int, some: Callable[[int, int], Any]
) -> None:
    """Go over columns, in vectors if their elements are side by side.

    Args:
        count: How many there are.
        beside: Whether they are.
        lanes: Elements of a vector.
        some: Returns what does, of their first column's number, some vectors side by side; called
            with the lanes of one, 0 for a single element, and their count.
    """
    first = I64(0)
    for chains in (COMBINED_CHAINS, COMBINED_CHAINS // 2, 1):
        wide = lanes * chains
        vectors = b.select(beside, b.sdiv(b.sub(count, first), I64(wide)), I64(0))
        _each(b, vectors, first, wide, some(lanes, chains))
        first = b.add(first, b.mul(vectors, I64(wide)))
    for half in halves_of(lanes):
        part = _some(b, b.sub(count, first), half, beside)
        _each(b, part, first, half, some(half, 1))
        first = b.add(first, b.mul(part, I64(half)))
    _each(b, b.sub(count, first), first, 1, some(0, 1))


def _each(
    b: Builder, count: Value, first: Value, width: int, body: Callable[[Value], None]
) -> None:
    def one(index: Value, carried: list[Value]) -> list[Value]:
        body(b.add(first, b.mul(index, I64(width))))
        return carried

    v.loop(b, count, [], one)


@shared("tenonnx_reduce_columns", dict(reductions()))
def reduce_columns(
    b: Builder, form: Reduction, /, x: Value, step: Value, count: Value, rows: Value,
    row_step: Value, totals: Value, is_first: Value,
) -> None:  # fmt: skip
    """Combine the elements of each column, and what is at its address.

    Args:
        x: Address of the first row's first element.
        step: Bytes from one column to the next; vectors are for elements side by side.
        count: How many columns there are.
        rows: How many rows there are.
        row_step: Bytes from one to the next.
        totals: Address of the results, of the type that elements are combined in.
        is_first: Whether there is nothing at it yet.
    """
    begins = b.icmp_signed("!=", is_first, I64(0))
    beside = b.icmp_signed("==", step, I64(form.source.size))
    kind, size = form.total.computed, form.total.size

    def some(lanes: int, chains: int) -> Callable[[Value], None]:
        own = v.vector(kind, lanes) if lanes else kind

        def block(column: Value) -> None:
            to = b.add(totals, b.mul(column, I64(size)))
            places = [b.add(to, I64(size * lanes * n)) for n in range(chains)]
            sums = [b.select(begins, form.start(lanes), v.load(b, own, each)) for each in places]
            start = b.add(x, b.mul(column, step))

            def row(index: Value, sums: list[Value]) -> list[Value]:
                return _vectors(b, form, b.add(start, b.mul(index, row_step)), lanes, I64(0), sums)

            for sum_, place in zip(v.loop(b, rows, sums, row), places, strict=True):
                v.store(b, sum_, place)

        return block

    over_columns(b, count, beside, form.lanes, some)
