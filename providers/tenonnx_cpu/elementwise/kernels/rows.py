"""Rows of arrays that broadcast, of any type of elements and any strides."""

from __future__ import annotations

from typing import Any

from tenonnx_cpu.elementwise.kernels.operations import FIELDS
from tenonnx_cpu.elementwise.kernels.typed_rows import apply_row
from tenonnx_cpu.jit.compiling import Contract, In, Out, i64, kernel, size, u8
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors.named import named

elements_sizes = named("ElementsSizes", FIELDS)


@parallel
def apply_units(arguments: Any, task: Any, worker: Any) -> None:
    """Compute some pieces of rows."""
    x, y, z, out, sizes, numbers = arguments
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
    arguments = (x.ctypes.data, y.ctypes.data, z.ctypes.data, out.ctypes.data, sizes, numbers)
    apply_units(arguments, sizes.tasks, threads)
