"""Arrays copied by runs of adjacent bytes."""

from __future__ import annotations

import functools
from typing import Any

from llvmlite import ir

from tenonnx_cpu.data_movement.kernels import COPY_FIELDS
from tenonnx_cpu.jit.compiling import Contract, In, Out, helper, i64, kernel, size, u8
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.named import named
from tenonnx_cpu.jit.vectors.shared import shared
from tenonnx_cpu.jit.vectors.vector import I64, Builder, Value

copy_sizes = named("CopySizes", COPY_FIELDS)

# Bytes that are moved at a time: the greatest that a run has.
MOVED_BYTES = (1, 2, 4, 8, 16, 32, 64)


@shared("tenonnx_copy_runs", {(width,): (width,) for width in MOVED_BYTES})
def copy_runs(
    b: Builder, width: int, /, source: Value, source_step: Value, target: Value,
    target_step: Value, run: Value, count: Value,
) -> None:  # fmt: skip
    """Copy some runs of equal length; the last bytes of each may be moved twice.

    Args:
        source: Address of the first run.
        source_step: Bytes from one to the next.
        target: Address of the first run's copy.
        target_step: Bytes from one to the next.
        run: Bytes of a run, at least ``width`` and less than twice that, if it is not the widest.
        count: How many runs.
    """
    kind = ir.IntType(8 * width) if width < 16 else v.vector(ir.IntType(8), width)
    end = b.sub(run, I64(width))

    def one(index: Value, carried: list[Value], whole: bool = False) -> list[Value]:
        at = b.add(source, b.mul(index, source_step))
        to = b.add(target, b.mul(index, target_step))

        def move(offset: Value) -> None:
            v.store(b, v.load(b, kind, b.add(at, offset)), b.add(to, offset))

        if width == MOVED_BYTES[-1] and not whole:

            def some(index: Value, carried: list[Value]) -> list[Value]:
                move(b.mul(index, I64(width)))
                return carried

            v.loop(b, b.sdiv(b.add(end, I64(width - 1)), I64(width)), [], some)
        else:
            move(I64(0))
        if not whole:
            move(end)
        return carried

    with b.if_else(b.icmp_signed("==", end, I64(0))) as (alone, others):
        with alone:
            v.loop(b, count, [], functools.partial(one, whole=True))
        with others:
            v.loop(b, count, [], one)


@helper
def width_of(run: Any) -> Any:
    """Return how many bytes of a run are moved at a time."""
    width = i64(1)
    while width < 64 and 2 * width <= run:
        width *= 2
    return width


@parallel
def copy_units(arguments: Any, task: Any, worker: Any) -> None:
    """Copy some runs, or a part of one."""
    x, y, sizes, numbers = arguments
    axes = numbers[len(COPY_FIELDS) :]
    for unit in range(task * sizes.grain, min(sizes.units, (task + 1) * sizes.grain)):
        begin, rest = unit % sizes.parts * sizes.part, unit // sizes.parts
        first, row = rest % sizes.cuts * sizes.piece, rest // sizes.cuts
        at, to = x + begin + first * sizes.source_step, y + begin + first * sizes.target_step
        for axis in range(sizes.rank):
            length = axes[3 * axis]
            index, row = row % length, row // length
            at += index * axes[3 * axis + 1]
            to += index * axes[3 * axis + 2]
        run, count = min(sizes.part, sizes.run - begin), min(sizes.piece, sizes.count - first)
        copy_runs(width_of(run), at, sizes.source_step, to, sizes.target_step, run, count)


@kernel(
    (In(u8, 1), Out(u8, 1), In(i64, 1), size),
    Contract(launch="the numbers are those of the array's strides"),
)
def copy(x, y, numbers, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Put an array's elements side by side.

    Args:
        x: The bytes of the first element; the others lie as the numbers say.
        y: The result's bytes.
        numbers: As ``tenonnx_cpu.data_movement.kernels.COPY_FIELDS`` says.
        threads: How many threads to use.
    """
    sizes = copy_sizes(numbers)
    copy_units((x.ctypes.data, y.ctypes.data, sizes, numbers), sizes.tasks, threads)
