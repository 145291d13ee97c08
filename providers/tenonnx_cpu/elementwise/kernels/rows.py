"""Rows of arrays that broadcast, of any type of elements and any strides."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.elementwise.kernels.operations import FIELDS, SIZES
from tenonnx_cpu.elementwise.kernels.typed_rows import apply_row
from tenonnx_cpu.jit.compiling import Contract, In, Out, helper, i64, inlined, kernel, size, u8
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors.memory import store_int
from tenonnx_cpu.jit.vectors.named import named
from tenonnx_cpu.jit.vectors.views import elements

elements_sizes = named("ElementsSizes", FIELDS)


@inlined
def has_zero(start: Any, step: Any, count: Any, dtype: Any) -> Any:
    """Return whether one of some elements is 0."""
    absent = True
    if step == 0:
        return elements(start, 1, dtype)[0] == 0
    if step == elements(start, 1, dtype).itemsize:
        some = elements(start, count, dtype)
        for i in range(count):
            absent &= some[i] != 0
    else:
        for i in range(count):
            absent &= elements(start + i * step, 1, dtype)[0] != 0
    return not absent


@helper
def divides_by_zero(sizes: Any, start: Any, count: Any) -> Any:
    """Return whether one of some whole divisors is 0."""
    width = SIZES[sizes.element]
    if width == 1:
        return has_zero(start, sizes.b_step, count, np.int8)
    if width == 2:
        return has_zero(start, sizes.b_step, count, np.int16)
    if width == 4:
        return has_zero(start, sizes.b_step, count, np.int32)
    return has_zero(start, sizes.b_step, count, np.int64)


@parallel
def apply_units(arguments: Any, task: Any, worker: Any) -> None:
    """Compute some pieces of rows."""
    x, y, z, out, wrong, sizes, numbers = arguments
    axes = numbers[len(FIELDS) :]
    for unit in range(task * sizes.grain, min(sizes.units, (task + 1) * sizes.grain)):
        row, first = unit // sizes.pieces, unit % sizes.pieces * sizes.piece
        at_x, at_y = x + first * sizes.a_step, y + first * sizes.b_step
        at_z, to = z + first * sizes.c_step, out + first * sizes.y_step
        for axis in range(sizes.rank):
            length = axes[5 * axis]
            index, row = row % length, row // length
            at_x += index * axes[5 * axis + 1]
            at_y += index * axes[5 * axis + 2]
            at_z += index * axes[5 * axis + 3]
            to += index * axes[5 * axis + 4]
        count = min(sizes.piece, sizes.width - first)
        if wrong != 0 and divides_by_zero(sizes, at_y, count):
            store_int(1, wrong)
        apply_row(
            sizes.operation, sizes.element, at_x, sizes.a_step, at_y, sizes.b_step, at_z,
            sizes.c_step, to, count,
        )  # fmt: skip


@kernel(
    (In(u8, 1), In(u8, 1), In(u8, 1), Out(u8, 1), In(i64, 1), size),
    Contract(launch="operands are broadcast to the result, and of the operation's types"),
)
def apply(x, y, z, out, numbers, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Write what an operation makes of elements.

    Args:
        x: The first operand's first element; the others lie as strides say.
        y: The second operand, not read if there is none.
        z: The third one, likewise.
        out: The results' bytes.
        numbers: As ``tenonnx_cpu.elementwise.kernels.operations.FIELDS`` says.
        threads: How many threads to use.
    """
    sizes = elements_sizes(numbers)
    operands = (x.ctypes.data, y.ctypes.data, z.ctypes.data)
    apply_units((*operands, out.ctypes.data, i64(0), sizes, numbers), sizes.tasks, threads)


@kernel(
    (In(u8, 1), In(u8, 1), Out(u8, 1), Out(i64, 1), In(i64, 1), size),
    Contract(
        launch="operands are broadcast to the result, and of the operation's types",
        values="divisors are not 0",
    ),
)
def divide(x, y, out, wrong, numbers, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Write what an operation makes of whole numbers and of divisors.

    Args:
        x: The first operand, as of ``apply``.
        y: The divisors, likewise.
        out: The bytes of the quotients.
        wrong: One number, which becomes 1 if a divisor is 0, and 0 else.
        numbers: As of ``apply``.
        threads: How many threads to use.
    """
    wrong[0] = 0
    sizes, at = elements_sizes(numbers), i64(wrong.ctypes.data)
    operands = (x.ctypes.data, y.ctypes.data, y.ctypes.data)
    apply_units((*operands, out.ctypes.data, at, sizes, numbers), sizes.tasks, threads)
