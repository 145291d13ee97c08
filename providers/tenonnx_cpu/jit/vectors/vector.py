"""LLVM vector code for intrinsics that write their own instructions.

Every function takes an ``llvmlite.ir.IRBuilder`` first. Addresses are 64-bit integers, as kernels
have them from ``array.ctypes.data``; offsets are in bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from llvmlite import ir
from numba.core import cgutils

I8, I16, I32, I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
F16, F32, F64 = ir.HalfType(), ir.FloatType(), ir.DoubleType()
VOID = ir.VoidType()
POINTER = I8.as_pointer()

Builder: TypeAlias = Any
# llvmlite's `ir.IRBuilder` and `ir.Value`, which have no types.
Value: TypeAlias = Any


def vector(element: ir.Type, lanes: int) -> ir.VectorType:
    """Return a vector type."""
    return ir.VectorType(element, lanes)


def constant(kind: ir.Type, value: float) -> ir.Constant:
    """Return a constant with the same number in every lane."""
    if isinstance(kind, ir.VectorType):
        return ir.Constant(kind, [value] * kind.count)
    return ir.Constant(kind, value)


def load(b: Builder, kind: ir.Type, address: Value, align: int = 1) -> Value:
    """Load a value from an address."""
    return b.load(b.inttoptr(address, kind.as_pointer()), align=align)


def store(b: Builder, value: Value, address: Value, align: int = 1) -> None:
    """Store a value at an address."""
    b.store(value, b.inttoptr(address, value.type.as_pointer()), align=align)


def prefetch(b: Builder, address: Value, level: int = 2) -> None:
    """Bring the cache line of an address into the cache of a level; any address will do."""
    kind = ir.FunctionType(VOID, [POINTER, I32, I32, I32])
    hint = cgutils.get_or_insert_function(b.module, kind, "llvm.prefetch.p0")
    b.call(hint, [b.inttoptr(address, POINTER), I32(0), I32(4 - level), I32(1)])


def splat(b: Builder, value: Value, lanes: int) -> Value:
    """Return a vector with the value in every lane."""
    kind = vector(value.type, lanes)
    undefined = ir.Constant(kind, ir.Undefined)
    one = b.insert_element(undefined, value, I32(0))
    return b.shuffle_vector(one, undefined, ir.Constant(vector(I32, lanes), [0] * lanes))


def shuffle(b: Builder, x: Value, y: Value, lanes: Sequence[int]) -> Value:
    """Return the lanes named, of x and then y joined."""
    return b.shuffle_vector(x, y, ir.Constant(vector(I32, len(lanes)), list(lanes)))


def fma(b: Builder, x: Value, y: Value, z: Value) -> Value:
    """Return x * y + z, rounded once."""
    return call(b, "llvm.fma", x.type, x, y, z)


def call(b: Builder, name: str, result: ir.Type, *arguments: Value) -> Value:
    """Call one of LLVM's intrinsics that is overloaded by its result's type."""
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    return b.call(
        cgutils.get_or_insert_function(b.module, kind, f"{name}.{suffix(result)}"), arguments
    )


def suffix(kind: ir.Type) -> str:
    """Return a type's name in the names of LLVM's intrinsics: ``v16f32``."""
    if isinstance(kind, ir.VectorType):
        return f"v{kind.count}{suffix(kind.element)}"
    names = {"half": "f16", "float": "f32", "double": "f64"}
    return names.get(str(kind), str(kind))


def total(b: Builder, x: Value) -> Value:
    """Return the sum of a float vector's lanes, added pairwise."""
    kind = x.type
    lanes = kind.count
    while lanes > 1:
        lanes //= 2
        low = shuffle(b, x, x, range(lanes))
        x = b.fadd(low, shuffle(b, x, x, range(lanes, 2 * lanes)))
    return b.extract_element(x, I32(0))


def totals(b: Builder, xs: Sequence[Value]) -> Value:
    """Return the sums of the lanes of some float vectors as one vector, added pairwise.

    There are a power of two of them, no more than each has lanes.
    """
    current = list(xs)
    lanes = width = current[0].type.count
    while len(current) > 1:
        # Every vector has sums in pieces of ``width`` lanes; two of them go into one.
        half = width // 2
        low = [start + i for start in range(0, 2 * lanes, width) for i in range(half)]
        high = [lane + half for lane in low]
        pairs = zip(current[::2], current[1::2], strict=True)
        current = [b.fadd(shuffle(b, x, y, low), shuffle(b, x, y, high)) for x, y in pairs]
        width = half
    (x,) = current
    while width > 1:
        low = [start + i for start in range(0, x.type.count, width) for i in range(width // 2)]
        x = b.fadd(shuffle(b, x, x, low), shuffle(b, x, x, [n + width // 2 for n in low]))
        width //= 2
    return x


def transpose(b: Builder, rows: Sequence[Value]) -> list[Value]:
    """Transpose a square of lanes: as many vectors as each has lanes, a power of two."""
    lanes = len(rows)
    step = 1
    current = list(rows)
    while step < lanes:
        # Exchanges off-diagonal squares of ``step`` lanes between rows that many apart.
        upper = [i if not i & step else lanes + i - step for i in range(lanes)]
        lower = [i + step if not i & step else lanes + i for i in range(lanes)]
        following: list[Value] = [None] * lanes
        for i in range(lanes):
            if not i & step:
                x, y = current[i], current[i + step]
                following[i] = shuffle(b, x, y, upper)
                following[i + step] = shuffle(b, x, y, lower)
        current = following
        step *= 2
    return current


def loop(
    b: Builder,
    count: Value,
    initial: Sequence[Value],
    body: Callable[[Value, list[Value]], Sequence[Value]],
) -> list[Value]:
    """Run ``body(index, carried) -> carried`` for ``index < count``; return what is carried out.

    The values carried stay in registers, which allocated variables do not always.
    """
    before = b.block
    head = b.append_basic_block("head")
    inside = b.append_basic_block("body")
    after = b.append_basic_block("after")
    b.branch(head)
    b.position_at_end(head)
    index = b.phi(I64)
    carried = [b.phi(value.type) for value in initial]
    index.add_incoming(I64(0), before)
    for phi, value in zip(carried, initial, strict=True):
        phi.add_incoming(value, before)
    b.cbranch(b.icmp_signed("<", index, count), inside, after)
    b.position_at_end(inside)
    results = body(index, carried)
    end = b.block
    index.add_incoming(b.add(index, I64(1)), end)
    for phi, value in zip(carried, results, strict=True):
        phi.add_incoming(value, end)
    b.branch(head)
    b.position_at_end(after)
    return carried
