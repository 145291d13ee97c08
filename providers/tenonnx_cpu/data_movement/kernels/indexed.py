"""Elements and slices picked by their places, or written there."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.data_movement.kernels import (
    ADDED,
    GATHERED,
    GREATEST,
    INDEXED_FIELDS,
    LEAST,
    MULTIPLIED,
    SLICED_FIELDS,
    WRITTEN,
)
from tenonnx_cpu.data_movement.kernels.gathered import MANY, gather_bytes
from tenonnx_cpu.data_movement.kernels.runs import copy_runs, width_of
from tenonnx_cpu.elementwise.kernels.operations import (
    ADD,
    BFLOAT16,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    MAX,
    MIN,
    MUL,
    UINT8,
    UINT16,
    UINT32,
)
from tenonnx_cpu.elementwise.kernels.typed_rows import apply_row
from tenonnx_cpu.jit.compiling import Contract, In, Out, helper, i64, inlined, kernel, size, u8
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors.cache_lines import prefetch
from tenonnx_cpu.jit.vectors.memory import load_int, load_word
from tenonnx_cpu.jit.vectors.named import named
from tenonnx_cpu.jit.vectors.views import elements, on_stack

indexed_sizes = named("IndexedSizes", INDEXED_FIELDS)
sliced_sizes = named("SlicedSizes", SLICED_FIELDS)

# Slices whose first bytes are fetched together: one after the other, each waits for memory.
SOON = 64

# Bytes of the data that a task copies before others are written to it.
BLOCK = 1 << 16


@inlined
def move_one(way: Any, data: Any, other: Any, dtype: Any) -> None:
    """Move an element from the data to the other array, or back, where it meets another."""
    here, there = elements(data, 1, dtype), elements(other, 1, dtype)
    if way == GATHERED:
        there[0] = here[0]
    elif way == WRITTEN:
        here[0] = there[0]
    elif way == ADDED:
        here[0] += there[0]
    elif way == MULTIPLIED:
        here[0] *= there[0]
    elif way == GREATEST:
        x, y = here[0], there[0]
        here[0] = x if (x >= y) | (x != x) else y
    elif way == LEAST:
        x, y = here[0], there[0]
        here[0] = x if (x <= y) | (x != x) else y


@inlined
def move_each(way: Any, addresses: Any, other: Any, step: Any, dtype: Any) -> None:
    """Move single elements one way, which is a constant."""
    for n in range(addresses.size):
        if addresses[n]:
            move_one(way, addresses[n], other + n * step, dtype)


@inlined
def move_numbers(way: Any, addresses: Any, other: Any, step: Any, dtype: Any) -> None:
    """Move single elements that meet others."""
    if way == ADDED:
        move_each(ADDED, addresses, other, step, dtype)
    elif way == MULTIPLIED:
        move_each(MULTIPLIED, addresses, other, step, dtype)
    elif way == GREATEST:
        move_each(GREATEST, addresses, other, step, dtype)
    elif way == LEAST:
        move_each(LEAST, addresses, other, step, dtype)


@inlined
def move_bytes(way: Any, addresses: Any, other: Any, step: Any, dtype: Any) -> None:
    """Move single elements as they are."""
    if way == GATHERED:
        move_each(GATHERED, addresses, other, step, dtype)
    else:
        move_each(WRITTEN, addresses, other, step, dtype)


@helper
def meet(way: Any, element: Any, data: Any, other: Any, step: Any, count: Any) -> None:
    """Have adjacent elements meet others, of any type."""
    if way == ADDED:
        apply_row(ADD, element, data, step, other, step, 0, 0, data, count)
    elif way == MULTIPLIED:
        apply_row(MUL, element, data, step, other, step, 0, 0, data, count)
    elif way == GREATEST:
        apply_row(MAX, element, data, step, other, step, 0, 0, data, count)
    elif way == LEAST:
        apply_row(MIN, element, data, step, other, step, 0, 0, data, count)


@helper
def move_integers(sizes: Any, addresses: Any, other: Any, step: Any) -> None:
    """Move single integers that meet others."""
    if sizes.element == INT32:
        move_numbers(sizes.way, addresses, other, step, np.int32)
    elif sizes.element == INT64:
        move_numbers(sizes.way, addresses, other, step, np.int64)
    elif sizes.element == INT8:
        move_numbers(sizes.way, addresses, other, step, np.int8)
    elif sizes.element == UINT8:
        move_numbers(sizes.way, addresses, other, step, np.uint8)
    elif sizes.element == INT16:
        move_numbers(sizes.way, addresses, other, step, np.int16)
    elif sizes.element == UINT16:
        move_numbers(sizes.way, addresses, other, step, np.uint16)
    elif sizes.element == UINT32:
        move_numbers(sizes.way, addresses, other, step, np.uint32)
    else:
        move_numbers(sizes.way, addresses, other, step, np.uint64)


@helper
def move_alone(sizes: Any, addresses: Any, other: Any, step: Any) -> None:
    """Move single elements between their addresses and others, ``step`` bytes apart."""
    if sizes.way <= WRITTEN:
        if sizes.size == 1:
            move_bytes(sizes.way, addresses, other, step, np.uint8)
        elif sizes.size == 2:
            move_bytes(sizes.way, addresses, other, step, np.uint16)
        elif sizes.size == 4:
            move_bytes(sizes.way, addresses, other, step, np.uint32)
        else:
            move_bytes(sizes.way, addresses, other, step, np.uint64)
    elif sizes.element == FLOAT32:
        move_numbers(sizes.way, addresses, other, step, np.float32)
    elif sizes.element == FLOAT64:
        move_numbers(sizes.way, addresses, other, step, np.float64)
    elif (sizes.element == FLOAT16) | (sizes.element == BFLOAT16):
        for n in range(addresses.size):
            if addresses[n]:
                meet(sizes.way, sizes.element, addresses[n], other + n * step, 2, 1)
    else:
        move_integers(sizes, addresses, other, step)


@inlined
def place_at(places: Any, number: Any, wide: Any) -> Any:
    """Return a place, of 8 bytes if they are wide, else of 4."""
    return load_int(places + 8 * number) if wide else i64(load_word(places + 4 * number))


@helper
def find_elements(data: Any, places: Any, sizes: Any, first: Any, addresses: Any) -> Any:
    """Write the addresses of some elements of a row, 0 of those that there are not; count these.

    All are on their way to the cache before the first of them is moved.
    """
    absent = 0
    for n in range(addresses.size):
        place = place_at(places + (first + n) * sizes.place_step, 0, sizes.wide)
        place += sizes.depth if place < 0 else 0
        inside = (place >= 0) & (place < sizes.depth)
        here = data + place * sizes.axis_step + (first + n) * sizes.data_step
        addresses[n] = here if inside else 0
        absent += 0 if inside else 1
        prefetch(addresses[n])
    return absent


@helper
def move_row(
    data: Any, places: Any, other: Any, sizes: Any, first: Any, stop: Any, memory: Any, known: Any
) -> Any:
    """Move some elements of a row; return how many places there are not.

    Args:
        memory: ``MANY`` numbers to work in.
        known: Whether it has where the elements of such places lie.
    """
    beside = sizes.place_step == (8 if sizes.wide else 4) and sizes.other_step == sizes.size
    if beside & (sizes.way == GATHERED):
        if sizes.wide:
            return gather_bytes(data, places, other, sizes, first, stop, memory, known, np.int64)
        return gather_bytes(data, places, other, sizes, first, stop, memory, known, np.int32)
    absent = 0
    for begin in range(first, stop, SOON):
        addresses = memory[: min(SOON, stop - begin)]
        absent += find_elements(data, places, sizes, begin, addresses)
        move_alone(sizes, addresses, other + begin * sizes.other_step, sizes.other_step)
    return absent


@parallel
def move_units(arguments: Any, task: Any, worker: Any) -> None:
    """Move elements of some pieces of rows."""
    data, places, other, wrong, sizes, numbers = arguments
    axes, memory, before = numbers[len(INDEXED_FIELDS) :], on_stack(MANY, np.int64), i64(0)
    for unit in range(task * sizes.grain, min(sizes.units, (task + 1) * sizes.grain)):
        first_row, last_row, piece = 0, sizes.rows, unit
        if sizes.whole:
            first_row, piece = unit // sizes.pieces, unit % sizes.pieces
            last_row = first_row + 1
        first, stop = piece * sizes.piece, min(sizes.width, (piece + 1) * sizes.piece)
        for number in range(first_row, last_row):
            # Of one type with what is added: numba would make both float64.
            row, here, at, there = number, i64(data), i64(places), i64(other)
            for axis in range(sizes.rank):
                length = axes[4 * axis]
                index, row = row % length, row // length
                here += index * axes[4 * axis + 1]
                at += index * axes[4 * axis + 2]
                there += index * axes[4 * axis + 3]
            known = (at == before) & (sizes.width <= MANY)
            if move_row(here, at, there, sizes, first, stop, memory, known):
                wrong[0] = 1
            before = at


@parallel
def copy_block(arguments: Any, task: Any, worker: Any) -> None:
    """Copy some bytes."""
    x, y = arguments
    some, out = x[task * BLOCK : (task + 1) * BLOCK], y[task * BLOCK : (task + 1) * BLOCK]
    for i in range(out.size):
        out[i] = some[i]


@kernel(
    (In(u8, 1), In(u8, 1), In(u8, 1), Out(u8, 1), Out(i64, 1), In(i64, 1), size),
    Contract(
        launch="the places' shape fits the data's; types are some; data is whole to be written to",
        values="places are in the axis",
    ),
)
def move_elements(x, places, updates, y, wrong, numbers, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Pick elements of the data along an axis, or write others to a copy of it.

    Args:
        x: The data: its first element's bytes, or all bytes if it is to be written to.
        places: The first place's bytes.
        updates: The first update's bytes; not read if elements are picked.
        y: The bytes of the result.
        wrong: One number, which becomes 1 if there is no such place, and 0 else.
        numbers: As ``tenonnx_cpu.data_movement.kernels.INDEXED_FIELDS`` says.
        threads: How many threads to use.
    """
    wrong[0] = 0
    sizes = indexed_sizes(numbers)
    data, other = x.ctypes.data, y.ctypes.data
    if sizes.way != GATHERED:
        copy_block((x, y), -(-y.size // BLOCK), threads)
        data, other = y.ctypes.data, updates.ctypes.data
    move_units((data, places.ctypes.data, other, wrong, sizes, numbers), sizes.tasks, threads)


@helper
def move_some(sizes: Any, addresses: Any, other: Any) -> None:
    """Move adjacent slices of more than one element."""
    run = sizes.width * sizes.size
    together = width_of(run)
    for n in range(addresses.size):
        here, there = addresses[n], other + n * run
        if here and sizes.way == GATHERED:
            copy_runs(together, here, 0, there, 0, run, 1)
        elif here and sizes.way == WRITTEN:
            copy_runs(together, there, 0, here, 0, run, 1)
        elif here:
            meet(sizes.way, sizes.element, here, there, sizes.size, sizes.width)


@helper
def find_slices(
    data: Any, places: Any, sizes: Any, axes: Any, unit: Any, count: Any, addresses: Any
) -> Any:
    """Write the addresses of adjacent slices, 0 of those that there are not; count these.

    All are on their way to the cache before the first of them is moved.
    """
    absent, stack, rest = 0, unit // sizes.batch, unit % sizes.batch
    for n in range(count):
        here, inside = data + stack * sizes.batch_step, True
        number = rest if sizes.repeats else unit + n
        rest += 1
        if rest == sizes.batch:
            stack, rest = stack + 1, 0
        for axis in range(sizes.depth):
            place = place_at(places, number * sizes.depth + axis, sizes.wide)
            place += axes[2 * axis] if place < 0 else 0
            inside &= (place >= 0) & (place < axes[2 * axis])
            here += place * axes[2 * axis + 1]
        addresses[n] = here if inside else 0
        absent += 0 if inside else 1
        prefetch(addresses[n])
    return absent


@parallel
def slice_units(arguments: Any, task: Any, worker: Any) -> None:
    """Move some slices."""
    data, places, other, wrong, sizes, numbers = arguments
    axes = numbers[len(SLICED_FIELDS) :]
    addresses = on_stack(SOON, np.int64)
    stop = min(sizes.units, (task + 1) * sizes.grain)
    for unit in range(task * sizes.grain, stop, SOON):
        count = min(SOON, stop - unit)
        if find_slices(data, places, sizes, axes, unit, count, addresses):
            wrong[0] = 1
        there = other + unit * sizes.width * sizes.size
        if sizes.width == 1:
            move_alone(sizes, addresses[:count], there, sizes.size)
        else:
            move_some(sizes, addresses[:count], there)


@kernel(
    (In(u8, 1), In(u8, 1), In(u8, 1), Out(u8, 1), Out(i64, 1), In(i64, 1), size),
    Contract(launch="the data's axes fit the places; types are some", values="places are in axes"),
)
def move_slices(x, places, updates, y, wrong, numbers, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Pick slices of the data, or write others to a copy of it, one after the other.

    Args:
        x: The data's bytes.
        places: The bytes of a number for each axis, of each slice.
        updates: The slices' bytes; not read if slices are picked.
        y: The bytes of the result.
        wrong: One number, which becomes 1 if there is no such place, and 0 else.
        numbers: As ``tenonnx_cpu.data_movement.kernels.SLICED_FIELDS`` says.
        threads: How many threads to use.
    """
    wrong[0] = 0
    sizes = sliced_sizes(numbers)
    data, other = x.ctypes.data, y.ctypes.data
    if sizes.way != GATHERED:
        copy_block((x, y), -(-y.size // BLOCK), threads)
        data, other = y.ctypes.data, updates.ctypes.data
    places_at = places.ctypes.data
    slice_units((data, places_at, other, wrong, sizes, numbers), sizes.tasks, threads)
