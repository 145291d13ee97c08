"""LLVM vector code for intrinsics that write their own instructions.

Every function takes an ``llvmlite.ir.IRBuilder`` first. Addresses are 64-bit integers, as kernels
have them from ``array.ctypes.data``; offsets are in bytes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from llvmlite import ir
from numba.core import cgutils
from numba.extending import intrinsic

I8, I16, I32, I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
F16, F32, F64 = ir.HalfType(), ir.FloatType(), ir.DoubleType()
VOID = ir.VoidType()
POINTER = I8.as_pointer()

Builder: TypeAlias = Any
# llvmlite's `ir.IRBuilder` and `ir.Value`, which have no types.
Value: TypeAlias = Any


def inline_llvm(result: Any, *kinds: Any) -> Callable[[Callable[..., Any]], Any]:
    """Declare a function that is written into its callers: ``def times(b, x, y)``.

    It gets the builder and the values of its arguments, and returns that of its result.

    Args:
        result: numba's type of the result; ``types.void`` if there is none.
        kinds: numba's types of the arguments.
    """

    def declare(write: Callable[..., Any]) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            found = write(builder, *values)
            return context.get_dummy_value() if found is None else found

        def define(typing_context: Any, *given: Any) -> Any:
            return result(*kinds), generate

        # numba binds what it is called with to these, and tells intrinsics apart by their names.
        define.__name__, define.__qualname__ = write.__name__, write.__qualname__
        define.__doc__ = write.__doc__
        define.__signature__ = inspect.signature(write)  # type: ignore[attr-defined] # inspect reads it
        return intrinsic(define)

    return declare


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


def load_lanes(b: Builder, address: Value, mask: Value, others: Value, align: int = 1) -> Value:
    """Load the lanes of a mask; the others are as given, and their memory is not touched."""
    pointer, name = b.inttoptr(address, others.type.as_pointer()), suffix(others.type)
    given = pointer, I32(align), mask, others
    return call_function(b, f"llvm.masked.load.{name}.p0", others.type, *given)


def store_lanes(b: Builder, value: Value, address: Value, mask: Value, align: int = 1) -> None:
    """Store the lanes of a mask."""
    pointer, name = b.inttoptr(address, value.type.as_pointer()), suffix(value.type)
    call_function(b, f"llvm.masked.store.{name}.p0", VOID, value, pointer, I32(align), mask)


def prefetch(b: Builder, address: Value, level: int = 2) -> None:
    """Bring the cache line of an address into the cache of a level; any address will do."""
    line = b.inttoptr(address, POINTER)
    call_function(b, "llvm.prefetch.p0", VOID, line, I32(0), I32(4 - level), I32(1))


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


def call_function(b: Builder, name: str, result: ir.Type, *arguments: Value) -> Value:
    """Call a function by its symbol: one of LLVM's, of the C library's or of CPython's."""
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    return b.call(cgutils.get_or_insert_function(b.module, kind, name), arguments)


def call(b: Builder, name: str, result: ir.Type, *arguments: Value) -> Value:
    """Call one of LLVM's intrinsics that is overloaded by its result's type."""
    return call_function(b, f"{name}.{suffix(result)}", result, *arguments)


def variable(b: Builder, name: str, kind: ir.Type) -> Value:
    """Return a pointer to a variable of CPython's."""
    return b.module.globals.get(name) or ir.GlobalVariable(b.module, kind, name)


def text(b: Builder, content: str) -> Value:
    """Return a pointer to a text, as C has them."""
    found = cgutils.make_bytearray(content.encode() + b"\0")
    return b.bitcast(cgutils.global_constant(b.module, "text", found), POINTER)


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
