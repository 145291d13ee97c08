"""The rows and tasks of one operation on arrays that broadcast, as numbers."""

from __future__ import annotations

import numpy as np

from tenonnx_cpu.elementwise.kernels.axes import (
    AXIS_WORDS,
    MAX_AXES_WORDS,
    merge_axes,
    share_out,
)
from tenonnx_cpu.elementwise.kernels.opcodes import MAX_INPUTS
from tenonnx_cpu.elementwise.kernels.operations import APPLY_NUMBERS, MAX_OUTER_AXES
from tenonnx_cpu.jit.compiling import Contract, Out, i64, kernel, size
from tenonnx_cpu.jit.vectors.views import on_stack

# Elements that are worth a second thread.
MIN_ELEMENTS_PER_THREAD = 1 << 15

# Elements of a row that are computed at a time: several pieces share a long row among threads.
ROW_PIECE_ELEMENTS = 1 << 13


@kernel(
    (size, size, size, size, size, size, size, size, Out(i64, 1), Out(i64, 1)),
    Contract(
        launch="x, y and z are addresses of arrays, or 0; shape has the rank of the one with most "
        "axes, numbers APPLY_NUMBERS zeros",
        captured=False,
        addressed=True,
    ),
)
def plan_apply(  # type: ignore[no-untyped-def] # the signature has them
    x, y, z, operation, element, itemsize, threads, count, shape, numbers
):
    """Write what ``tenonnx_cpu.elementwise.typed.launch`` gives the kernel.

    The first number is -1 if the arrays do not broadcast, and -2 if the kernel does not take them;
    the last one is how many threads are of use.
    """
    arrays = on_stack(MAX_INPUTS, np.int64)
    arrays[0], arrays[1], arrays[2] = x, y, z
    axes = on_stack(MAX_AXES_WORDS, np.int64)
    found = merge_axes(arrays, count, itemsize, shape, axes)
    elements = 1
    for axis in range(shape.size):
        elements *= shape[axis]
    if found < 0 or not elements or found - 1 > MAX_OUTER_AXES:
        numbers[0] = -1 if found < 0 else -2
        return
    width = axes[0]
    piece = min(width, ROW_PIECE_ELEMENTS)
    pieces = -(-width // piece)
    units = elements // width * pieces
    grain, team = share_out(units, elements, MIN_ELEMENTS_PER_THREAD, threads)
    numbers[0], numbers[1], numbers[2], numbers[3] = operation, element, found - 1, width
    numbers[4], numbers[5], numbers[6], numbers[7] = piece, pieces, units, grain
    numbers[8], numbers[APPLY_NUMBERS - 1] = -(-units // grain), team
    place = 9
    for axis in range(found):
        if axis > 0:
            numbers[place] = axes[axis * AXIS_WORDS]
            place += 1
        for n in range(3):
            numbers[place + n] = axes[axis * AXIS_WORDS + 1 + n]
        numbers[place + 3] = axes[axis * AXIS_WORDS + 1 + MAX_INPUTS]
        place += 4
