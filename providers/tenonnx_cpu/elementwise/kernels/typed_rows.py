"""Rows of elements of any type: loops in vectors, generated for each operation and type."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from llvmlite import ir

from tenonnx_cpu.elementwise.kernels import operations as o
from tenonnx_cpu.elementwise.kernels.typed import (
    ELEMENTS,
    MEANINGS,
    Element,
    Meaning,
    bits_of,
    cast,
)
from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.shared import shared
from tenonnx_cpu.jit.vectors.vector import I64, Builder, Value

# Bytes of the widest operand that are computed at a time.
MAX_OPERAND_BYTES = 64

# Parts of a vector that are computed where a whole one is too long.
PART_OF_VECTOR = 4

I1 = ir.IntType(1)


class TypedOperation(NamedTuple):
    """An operation on a type.

    Attributes:
        meaning: What it computes.
        operands: The types of its operands, as they are read.
        element: The type that names it.
        result: The result's.
    """

    meaning: Meaning
    operands: tuple[Element, ...]
    element: Element
    result: Element


def forms() -> Iterator[tuple[tuple[int, int], tuple[TypedOperation]]]:
    """Yield every operation and type that is computed by itself, and how."""
    for operation in (*ELEMENTS, *MEANINGS):
        for element in ELEMENTS.values():
            key = operation, element.code
            if o.is_known(*key) and o.variant(*key) == key:
                yield key, (_form(operation, element),)


def _form(operation: int, element: Element) -> TypedOperation:
    if operation in ELEMENTS:
        target = ELEMENTS[operation]
        return TypedOperation(cast(target), (element,), element, target)
    count = 1 if operation < o.ADD else 2 if operation < o.WHERE else 3
    operands, result, real = (element,) * count, element, ELEMENTS[o.FLOAT32]
    if operation == o.WHERE:
        operands = (ELEMENTS[o.BOOL], element, element)
    elif operation == o.QUANTIZE:
        operands = (real, real, element)
    elif operation == o.DEQUANTIZE and not element.is_float:
        operands, result = (element, real, element), real
    elif operation in o.TO_BOOL:
        result = ELEMENTS[o.BOOL]
    return TypedOperation(MEANINGS[operation], operands, element, result)


@shared("tenonnx_elements", dict(forms()))
def apply_row(
    b: Builder, form: TypedOperation, /, x: Value, x_step: Value, y: Value, y_step: Value, z: Value,
    z_step: Value, result: Value, count: Value,
) -> None:  # fmt: skip
    """Compute a row of adjacent results.

    Args:
        x: Address of the first operand's first element; likewise y and z, if there are others.
        x_step: Bytes from one to the next. Vectors are for elements side by side, and for one.
        result: Address of the results.
        count: How many.
    """
    given = [(x, x_step), (y, y_step), (z, z_step)][: len(form.operands)]
    computed = [form.result.computed, *(each.computed for each in form.operands)]
    lanes = 8 * MAX_OPERAND_BYTES // max(map(bits_of, computed))
    blocks, is_beside = _blocks(b, form, given, lanes)

    def results(first: Value, step: int) -> Value:
        """Compute one result, or ``step``."""
        from_each = zip(form.operands, blocks if step else given, strict=True)
        xs = [e.load(b, b.add(at, b.mul(first, by)), step) for e, (at, by) in from_each]
        return form.meaning(b, form.element, *xs)

    def some(begin: Value, step: int) -> Callable[[Value, list[Value]], list[Value]]:
        def body(index: Value, carried: list[Value]) -> list[Value]:
            first = b.add(begin, b.mul(index, I64(step or 1)))
            place = b.add(result, b.mul(first, I64(form.result.size)))
            form.result.store(b, results(first, step), place, step)
            return carried

        return body

    few = max(lanes // PART_OF_VECTOR, 2)
    enough = b.and_(is_beside, b.icmp_signed(">=", count, I64(few)))
    with b.if_else(enough, likely=True) as (vectors, alone):
        with vectors:
            # The last ones are computed before others are stored, which may be in their place, and
            # stored when the others are.
            last = b.sub(count, I64(few))
            ending = results(last, few)
            whole = b.sdiv(count, I64(lanes))
            v.loop(b, whole, [], some(I64(0), lanes))
            done = b.mul(whole, I64(lanes))
            rest = b.sdiv(b.sub(count, done), I64(few))
            v.loop(b, rest, [], some(done, few))
            place = b.add(result, b.mul(last, I64(form.result.size)))
            form.result.store(b, ending, place, few)
        with alone:
            v.loop(b, count, [], some(I64(0), 0))


def _blocks(
    b: Builder, form: TypedOperation, given: list[tuple[Value, Value]], lanes: int
) -> tuple[list[tuple[Value, Value]], Value]:
    """Return where vectors of each operand begin, and the bytes from one element to the next.

    One element for all is repeated in memory. The last value is true if all operands have
    vectors: their elements are side by side, or one.
    """
    blocks, beside = [], v.constant(I1, 1)
    # All at the beginning: LLVM takes those of later blocks for memory that grows.
    memory = [b.alloca(v.vector(element.stored, lanes)) for element in form.operands]
    for element, (start, step), repeated in zip(form.operands, given, memory, strict=True):
        is_one = b.icmp_signed("==", step, I64(0))
        beside = b.and_(beside, b.or_(is_one, b.icmp_signed("==", step, I64(element.size))))
        with b.if_then(is_one):
            b.store(v.splat(b, v.load(b, element.stored, start), lanes), repeated)
        blocks.append((b.select(is_one, b.ptrtoint(repeated, I64), start), step))
    return blocks, beside
