"""Chains of elementwise operators: a program interpreted on blocks that stay in the cache.

One compiled kernel runs every chain. An instruction costs some nanoseconds per block, the block
itself 20 to 200, and what is between two operators never reaches memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.elementwise.kernels import opcodes
from tenonnx_cpu.elementwise.kernels.activate import activate
from tenonnx_cpu.elementwise.kernels.apply_functions import apply_function
from tenonnx_cpu.elementwise.kernels.functions import FUNCTIONS
from tenonnx_cpu.elementwise.kernels.opcodes import (
    BLOCK_ELEMENTS,
    MAX_AXES,
    MAX_INPUTS,
    MEMORY,
    REGISTERS,
    TYPES_PLACE,
)
from tenonnx_cpu.elementwise.kernels.operations import BFLOAT16, FLOAT16, FLOAT32
from tenonnx_cpu.elementwise.kernels.typed_rows import apply_row
from tenonnx_cpu.jit.compiling import Contract, In, Out, f32, helper, i64, kernel, size, u8
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors import activations, vmath
from tenonnx_cpu.jit.vectors.views import floats, on_stack

F = np.float32


@helper
def bytes_of(element: Any) -> Any:
    """Return the bytes of an element of float32, or of 16-bit floats."""
    return 4 if element == FLOAT32 else 2


@helper
def widen(element: Any, source: Any, target: Any, count: Any) -> None:
    """Write adjacent 16-bit floats as float32."""
    if element == FLOAT16:
        apply_row(FLOAT32, FLOAT16, source, 2, 0, 0, 0, 0, target, count)
    else:
        apply_row(FLOAT32, BFLOAT16, source, 2, 0, 0, 0, 0, target, count)


@helper
def narrow(element: Any, source: Any, target: Any, count: Any) -> None:
    """Write adjacent float32 as 16-bit floats."""
    if element == FLOAT16:
        apply_row(FLOAT16, FLOAT32, source, 4, 0, 0, 0, 0, target, count)
    else:
        apply_row(BFLOAT16, FLOAT32, source, 4, 0, 0, 0, 0, target, count)


@helper
def apply_unary(op: Any, x: Any, y: Any) -> None:
    """Apply an operator of one operand that is no activation."""
    if op == opcodes.NEG:
        for i in range(y.size):
            y[i] = -x[i]
    elif op == opcodes.ABS:
        for i in range(y.size):
            y[i] = abs(x[i])
    elif op == opcodes.SQRT:
        for i in range(y.size):
            y[i] = np.sqrt(x[i])
    elif op == opcodes.RECIPROCAL:
        for i in range(y.size):
            y[i] = F(1) / x[i]
    elif op == opcodes.FLOOR:
        for i in range(y.size):
            y[i] = np.floor(x[i])
    elif op == opcodes.CEIL:
        for i in range(y.size):
            y[i] = np.ceil(x[i])
    elif op == opcodes.SQUARE:
        for i in range(y.size):
            y[i] = x[i] * x[i]
    elif op == opcodes.CUBE:
        for i in range(y.size):
            y[i] = x[i] * x[i] * x[i]
    elif op == opcodes.COPY:
        for i in range(y.size):
            y[i] = x[i]
    elif op == opcodes.EXP:
        for i in range(y.size):
            y[i] = vmath.exp(x[i])
    elif op == opcodes.ERF:
        for i in range(y.size):
            y[i] = vmath.erf(x[i])


@helper
def apply_binary(op: Any, x: Any, z: Any, y: Any) -> None:
    """Apply an operator of two operands; maxima and minima hand NaN on, as numpy's do."""
    if op == opcodes.ADD:
        for i in range(y.size):
            y[i] = x[i] + z[i]
    elif op == opcodes.SUB:
        for i in range(y.size):
            y[i] = x[i] - z[i]
    elif op == opcodes.MUL:
        for i in range(y.size):
            y[i] = x[i] * z[i]
    elif op == opcodes.DIV:
        for i in range(y.size):
            y[i] = x[i] / z[i]
    elif op == opcodes.MAX:
        for i in range(y.size):
            y[i] = x[i] if (x[i] >= z[i]) | (x[i] != x[i]) else z[i]
    elif op == opcodes.MIN:
        for i in range(y.size):
            y[i] = x[i] if (x[i] <= z[i]) | (x[i] != x[i]) else z[i]
    elif op == opcodes.PRELU:
        for i in range(y.size):
            y[i] = activations.leaky_relu(x[i], z[i])


