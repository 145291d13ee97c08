"""Parts of micro-kernels: numbers of rows times vectors, added up in registers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.dot8 import BYTE_VECTOR, dot
from tenonnx_cpu.jit.vectors.lanes import LANES
from tenonnx_cpu.jit.vectors.vector import F32, I32, I64, Builder, Value

# Rows that share a pointer: x86 addresses base, base + stride and base + 2 * stride at no cost.
ROW_GROUP = 3


class Rows:
    """Addresses of some rows, so far apart.

    Attributes:
        pointers: Those of every ``ROW_GROUP`` rows' first, which a loop may carry and move.
    """

    def __init__(self, b: Builder, start: Value, apart: Value, count: int) -> None:
        self._count = count
        self._within = [I64(0), apart, b.add(apart, apart)]
        self.pointers = addresses(b, start, apart, range(0, count, ROW_GROUP))

    def at(
        self, b: Builder, pointers: Sequence[Value], place: Value | None = None
    ) -> Iterable[Value]:
        """Yield the rows' addresses, ``place`` bytes further on, as they are needed."""
        for row in range(self._count):
            start = pointers[row // ROW_GROUP]
            start = start if place is None else b.add(start, place)
            yield b.add(start, self._within[row % ROW_GROUP])


def addresses(b: Builder, start: Value, apart: Value, numbers: Iterable[int]) -> list[Value]:
    """Return the addresses of lines that are so far apart."""
    return [b.add(start, b.mul(apart, I64(number))) for number in numbers]


def side_by_side(b: Builder, kind: Value, address: Value, count: int) -> list[Value]:
    """Load vectors that follow one another."""
    return [v.load(b, kind, b.add(address, I64(4 * LANES * n)), 4) for n in range(count)]


def number(b: Builder, address: Value) -> Value:
    """Load a float32 into every lane."""
    return v.splat(b, v.load(b, F32, address, 4), LANES)


def word(b: Builder, address: Value) -> Value:
    """Load four bytes into every lane."""
    return b.bitcast(v.splat(b, v.load(b, I32, address), LANES), BYTE_VECTOR)


def add_products(
    b: Builder,
    multiply: Callable[[Builder, Value, Value, Value], Value],
    lefts: Iterable[Value],
    rights: Sequence[Value],
    sums: Sequence[Value],
) -> list[Value]:
    """Add to sums what each left vector makes with every right one: ``multiply(b, x, y, sum)``."""
    result: list[Value] = []
    for left in lefts:
        own = sums[len(result) : len(result) + len(rights)]
        result += [multiply(b, left, x, total) for x, total in zip(rights, own, strict=True)]
    return result


def sum_bytes(b: Builder, left: Value, right: Value, total: Value, bits: int = 8) -> Value:
    """Add the products of unsigned bytes by signed ones, four to a lane; see ``dot``."""
    return dot(b, total, left, right, bits)


def cells(b: Builder, c: Value, c_row: Value, rows: int, vectors: int) -> list[Value]:
    """Return the addresses of a tile's vectors, row after row."""
    return [
        b.add(start, I64(4 * LANES * n))
        for start in addresses(b, c, c_row, range(rows))
        for n in range(vectors)
    ]


def store_sums(b: Builder, sums: Sequence[Value], places: Sequence[Value], adds: Value) -> None:
    """Store vectors of float32, or add them to what is there."""
    with b.if_else(adds) as (add, overwrite):
        with add:
            for place, value in zip(places, sums, strict=True):
                v.store(b, b.fadd(v.load(b, value.type, place, 4), value), place, 4)
        with overwrite:
            for place, value in zip(places, sums, strict=True):
                v.store(b, value, place, 4)
