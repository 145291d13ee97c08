"""The axes over which operations on arrays that broadcast loop: the fewest, innermost first."""

from __future__ import annotations

from typing import Any

from tenonnx_cpu.elementwise.kernels.opcodes import MAX_INPUTS
from tenonnx_cpu.jit.compiling import helper
from tenonnx_cpu.jit.threads.sharing import shared_out
from tenonnx_cpu.jit.vectors.memory import load_int, load_word

# Where an array has its number of axes, their lengths, and the bytes between elements
# (`PyArrayObject_fields`).
HEAD = object.__basicsize__
NDIM, SHAPE, STRIDES = HEAD + 8, HEAD + 16, HEAD + 24

# The numbers of an axis: its length, and the bytes between elements of each operand and of the
# result.
AXIS_WORDS = MAX_INPUTS + 2

# Numbers of as many axes as an array of numpy may have.
MAX_AXES_WORDS = 64 * AXIS_WORDS

share_out = helper(shared_out)


@helper
def length_of(array: Any, axis: Any, rank: Any) -> Any:
    """Return the length of an array along one of a result's axes; 1 if it has no such axis."""
    place = axis - (rank - load_word(array + NDIM))
    return load_int(load_int(array + SHAPE) + 8 * place) if place >= 0 else 1


@helper
def step_of(array: Any, axis: Any, rank: Any) -> Any:
    """Return the bytes between an array's elements along a result's axis; 0 where it has one."""
    if length_of(array, axis, rank) == 1:
        return 0
    place = axis - (rank - load_word(array + NDIM))
    return load_int(load_int(array + STRIDES) + 8 * place)


@helper
def merge_axes(arrays: Any, count: Any, itemsize: Any, shape: Any, axes: Any) -> Any:
    """Write the fewest axes to loop over, and the result's shape; return how many they are.

    Args:
        arrays: The addresses of some arrays of numpy.
        count: How many there are.
        itemsize: Bytes of an element of the result.
        shape: As long as the result has axes.
        axes: ``AXIS_WORDS`` numbers for each axis, ``MAX_AXES_WORDS`` in all.

    Returns:
        -1 if the arrays do not broadcast.
    """
    found, result, rank = 0, itemsize, shape.size
    for axis in range(rank - 1, -1, -1):
        length = 1
        for n in range(count):
            own = length_of(arrays[n], axis, rank)
            if own != 1 and length != 1 and own != length:
                return -1
            length = own if own != 1 else length
        shape[axis] = length
        if length == 1:
            continue
        here, below = found * AXIS_WORDS, (found - 1) * AXIS_WORDS
        joins = found > 0
        for n in range(AXIS_WORDS - 1):
            step = step_of(arrays[n], axis, rank) if n < count else 0
            step = result if n == MAX_INPUTS else step
            axes[here + 1 + n] = step
            joins = joins and step == axes[below] * axes[below + 1 + n]
        result *= length
        if joins:
            axes[below] *= length
        else:
            axes[here] = length
            found += 1
    if found == 0:
        axes[0], found = 1, 1
        for n in range(AXIS_WORDS - 1):
            axes[1 + n] = 0
    return found
