"""Arrays written in another order of their axes: squares of them are transposed in registers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenonnx_cpu.conv.kernels.rows import copy_row
from tenonnx_cpu.data_movement.kernels import AXES, TOGETHER, TRANSPOSE_FIELDS
from tenonnx_cpu.jit.compiling import Contract, In, Out, f32, helper, i64, kernel, size
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.lanes import LANES, lanes_below, load_masked, store_masked, vectors_for
from tenonnx_cpu.jit.vectors.memory import load_float, store_float
from tenonnx_cpu.jit.vectors.named import named
from tenonnx_cpu.jit.vectors.shared import shared
from tenonnx_cpu.jit.vectors.vector import I64, Builder, Value

transpose_sizes = named("TransposeSizes", TRANSPOSE_FIELDS)


@shared("tenonnx_transpose_lines", {(0,): (False,), (1,): (True,)})
def transpose_lines(
    b: Builder, joined: bool, /, source: Value, apart: Value, run: Value, run_apart: Value,
    columns: Value, target: Value, target_line: Value, line: Value, block: Value,
    target_block: Value, lines: Value,
) -> None:  # fmt: skip
    """Writes lines, elements of which are ``apart`` in the source, where lines are side by side.

    Args:
        source: Address of the first line's first element; those of the other lines follow it.
        apart: Bytes from element to element of a line, in a run.
        run: Elements of a run, all of a line if not ``joined``.
        run_apart: Bytes from run to run.
        columns: Elements of a line.
        target: Address of the first line.
        target_line: Bytes from line to line, in a block.
        line: Which of its block the first line is.
        block: Lines of a block, all if not ``joined``.
        target_block: Bytes from block to block.
        lines: How many, at most ``LANES``.
    """
    below = lanes_below(b, lines)
    places, place = [], (target, line)
    for _ in range(LANES):
        places.append(place[0])
        place = _after(b, joined, place, target_line, (block, target_block))

    def square(number: Value, carried: list[Value]) -> list[Value]:
        first = b.mul(number, I64(LANES))
        rest = b.sub(columns, first)
        mask, last = lanes_below(b, rest), b.sub(rest, I64(1))
        reads, following = _reads(b, joined, carried, apart, (run, run_apart), last)
        seen = [load_masked(b, read, below) for read in reads]
        write = b.mul(first, I64(4))
        for line, x in enumerate(v.transpose(b, seen)):
            with b.if_then(b.icmp_signed(">", lines, I64(line)), likely=True):
                store_masked(b, x, b.add(places[line], write), mask)
        return following

    v.loop(b, vectors_for(b, columns), [source, I64(0)], square)


def _after(
    b: Builder, joined: bool, at: Sequence[Value], step: Value, run: Sequence[Value]
) -> tuple[Value, Value]:
    """Returns the address of the element after one, and its place in its run.

    Args:
        joined: Whether there are runs.
        at: The one's.
        step: Bytes from one to the next of a run.
        run: Elements of a run, and bytes from run to run.
    """
    address, place = at
    after = b.add(address, step)
    if not joined:
        return after, place
    following = b.add(place, I64(1))
    ends = b.icmp_signed(">=", following, run[0])
    begun = b.add(b.sub(address, b.mul(place, step)), run[1])
    return b.select(ends, begun, after), b.select(ends, I64(0), following)


def _reads(
    b: Builder, joined: bool, at: Sequence[Value], step: Value, run: Sequence[Value], last: Value
) -> tuple[list[Value], list[Value]]:
    """Returns the addresses of a vector's elements, all after the last as that, and what follows.

    Others are as of ``_after``. What does not wait for the address before is sooner known.
    """
    more = [b.icmp_signed("<", I64(lane), last) for lane in range(LANES)]
    if not joined:
        lanes = [b.select(some, I64(lane), last) for lane, some in enumerate(more)]
        addresses = [b.add(at[0], b.mul(step, lane)) for lane in lanes]
        return addresses, [b.add(at[0], b.mul(step, I64(LANES))), at[1]]
    addresses = []
    for some in more:
        addresses.append(at[0])
        after = _after(b, joined, at, step, run)
        at = [b.select(some, own, before) for own, before in zip(after, at, strict=True)]
    return addresses, list(at)


@helper
def copy_lines(source: Any, target: Any, sizes: Any, lines: Any) -> None:
    """Writes lines whose elements are side by side in both arrays, or runs of them are."""
    run = sizes.run
    for line in range(lines):
        read, write = source + 4 * line * sizes.line_apart, target + 4 * line * sizes.target_line
        if run == sizes.columns:
            copy_row(read, write, run)
            continue
        for _ in range(0, sizes.columns, run):
            for i in range(run):
                store_float(load_float(read + 4 * i), write + 4 * i)
            read += 4 * sizes.run_apart
            write += 4 * run


@parallel
def transpose_part(arguments: Any, task: Any, worker: Any) -> None:
    """Writes some lines of the result."""
    source, target, sizes, numbers = arguments
    for unit in range(task * sizes.grain, min(sizes.units, (task + 1) * sizes.grain)):
        row, first = unit // sizes.bands, unit % sizes.bands * TOGETHER
        read, write = places_of(row, numbers[len(TRANSPOSE_FIELDS) :])
        read, end = read + first * sizes.line_apart, min(sizes.lines, first + TOGETHER)
        if sizes.apart == 1:
            write += first * sizes.target_line
            copy_lines(source + 4 * read, target + 4 * write, sizes, end - first)
            continue
        for line in range(first, end, LANES):
            block, place = line // sizes.block, line % sizes.block
            start = write + block * sizes.target_block + place * sizes.target_line
            transpose_lines(
                sizes.joined, source + 4 * (read + line - first), 4 * sizes.apart, sizes.run,
                4 * sizes.run_apart, sizes.columns, target + 4 * start, 4 * sizes.target_line,
                place, sizes.block, 4 * sizes.target_block, min(LANES, end - line),
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
