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
from tenonnx_cpu.elementwise.kernels.opcodes import BLOCK_ELEMENTS, MAX_AXES, MAX_INPUTS, MEMORY
from tenonnx_cpu.jit.compiling import Contract, In, Out, f32, helper, i64, kernel, size
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors import activations, vmath
from tenonnx_cpu.jit.vectors.views import floats, on_stack

F = np.float32


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
            places[n] += 4 * index[axis] * strides[n, axis]


@helper
def next_row(shape: Any, strides: Any, index: Any, places: Any) -> None:
    """Go on to the row after."""
    for axis in range(MAX_AXES - 2, -1, -1):
        index[axis] += 1
        for n in range(shape[MAX_AXES + 1]):
            places[n] += 4 * strides[n, axis]
        if index[axis] < shape[axis]:
            return
        index[axis] = 0
        for n in range(shape[MAX_AXES + 1]):
            places[n] -= 4 * strides[n, axis] * shape[axis]


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
    """Write where a piece of a row begins in every operand.

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


@parallel
def run_rows(arguments: Any, task: Any, worker: Any) -> None:
    """Run a program on some of the pieces that the rows are cut into."""
    program, numbers, shape, strides, addresses, y, memory, grain = arguments
    width, piece = shape[MAX_AXES - 1], shape[MAX_AXES + 2]
    pieces = -(-width // piece)
    total = y.size // width * pieces
    own = memory.ctypes.data + 4 * MEMORY * worker
    result = y.ctypes.data
    # Numbers become blocks once; registers from the first one on are theirs.
    constants = shape[MAX_AXES]
    for n in range(constants):
        fill(floats(own + 4 * BLOCK_ELEMENTS * n, BLOCK_ELEMENTS), numbers[n, 0])
    operands, places = on_stack(MAX_INPUTS, np.int64), on_stack(MAX_INPUTS, np.int64)
    index = on_stack(MAX_AXES, np.int64)
    row, left = task * grain // pieces, task * grain % pieces * piece
    find_row(row, shape, strides, index, places, addresses)
    filled = -1
    for _ in range(task * grain, min(total, (task + 1) * grain)):
        count = min(piece, width - left)
        blocks = own + 4 * BLOCK_ELEMENTS * constants
        find_operands(shape, strides, places, left, blocks, filled != row, operands)
        filled = row
        for line in range(program.shape[0]):
            x, z, to = program[line, 1], program[line, 2], program[line, 3]
            at_x = operands[x] if x < MAX_INPUTS else own + 4 * BLOCK_ELEMENTS * (x - MAX_INPUTS)
            at_z = operands[z] if z < MAX_INPUTS else own + 4 * BLOCK_ELEMENTS * (z - MAX_INPUTS)
            at_y = own + 4 * BLOCK_ELEMENTS * (to - MAX_INPUTS)
            if to < MAX_INPUTS:
                at_y = result + 4 * (row * width + left)
            apply(
                program[line, 0], floats(at_x, count), floats(at_z, count), floats(at_y, count),
                numbers[constants + line, 0], numbers[constants + line, 1],
            )  # fmt: skip
        left += piece
        if left >= width:
            row, left = row + 1, 0
            next_row(shape, strides, index, places)


@kernel(
    (
        In(i64, 2), In(f32, 2), In(i64, 1), In(i64, 2),
        In(f32, 1), In(f32, 1), In(f32, 1), In(f32, 1), In(f32, 1), In(f32, 1),
        Out(f32, 1), Out(f32, 1), size, size,
    ),
    Contract(launch="inputs are broadcast to the result's shape; dtypes are the program's"),
)  # fmt: skip
def run_program(  # type: ignore[no-untyped-def] # the signature has them
    program, numbers, shape, strides, a, b, c, d, e, f, y, memory, grain, threads
):
    """Compute ``y`` from up to six arrays.

    Args:
        program: Lines of operator, operands and result. Below ``MAX_INPUTS`` an operand is an
            array, a result is ``y``; from there on both are registers.
        numbers: The values of the first registers, then two parameters for every line.
        shape: ``MAX_AXES`` lengths, how many registers are numbers, how many arrays there are, and
            how much of the last axis is computed at a time.
        strides: In elements, for every array and axis. In the last one they are 1, 0, or how many
            elements are repeated, of which what is computed at a time is a multiple.
        a: An array, as are the others; flat.
        y: The result, flat.
        memory: ``MEMORY`` floats for every thread.
        grain: Rows, or pieces of long ones, in a task.
        threads: How many threads to use.
    """
    addresses = (
        a.ctypes.data, b.ctypes.data, c.ctypes.data, d.ctypes.data, e.ctypes.data, f.ctypes.data
    )  # fmt: skip
    width = shape[MAX_AXES - 1]
    units = y.size // width * -(-width // shape[MAX_AXES + 2])
    tasks = -(-units // grain)
    run_rows((program, numbers, shape, strides, addresses, y, memory, grain), tasks, threads)
