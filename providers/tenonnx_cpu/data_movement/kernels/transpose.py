"""Arrays written in another order of their axes: squares of them are transposed in registers."""

from __future__ import annotations

from typing import Any

from tenonnx_cpu.conv.kernels.rows import copy_row
from tenonnx_cpu.data_movement.kernels import AXES, TOGETHER, TRANSPOSE_FIELDS
from tenonnx_cpu.jit.compiling import Contract, In, Out, f32, helper, i64, kernel, size
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.lanes import LANES, lanes_below, load_masked, store_masked, vectors_for
from tenonnx_cpu.jit.vectors.named import named
from tenonnx_cpu.jit.vectors.shared import shared
from tenonnx_cpu.jit.vectors.vector import I64, Builder, Value

transpose_sizes = named("TransposeSizes", TRANSPOSE_FIELDS)


@shared("tenonnx_transpose_lines")
def transpose_lines(
    b: Builder, /, source: Value, apart: Value, columns: Value, target: Value, target_line: Value,
    lines: Value,
) -> None:  # fmt: skip
    """Writes lines, elements of which are ``apart`` in the source, where lines are side by side.

    Args:
        source: Address of the first line's first element; those of the other lines follow it.
        apart: Bytes from element to element of a line.
        columns: Elements of a line.
        target: Address of the first line.
        target_line: Bytes from line to line.
        lines: How many, at most ``LANES``.
    """
    below = lanes_below(b, lines)

    def block(number: Value, carried: list[Value]) -> list[Value]:
        first = b.mul(number, I64(LANES))
        rest = b.sub(columns, first)
        mask, last = lanes_below(b, rest), b.sub(rest, I64(1))
        read = b.add(source, b.mul(first, apart))
        seen = []
        for lane in range(LANES):
            place = b.select(b.icmp_signed("<", I64(lane), rest), I64(lane), last)
            seen.append(load_masked(b, b.add(read, b.mul(place, apart)), below))
        write = b.add(target, b.mul(first, I64(4)))
        for line, x in enumerate(v.transpose(b, seen)):
            with b.if_then(b.icmp_signed(">", lines, I64(line)), likely=True):
                store_masked(b, x, b.add(write, b.mul(target_line, I64(line))), mask)
        return []

    v.loop(b, vectors_for(b, columns), [], block)


@parallel
def transpose_part(arguments: Any, task: Any, worker: Any) -> None:
    """Writes some lines of the result."""
    source, target, sizes, numbers = arguments
    apart, grain = sizes.apart, sizes.grain
    for unit in range(task * grain, min(sizes.units, (task + 1) * grain)):
        row, first = unit // sizes.bands, unit % sizes.bands * TOGETHER
        read, write = places_of(row, numbers[len(TRANSPOSE_FIELDS) :])
        count = min(TOGETHER, sizes.lines - first)
        if apart == 1:
            copy_row(source + 4 * read, target + 4 * write, sizes.columns)
        for line in range(first, first + count if apart > 1 else first, LANES):
            transpose_lines(
                source + 4 * (read + line), 4 * apart, sizes.columns,
                target + 4 * (write + line * sizes.target_line), 4 * sizes.target_line,
                min(LANES, first + count - line),
            )  # fmt: skip


@helper
def places_of(row: Any, axes: Any) -> Any:
    """Returns where a row of the outer axes begins in the source and in the result."""
    read, write = i64(0), i64(0)
    for axis in range(AXES - 1, -1, -1):
        length = axes[axis]
        index = row % length
        read += index * axes[AXES + axis]
        write += index * axes[2 * AXES + axis]
        row //= length
    return read, write


@kernel((In(f32, 1), Out(f32, 1), In(i64, 1), size), Contract(launch="strides are positive"))
def transpose(x, y, numbers, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Writes ``y = x.transpose(...)``.

    Args:
        x: Where the first element is; the others lie as strides say.
        y: The result, flat.
        numbers: As ``tenonnx_cpu.data_movement.kernels.TRANSPOSE_FIELDS`` says.
        threads: How many threads to use.
    """
    sizes = transpose_sizes(numbers)
    transpose_part((x.ctypes.data, y.ctypes.data, sizes, numbers), sizes.tasks, threads)