@helper
def apply(op: Any, x: Any, z: Any, y: Any, first: Any, second: Any) -> None:
    """Compute ``y = op(x, z)`` for adjacent elements; unary operators do without ``z``."""
    if op >= FUNCTIONS:
        apply_function(op, x, y, first, second)
    elif op >= opcodes.ADD:
        apply_binary(op, x, z, y)
    elif op >= opcodes.RELU:
        activate(op, x, y, first, second)
    else:
        apply_unary(op, x, y)


@helper
def find_row(row: Any, shape: Any, strides: Any, index: Any, places: Any, addresses: Any) -> None:
    """Write a row's place along every axis but the last, and its address in every operand."""
    for n in range(shape[MAX_AXES + 1]):
        places[n] = addresses[n]
    for axis in range(MAX_AXES - 2, -1, -1):
        index[axis] = row % shape[axis]
        row //= shape[axis]
        for n in range(shape[MAX_AXES + 1]):
            places[n] += bytes_of(shape[TYPES_PLACE + n]) * index[axis] * strides[n, axis]


@helper
def next_row(shape: Any, strides: Any, index: Any, places: Any) -> None:
    """Go on to the row after."""
    for axis in range(MAX_AXES - 2, -1, -1):
        index[axis] += 1
        for n in range(shape[MAX_AXES + 1]):
            places[n] += bytes_of(shape[TYPES_PLACE + n]) * strides[n, axis]
        if index[axis] < shape[axis]:
            return
        index[axis] = 0
        for n in range(shape[MAX_AXES + 1]):
            places[n] -= bytes_of(shape[TYPES_PLACE + n]) * strides[n, axis] * shape[axis]


@helper
def fill(block: Any, value: Any) -> None:
    """Write a number to every element."""
    for i in range(block.size):
        block[i] = value


@helper
def repeat(block: Any, values: Any) -> None:
    """Write values one after the other, as often as they fit."""
    for start in range(0, block.size - values.size + 1, values.size):
        for i in range(values.size):
            block[start + i] = values[i]


@helper
def find_operands(
    shape: Any, strides: Any, places: Any, left: Any, blocks: Any, fresh: Any, operands: Any
) -> None:
    """Write where a piece of a row begins in every operand, all of float32.

    Args:
        shape: See ``run_program``.
        strides: See ``run_program``.
        places: Addresses of the row.
        left: Where in it the piece begins.
        blocks: Address of a block for each operand, for what is the same in every piece.
        fresh: Whether it is the first piece of its row here.
        operands: Addresses.
    """
    for n in range(shape[MAX_AXES + 1]):
        period = strides[n, MAX_AXES - 1]
        if period == 1:
            operands[n] = places[n] + 4 * left
        elif fresh:
            operands[n] = blocks + 4 * BLOCK_ELEMENTS * n
            block = floats(operands[n], min(shape[MAX_AXES + 2], shape[MAX_AXES - 1]))
            if period:
                repeat(block, floats(places[n], period))
            else:
                fill(block, floats(places[n], 1)[0])


@helper
def widen_operands(
    shape: Any, strides: Any, places: Any, left: Any, count: Any, blocks: Any, fresh: Any,
    operands: Any,
) -> None:  # fmt: skip
    """Write the same as ``find_operands``, once 16-bit floats are widened.

    ``count`` is how long the piece is.
    """
    for n in range(shape[MAX_AXES + 1]):
        period, element = strides[n, MAX_AXES - 1], shape[TYPES_PLACE + n]
        own, source = blocks + 4 * BLOCK_ELEMENTS * n, places[n]
        if period == 1:
            operands[n] = source + bytes_of(element) * left
            if element != FLOAT32:
                widen(element, operands[n], own, count)
                operands[n] = own
        elif fresh:
            operands[n] = own
            if element != FLOAT32:
                widen(element, source, own, max(period, 1))
                source = own
            block = floats(own, min(shape[MAX_AXES + 2], shape[MAX_AXES - 1]))
            if period:
                repeat(block, floats(source, period))
            else:
                fill(block, floats(source, 1)[0])


@helper
def reads_wide(shape: Any) -> Any:
    """Return whether all arrays are of float32."""
    found = True
    for n in range(shape[MAX_AXES + 1]):
        found = found and shape[TYPES_PLACE + n] == FLOAT32
    return found


