"""Rows of a table at the keys that numbers are."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.data_movement.kernels.runs import copy_runs, width_of
from tenonnx_cpu.jit.compiling import (
    Contract,
    In,
    Out,
    helper,
    i64,
    inlined,
    kernel,
    size,
    u8,
)
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors.views import elements, on_stack
from tenonnx_cpu.ml.kernels import FACTOR, NAN

# The bits of float64 but the sign, and those of infinity and of -0.
MAGNITUDE, INFINITY, NEGATIVE_ZERO = (1 << 63) - 1, 0x7FF << 52, -1 << 63

# Numbers whose rows are found together, before these are copied.
NUMBERS_AT_A_TIME = 256


@inlined
def copy_each(found: Any, count: Any, table: Any, y: Any, dtype: Any) -> None:
    """Copy rows of one element."""
    rows, out = elements(table, 1 << 40, dtype), elements(y, count, dtype)
    for n in range(count):
        out[n] = rows[found[n]]


@helper
def copy_found(found: Any, count: Any, table: Any, row: Any, y: Any) -> None:
    """Copy rows of the table, of ``row`` bytes, one after the other."""
    if row == 8:
        copy_each(found, count, table, y, np.uint64)
    elif row == 4:
        copy_each(found, count, table, y, np.uint32)
    else:
        together = width_of(row)
        for n in range(count):
            copy_runs(together, table + row * found[n], 0, y + row * n, 0, row, 1)


@parallel
def find_whole(arguments: Any, task: Any, worker: Any) -> None:
    """Look up some whole numbers by their distance from the least key."""
    values, least, places, table, row, y, grain = arguments
    found, last = on_stack(NUMBERS_AT_A_TIME, np.int64), np.uint64(places.size - 1)
    stop = min(values.size, (task + 1) * grain)
    for begin in range(task * grain, stop, NUMBERS_AT_A_TIME):
        count = min(NUMBERS_AT_A_TIME, stop - begin)
        some = values[begin : begin + count]
        for n in range(count):  # those below the least are far beyond the last
            found[n] = places[i64(min(np.uint64(some[n] - least), last))]
        copy_found(found, count, table, row, y + row * begin)


@parallel
def find_hashed(arguments: Any, task: Any, worker: Any) -> None:
    """Look up some numbers by their bits."""
    values, floats, slots, shift, table, row, y, grain = arguments
    found, missing = on_stack(NUMBERS_AT_A_TIME, np.int64), slots[slots.shape[0] - 1, 1]
    stop = min(values.size, (task + 1) * grain)
    for begin in range(task * grain, stop, NUMBERS_AT_A_TIME):
        count = min(NUMBERS_AT_A_TIME, stop - begin)
        for n in range(count):
            bits = values[begin + n]
            if floats:
                bits = i64(0) if bits == NEGATIVE_ZERO else bits
                bits = NAN if (bits & MAGNITUDE) > INFINITY else bits
            at = i64(np.uint64(bits * FACTOR) >> np.uint64(shift))
            while slots[at, 0] != bits and slots[at, 1] != missing:
                at += 1
            found[n] = slots[at, 1]
        copy_found(found, count, table, row, y + row * begin)


@kernel(
    (In(i64, 1), size, In(i64, 1), In(u8, 1), size, Out(u8, 1), size, size),
    Contract(plan="places are of the table's rows", launch="y has a row for each value"),
)
def look_up_whole(values, least, places, table, row, y, grain, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Write the rows of whole numbers.

    Args:
        values: They.
        least: The least key.
        places: The row of each number from there on; the last one is of all that are no keys.
        table: The rows.
        row: Bytes of a row.
        y: The numbers' rows.
        grain: Numbers of a task.
        threads: How many to use.
    """
    work = values, least, places, table.ctypes.data, row, y.ctypes.data, grain
    find_whole(work, -(-values.size // grain), threads)


@kernel(
    (In(i64, 1), size, In(i64, 2), size, In(u8, 1), size, Out(u8, 1), size, size),
    Contract(
        plan="slots are 2 ** (64 - shift) and some more, the last of them empty",
        launch="y has a row for each value",
    ),
)
def look_up(values, floats, slots, shift, table, row, y, grain, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Write the rows of numbers.

    Args:
        values: Their bits.
        floats: Whether they are float64.
        slots: Keys, at the first bits of their product with ``FACTOR`` or soon after, and their
            rows; an empty one has the row of numbers that are no keys.
        shift: How many bits the others are.
        table: The rows.
        row: Bytes of a row.
        y: The numbers' rows.
        grain: Numbers of a task.
        threads: How many to use.
    """
    work = values, floats, slots, shift, table.ctypes.data, row, y.ctypes.data, grain
    find_hashed(work, -(-values.size // grain), threads)
