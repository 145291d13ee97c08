"""The axes and tasks of a program on arrays that broadcast, as numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.elementwise.kernels.axes import (
    AXIS_WORDS,
    MAX_AXES_WORDS,
    merge_axes,
    share_out,
)
from tenonnx_cpu.elementwise.kernels.opcodes import (
    BLOCK_ELEMENTS,
    MAX_AXES,
    MAX_INPUTS,
    MIN_ROW_ELEMENTS,
    PROGRAM_NUMBERS,
    TYPES_PLACE,
)
from tenonnx_cpu.elementwise.kernels.program import bytes_of
from tenonnx_cpu.jit.compiling import Contract, Out, helper, i64, kernel, size
from tenonnx_cpu.jit.vectors.views import on_stack

# Elements times instructions that are worth a second thread.
MIN_OPERATIONS_PER_THREAD = 1 << 15

# Rows of less than ``MIN_ROW_ELEMENTS`` that are told apart at most.
MAX_SHORT_ROWS = 512


@helper
def repeats(axes: Any, count: Any) -> Any:
    """Make the last two axes one, if rows are short and arrays repeat what they have of one.

    Along that one, an array's step may be a number of elements that it repeats, such as a bias's.

    Args:
        axes: As ``merge_axes`` writes them, with steps in elements.
        count: How many arrays there are.
    """
    width = axes[0]
    for n in range(count):
        step, apart = axes[1 + n], axes[AXIS_WORDS + 1 + n]
        known = (apart, step) == (width, 1) or (apart, step) == (0, 1) or (apart, step) == (0, 0)
        if not known:
            return False
    for n in range(count):
        step, apart = axes[1 + n], axes[AXIS_WORDS + 1 + n]
        axes[AXIS_WORDS + 1 + n] = width if apart == 0 and step == 1 else step
    axes[AXIS_WORDS] *= width
    return True


@kernel(
    (
        size, size, size, size, size, size, size, size,
        Out(i64, 1), Out(i64, 1), Out(i64, 2),
    ),
    Contract(
        launch="a to f are addresses of arrays, or 0; shape has the rank of the one with most "
        "axes, or more; numbers are PROGRAM_NUMBERS, of which those from MAX_AXES on say how many "
        "numbers and arrays a program has, and their types; strides has rows of MAX_AXES zeros for "
        "MAX_INPUTS arrays",
        captured=False,
        addressed=True,
    ),
)  # fmt: skip
def plan_program(  # type: ignore[no-untyped-def] # the signature has them
    a, b, c, d, e, f, lines, threads, shape, numbers, strides
):
    """Write how ``run_program`` runs over arrays: see its ``shape`` and ``strides``.

    Behind what that reads come the rows in a task, and how many threads are of use. The first
    number is -1 if the arrays do not broadcast, and -2 if other arrays had better be given.
    """
    arrays = on_stack(MAX_INPUTS, np.int64)
    arrays[0], arrays[1], arrays[2], arrays[3], arrays[4], arrays[5] = a, b, c, d, e, f
    axes = on_stack(MAX_AXES_WORDS, np.int64)
    count = numbers[MAX_AXES + 1]
    found = merge_axes(arrays, count, 4, shape, axes)
    elements = 1
    for axis in range(shape.size):
        elements *= shape[axis]
    if found < 0 or not elements:
        numbers[0] = -1 if found < 0 else -2
        return
    for axis in range(found):
        for n in range(count):
            axes[axis * AXIS_WORDS + 1 + n] //= bytes_of(numbers[TYPES_PLACE + n])
    inner, piece = 0, BLOCK_ELEMENTS
    if found > 1 and 2 * axes[0] <= BLOCK_ELEMENTS and repeats(axes, count):
        inner, piece = 1, BLOCK_ELEMENTS // axes[0] * axes[0]
    kept, width = found - inner, axes[inner * AXIS_WORDS]
    short = width < MIN_ROW_ELEMENTS and elements > MAX_SHORT_ROWS * width
    if kept > MAX_AXES or (kept > 1 and short):
        numbers[0] = -2
        return
    for axis in range(MAX_AXES):
        place, here = MAX_AXES - 1 - axis, (inner + axis) * AXIS_WORDS
        numbers[place] = axes[here] if axis < kept else 1
        for n in range(count):
            strides[n, place] = axes[here + 1 + n] if axis < kept else 0
    units = elements // width * -(-width // piece)
    work = elements * (lines + 1)
    grain, team = share_out(units, work, MIN_OPERATIONS_PER_THREAD, threads)
    numbers[MAX_AXES + 2] = piece
    numbers[PROGRAM_NUMBERS - 2], numbers[PROGRAM_NUMBERS - 1] = grain, team