@helper
def run_lines(
    program: Any, numbers: Any, constants: Any, operands: Any, own: Any, target: Any, count: Any
) -> None:
    """Run a program on a piece of ``count`` elements.

    Args:
        program: See ``run_program``.
        numbers: See ``run_program``.
        constants: How many of the numbers are registers.
        operands: Addresses of the piece in every array.
        own: Address of the registers.
        target: Address of the result, float32.
        count: How many elements.
    """
    for line in range(program.shape[0]):
        x, z, to = program[line, 1], program[line, 2], program[line, 3]
        at_x = operands[x] if x < MAX_INPUTS else own + 4 * BLOCK_ELEMENTS * (x - MAX_INPUTS)
        at_z = operands[z] if z < MAX_INPUTS else own + 4 * BLOCK_ELEMENTS * (z - MAX_INPUTS)
        at_y = target if to < MAX_INPUTS else own + 4 * BLOCK_ELEMENTS * (to - MAX_INPUTS)
        apply(
            program[line, 0], floats(at_x, count), floats(at_z, count), floats(at_y, count),
            numbers[constants + line, 0], numbers[constants + line, 1],
        )  # fmt: skip


@parallel
def run_rows(arguments: Any, task: Any, worker: Any) -> None:
    """Run a program on some of the pieces that the rows are cut into."""
    program, numbers, shape, strides, addresses, y, memory, grain = arguments
    width, piece = shape[MAX_AXES - 1], shape[MAX_AXES + 2]
    pieces, element = -(-width // piece), shape[TYPES_PLACE + MAX_INPUTS]
    total = y.size // bytes_of(element) // width * pieces
    own = memory.ctypes.data + 4 * MEMORY * worker
    result, wide = y.ctypes.data, own + 4 * BLOCK_ELEMENTS * REGISTERS
    # Numbers become blocks once; registers from the first one on are theirs.
    constants = shape[MAX_AXES]
    for n in range(constants):
        fill(floats(own + 4 * BLOCK_ELEMENTS * n, BLOCK_ELEMENTS), numbers[n, 0])
    is_wide = reads_wide(shape)
    operands, places = on_stack(MAX_INPUTS, np.int64), on_stack(MAX_INPUTS, np.int64)
    index = on_stack(MAX_AXES, np.int64)
    row, left = task * grain // pieces, task * grain % pieces * piece
    find_row(row, shape, strides, index, places, addresses)
    filled = -1
    for _ in range(task * grain, min(total, (task + 1) * grain)):
        count = min(piece, width - left)
        blocks = own + 4 * BLOCK_ELEMENTS * constants
        if is_wide:
            find_operands(shape, strides, places, left, blocks, filled != row, operands)
        else:
            widen_operands(shape, strides, places, left, count, blocks, filled != row, operands)
        filled = row
        place = result + bytes_of(element) * (row * width + left)
        target = place if element == FLOAT32 else wide
        run_lines(program, numbers, constants, operands, own, target, count)
        if element != FLOAT32:
            narrow(element, wide, place, count)
        left += piece
        if left >= width:
            row, left = row + 1, 0
            next_row(shape, strides, index, places)


@kernel(
    (
        In(i64, 2), In(f32, 2), In(i64, 1), In(i64, 2),
        In(u8, 1), In(u8, 1), In(u8, 1), In(u8, 1), In(u8, 1), In(u8, 1),
        Out(u8, 1), Out(f32, 1), size, size,
    ),
    Contract(launch="inputs are broadcast to the result's shape, and are of the types named"),
)  # fmt: skip
def run_program(  # type: ignore[no-untyped-def] # the signature has them
    program, numbers, shape, strides, a, b, c, d, e, f, y, memory, grain, threads
):
    """Compute ``y`` from up to six arrays.

    Args:
        program: Lines of operator, operands and result. Below ``MAX_INPUTS`` an operand is an
            array, a result is ``y``; from there on both are registers.
        numbers: The values of the first registers, then two parameters for every line.
        shape: ``MAX_AXES`` lengths, how many registers are numbers, how many arrays there are, how
            much of the last axis is computed at a time, and types of elements (``TYPES_PLACE``).
        strides: In elements, for every array and axis. In the last one they are 1, 0, or how many
            elements are repeated, of which what is computed at a time is a multiple.
        a: Bytes of the first element of an array, as are the others.
        y: Bytes of the result, flat.
        memory: ``MEMORY`` floats for every thread.
        grain: Rows, or pieces of long ones, in a task.
        threads: How many threads to use.
    """
    addresses = (
        a.ctypes.data, b.ctypes.data, c.ctypes.data, d.ctypes.data, e.ctypes.data, f.ctypes.data
    )  # fmt: skip
    width = shape[MAX_AXES - 1]
    count = y.size // bytes_of(shape[TYPES_PLACE + MAX_INPUTS])
    units = count // width * -(-width // shape[MAX_AXES + 2])
    tasks = -(-units // grain)
    run_rows((program, numbers, shape, strides, addresses, y, memory, grain), tasks, threads)
