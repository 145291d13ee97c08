"""Adjacent elements of a row picked by their places."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic

from tenonnx_cpu.jit.compiling import helper, i64, inlined
from tenonnx_cpu.jit.vectors.views import elements

# Adjacent elements that are gathered together: rows of fewer that share places find them once.
MANY = 1024


@intrinsic
def load_alone(typing_context: Any, address: Any, dtype: Any) -> Any:
    """Load a number at an address by itself: as one of a vector it takes most processors longer."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kind = context.get_value_type(signature.return_type)
        pointer = builder.inttoptr(values[0], kind.as_pointer())
        return builder.load_atomic(pointer, "monotonic", kind.width // 8)

    return dtype.dtype(types.intp, dtype), generate


@inlined
def gather_row(
    data: Any, places: Any, other: Any, sizes: Any, first: Any, stop: Any, memory: Any, known: Any,
    dtype: Any, whole: Any,
) -> Any:  # fmt: skip
    """Gather adjacent elements of a row, at ``whole`` numbers.

    Where they lie is found by vectors, some at a time, before they are read one by one.
    """
    absent = 0
    depth, axis_step, data_step = sizes.depth, sizes.axis_step, sizes.data_step
    for begin in range(first, stop, MANY):
        count = min(MANY, stop - begin)
        wanted = elements(places + sizes.place_step * begin, count, whole)
        out = elements(other + sizes.size * begin, count, dtype)
        start = data + begin * data_step
        for i in range(0 if known else count):
            place = i64(wanted[i])
            place += depth & (place >> 63)  # negative ones are from the end
            inside = np.uint64(place) < np.uint64(depth)
            absent += 0 if inside else 1
            memory[i] = (place if inside else 0) * axis_step
        fours = count // 4 * 4
        for i in range(0, fours, 4):
            out[i] = load_alone(start + memory[i], dtype)
            out[i + 1] = load_alone(start + data_step + memory[i + 1], dtype)
            out[i + 2] = load_alone(start + 2 * data_step + memory[i + 2], dtype)
            out[i + 3] = load_alone(start + 3 * data_step + memory[i + 3], dtype)
            start += 4 * data_step
        for i in range(fours, count):
            out[i] = load_alone(start + memory[i], dtype)
            start += data_step
    return absent


@helper
def gather_bytes(
    data: Any, places: Any, other: Any, sizes: Any, first: Any, stop: Any, memory: Any, known: Any,
    whole: Any,
) -> Any:  # fmt: skip
    """Gather adjacent elements of any size."""
    given = (data, places, other, sizes, first, stop, memory, known)
    if sizes.size == 1:
        return gather_row(*given, np.uint8, whole)
    if sizes.size == 2:
        return gather_row(*given, np.uint16, whole)
    if sizes.size == 4:
        return gather_row(*given, np.uint32, whole)
    return gather_row(*given, np.uint64, whole)
