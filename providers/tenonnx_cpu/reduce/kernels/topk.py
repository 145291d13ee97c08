"""The k greatest or least of each row, of any type and along any axis.

They are kept in a heap, or the row is sorted if they are many.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from tenonnx_cpu.jit.compiling import Contract, In, Out, helper, i64, inlined, kernel, size, u8
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.named import named
from tenonnx_cpu.jit.vectors.shared import shared
from tenonnx_cpu.jit.vectors.vector import I64, Builder, Value
from tenonnx_cpu.jit.vectors.views import elements, on_stack
from tenonnx_cpu.reduce.kernels import COLUMNS, FLOATING, TOP_K_FIELDS, UNSIGNED

top_k_sizes = named("TopKSizes", TOP_K_FIELDS)

# Bytes of elements that are compared with the worst of those that are found at a time.
COMPARED_BYTES = 64

# Values of a digit of keys.
RADIX = 256

# Bits of a float's fraction, by its bytes.
DIGITS = {2: 10, 4: 23, 8: 52}


@shared(
    "tenonnx_first_better",
    {
        **{(size, 0): (size, None) for size in (1, 2, 4, 8)},
        **{(size, 1): (size, digits) for size, digits in DIGITS.items()},
    },
)
def first_better(
    b: Builder, size: int, digits: int | None, /, x: Value, vectors: Value, worst: Value,
    flip: Value, found: Value,
) -> None:  # fmt: skip
    """Find the first of some vectors that has an element whose key is greater than the worst.

    Keys are those of ``key_of``.

    Args:
        x: Address of the elements.
        vectors: How many vectors of ``COMPARED_BYTES`` bytes.
        worst: The key.
        flip: Bits that turn an element, or the key of a float in ascending order, into a key.
        found: Address of the vector's number, ``vectors`` if there is none, and of bits that say
            which of its elements are better.
    """
    element, lanes = ir.IntType(8 * size), COMPARED_BYTES // size
    kind = v.vector(element, lanes)
    flips, bound = (v.splat(b, _narrow(b, each, element), lanes) for each in (flip, worst))
    before = b.block
    head, inside, after = (b.append_basic_block(name) for name in ("head", "vector", "after"))
    b.branch(head)
    b.position_at_end(head)
    index = b.phi(I64)
    index.add_incoming(I64(0), before)
    b.cbranch(b.icmp_signed("<", index, vectors), inside, after)
    b.position_at_end(inside)
    keys = v.load(b, kind, b.add(x, b.mul(index, I64(COMPARED_BYTES))))
    if digits is not None:
        keys = _ascending(b, keys, digits)
    better = b.icmp_signed(">", b.xor(keys, flips), bound)
    bits = b.bitcast(better, ir.IntType(lanes))
    index.add_incoming(b.add(index, I64(1)), inside)
    b.cbranch(b.icmp_unsigned("!=", bits, bits.type(0)), after, head)
    b.position_at_end(after)
    which = b.phi(bits.type)
    which.add_incoming(bits.type(0), head)
    which.add_incoming(bits, inside)
    v.store(b, index, found)
    v.store(b, which if lanes == 64 else b.zext(which, I64), b.add(found, I64(8)))


def _narrow(b: Builder, x: Value, kind: ir.IntType) -> Value:
    return x if kind == x.type else b.trunc(x, kind)


def _ascending(b: Builder, bits: Value, digits: int) -> Value:
    """Return integers in whose order floats come, as ``key_of`` does."""
    kind = bits.type
    width = kind.element.width
    most = (1 << (width - 1)) - 1
    infinity = most >> digits << digits
    magnitude = b.and_(bits, v.constant(kind, most))
    sign = b.ashr(bits, v.constant(kind, width - 1))
    key = b.sub(b.xor(magnitude, sign), sign)
    is_nan = b.icmp_signed(">", magnitude, v.constant(kind, infinity))
    return b.select(is_nan, v.constant(kind, infinity + 1), key)


@inlined
def infinity_of(most: Any) -> Any:
    """Return the bits of infinity, of the greatest integer of the type: float16, 32 or 64."""
    digits = 10 if most == 0x7FFF else 23 if most == 0x7FFFFFFF else 52
    return (most >> digits) << digits


@inlined
def key_of(bits: Any, order: Any, largest: Any, most: Any) -> Any:
    """Return an integer in whose order elements come, the last first.

    Args:
        bits: The element's bits as a signed integer.
        order: One of ``reduce.kernels``.
        largest: Whether the greatest come first.
        most: The greatest integer of the type.
    """
    key = bits
    if order == UNSIGNED:
        key = bits ^ ~most
    elif order == FLOATING:
        magnitude = bits & most
        infinity = infinity_of(most)
        key = magnitude if bits >= 0 else -magnitude
        key = infinity + 1 if magnitude > infinity else key
    return key if largest else ~key


@helper
def is_worse(x: Any, i: Any, y: Any, j: Any) -> Any:
    """Return whether key x, at place i, comes after y, at place j."""
    return (x < y) | ((x == y) & (i > j))


@helper
def sink(keys: Any, places: Any, count: Any) -> None:
    """Move the first of a heap down to where none below is worse."""
    x, i = keys[0], places[0]
    at = 0
    while 2 * at + 1 < count:
        child = 2 * at + 1
        if child + 1 < count and is_worse(
            keys[child + 1], places[child + 1], keys[child], places[child]
        ):
            child += 1
        if not is_worse(keys[child], places[child], x, i):
            break
        keys[at], places[at] = keys[child], places[child]
        at = child
    keys[at], places[at] = x, i


@helper
def rise(keys: Any, places: Any, at: Any) -> None:
    """Move the last of a heap up to where none above is less bad."""
    x, i = keys[at], places[at]
    while at > 0:
        parent = (at - 1) // 2
        if not is_worse(x, i, keys[parent], places[parent]):
            break
        keys[at], places[at] = keys[parent], places[parent]
        at = parent
    keys[at], places[at] = x, i


@inlined
def select(
    x: Any, values: Any, places: Any, size: Any, order: Any, largest: Any, most: Any
) -> None:
    """Find the first of a row in order, the first of equals first.

    ``values`` holds a heap of keys before, whose first is the worst.

    Args:
        x: The row, as signed integers of its elements' size.
        values: The elements that are found, likewise; as many as there are ``places``.
        places: Where they are.
        size: Bytes of an element.
        order: One of ``reduce.kernels``.
        largest: Whether the greatest come first.
        most: The greatest integer of the type.
    """
    count = places.size
    for i in range(count):
        values[i], places[i] = key_of(x[i], order, largest, most), i
        rise(values, places, i)
    flip = ((i64(-1) - i64(most)) if order == UNSIGNED else i64(0)) ^ (
        i64(0) if largest else i64(-1)
    )
    lanes, found = COMPARED_BYTES // size, on_stack(2, np.int64)
    start = count
    while start < x.size:
        vectors = (x.size - start) // lanes
        found[0], found[1] = 0, -1
        if vectors:
            at, kind = x.ctypes.data + start * size, int(order == FLOATING)
            first_better(size, kind, at, vectors, i64(values[0]), flip, found.ctypes.data)
            start += found[0] * lanes
            if found[0] == vectors:
                continue
        for i in range(start, min(start + lanes, x.size)):
            if not (found[1] >> (i - start)) & 1:
                continue
            key = key_of(x[i], order, largest, most)
            # Of equals the one that is there comes first.
            if key > values[0]:
                values[0], places[0] = key, i
                sink(values, places, count)
        start += lanes
    for last in range(count - 1, 0, -1):
        worst, place = values[0], places[0]
        values[0], places[0] = values[last], places[last]
        sink(values, places, last)
        values[last], places[last] = worst, place
    for i in range(count):
        values[i] = x[places[i]]


@inlined
def sort(
    x: Any, values: Any, places: Any, size: Any, order: Any, largest: Any, most: Any, spare: Any
) -> None:
    """Find the first of a row in order, as ``select`` does, by sorting all of it.

    Elements are put in order of their keys' last digits, then of those before.

    Args:
        spare: Address of 32 bytes for each element.
        others: As of ``select``.
    """
    length = x.size
    keys, numbers = elements(spare, 2 * length, np.int64), spare + 16 * length
    numbers = elements(numbers, 2 * length, np.int64)
    counts = on_stack(RADIX, np.int64)
    for i in range(length):
        keys[i], numbers[i] = ~i64(key_of(x[i], order, largest, most)), i
    source, target = i64(0), i64(length)
    for digit in range(size):
        # The first digit has the sign.
        flip = RADIX // 2 if digit == size - 1 else 0
        for i in range(RADIX):
            counts[i] = 0
        for i in range(length):
            counts[((keys[source + i] >> (8 * digit)) & (RADIX - 1)) ^ flip] += 1
        start = target
        for i in range(RADIX):
            count, counts[i] = counts[i], start
            start += count
        for i in range(length):
            key = keys[source + i]
            at = ((key >> (8 * digit)) & (RADIX - 1)) ^ flip
            keys[counts[at]], numbers[counts[at]] = key, numbers[source + i]
            counts[at] += 1
        source, target = target, source
    for i in range(places.size):
        places[i] = numbers[source + i]
        values[i] = x[places[i]]


@inlined
def first_of_row(x: Any, values: Any, places: Any, sizes: Any, most: Any, spare: Any) -> None:
    """Find the first of a row in order."""
    if sizes.sorts:
        sort(x, values, places, sizes.size, sizes.order, sizes.largest, most, spare)
    else:
        select(x, values, places, sizes.size, sizes.order, sizes.largest, most)


@inlined
def gather_columns(x: Any, own: Any, length: Any, inner: Any, width: Any, dtype: Any) -> None:
    """Write columns beside each other as rows; lines are ``inner`` elements apart."""
    lines, rows = elements(x, length * inner, dtype), elements(own, width * length, dtype)
    for n in range(length):
        for i in range(width):
            rows[i * length + n] = lines[n * inner + i]


@inlined
def select_columns(
    x: Any, values: Any, places: Any, block: Any, sizes: Any, own: Any, dtype: Any, most: Any
) -> None:
    """Find the first along an axis whose rows lie beside each other, some at a time.

    Args:
        x: Address of the elements, as of the others.
        values: Of the elements that are found.
        places: Of their places.
        block: The block's number.
        sizes: The numbers.
        own: Of the worker's memory: rows, then what is found, then its places, then what sorting
            needs.
        dtype: Integers of the elements' size.
        most: The greatest of them.
    """
    count, length, inner = sizes.count, sizes.length, sizes.inner
    blocks = -(-inner // COLUMNS)
    stack, left = block // blocks, block % blocks * COLUMNS
    width = min(COLUMNS, inner - left)
    found = own + COLUMNS * length * sizes.size
    numbers = found + count * 8
    start = x + (stack * length * inner + left) * sizes.size
    # A known number of them is moved without a loop, in a third of the time.
    if width == COLUMNS:
        gather_columns(start, own, length, inner, COLUMNS, dtype)
    else:
        gather_columns(start, own, length, inner, width, dtype)
    for i in range(width):
        row = elements(own + i * length * sizes.size, length, dtype)
        some, where = elements(found, count, dtype), elements(numbers, count, np.int64)
        first_of_row(row, some, where, sizes, most, numbers + count * 8)
        first = stack * count * inner + left + i
        out = elements(values + first * sizes.size, (count - 1) * inner + 1, dtype)
        to = elements(places + first * 8, (count - 1) * inner + 1, np.int64)
        for n in range(count):
            out[n * inner], to[n * inner] = some[n], where[n]


@helper
def select_some(
    x: Any, values: Any, places: Any, own: Any, sizes: Any, task: Any, dtype: Any, most: Any
) -> None:
    """Find the first of some rows, of one type."""
    count, length = sizes.count, sizes.length
    rows = sizes.outer if sizes.inner == 1 else sizes.outer * -(-sizes.inner // COLUMNS)
    for row in range(task * sizes.grain, min(rows, (task + 1) * sizes.grain)):
        if sizes.inner == 1:
            line = elements(x + row * length * sizes.size, length, dtype)
            out = elements(values + row * count * sizes.size, count, dtype)
            to = elements(places + row * count * 8, count, np.int64)
            first_of_row(line, out, to, sizes, most, own)
        else:
            select_columns(x, values, places, row, sizes, own, dtype, most)


@parallel
def select_rows(arguments: Any, task: Any, worker: Any) -> None:
    """Find the first of some rows."""
    x, values, places, memory, sizes = arguments
    own = memory + worker * sizes.share
    if sizes.size == 1:
        select_some(x, values, places, own, sizes, task, np.int8, np.int8(0x7F))
    elif sizes.size == 2:
        select_some(x, values, places, own, sizes, task, np.int16, np.int16(0x7FFF))
    elif sizes.size == 4:
        select_some(x, values, places, own, sizes, task, np.int32, np.int32(0x7FFFFFFF))
    else:
        select_some(x, values, places, own, sizes, task, np.int64, np.int64(0x7FFFFFFFFFFFFFFF))


@kernel(
    (In(u8, 1), Out(u8, 1), Out(i64, 1), Out(u8, 1), In(i64, 1), size),
    Contract(launch="elements have an order", values="k is at most the axis, in each run"),
)
def top_k(x, values, places, memory, numbers, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Find the first elements of each row in order, the first of equals first.

    NaN is the greatest.

    Args:
        x: The rows' bytes.
        values: The elements' bytes, at least one of each row.
        places: Where they are.
        memory: A share of each worker, if rows are sorted or not of the last axis.
        numbers: As ``tenonnx_cpu.reduce.kernels.TOP_K_FIELDS`` says.
        threads: How many threads to use.
    """
    sizes = top_k_sizes(numbers)
    given = x.ctypes.data, values.ctypes.data, places.ctypes.data, memory.ctypes.data, sizes
    select_rows(given, sizes.tasks, threads)
