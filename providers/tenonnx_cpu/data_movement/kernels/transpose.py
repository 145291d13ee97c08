"""Arrays written in another order of their axes: squares of them are transposed in registers."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from tenonnx_cpu.data_movement.kernels import (
    AXES,
    JOINED_COLUMNS,
    PARTED_LINES,
    TRANSPOSE_FIELDS,
)
from tenonnx_cpu.data_movement.kernels.few_rows import LANES_OF, transpose_few
from tenonnx_cpu.jit.compiling import Contract, In, Out, helper, i64, kernel, size, u8
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.lanes import KIND as FLOATS
from tenonnx_cpu.jit.vectors.lanes import lanes_below, load_masked, store_masked
from tenonnx_cpu.jit.vectors.named import named
from tenonnx_cpu.jit.vectors.shared import shared
from tenonnx_cpu.jit.vectors.vector import I64, Builder, Value

# The types of a square's lines; those of 4 bytes are moved as float32.
KINDS = {
    size: FLOATS if size == 4 else v.vector(ir.IntType(8 * size), lanes)
    for size, lanes in LANES_OF.items()
}

# Types of vectors that one instruction joins lane by lane; of longer ones it does so in parts.
UNPACKED = tuple(kind for size, kind in KINDS.items() if size * kind.count <= 16)

transpose_sizes = named("TransposeSizes", TRANSPOSE_FIELDS)


@shared(
    "tenonnx_transpose_lines", {(n, size): (bool(n), size) for n in (0, 1) for size in LANES_OF}
)
def transpose_lines(
    b: Builder, joined: bool, size: int, /, source: Value, apart: Value, run: Value,
    run_apart: Value, columns: Value, target: Value, target_line: Value, line: Value, block: Value,
    target_block: Value, lines: Value,
) -> None:  # fmt: skip
    """Write lines, elements of which are ``apart`` in the source, where lines are side by side.

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
        lines: How many.
    """
    lanes = LANES_OF[size]
    squares, bands = (b.sdiv(b.add(n, I64(lanes - 1)), I64(lanes)) for n in (columns, lines))

    def band(number: Value, carried: list[Value]) -> list[Value]:
        done = _first_of(b, joined, number, lanes, lines)
        left = b.sub(lines, done)
        places, place = [], tuple(carried)
        if not joined:
            place = b.add(target, b.mul(done, target_line)), line
        for _ in range(lanes):
            places.append(place[0])
            place = _after(b, joined, place, target_line, (block, target_block))

        start = b.add(source, b.mul(done, I64(size)))

        def square(number: Value, carried: list[Value]) -> list[Value]:
            first = _first_of(b, joined, number, lanes, columns)
            rest = b.sub(columns, first)
            if not joined:
                carried = [b.add(start, b.mul(first, apart)), carried[1]]
            write = b.mul(first, I64(size))
            writes = [b.add(each, write) for each in places]
            reads = functools.partial(_reads, b, joined, carried, apart, (run, run_apart), lanes)
            whole = b.and_(*(b.icmp_signed(">=", n, I64(lanes)) for n in (left, rest)))
            with b.if_else(whole, likely=True) as (all_of_it, part):
                with all_of_it:
                    addresses, following = reads()
                    _move_whole(b, KINDS[size], addresses, writes)
                    ends = [(b.block, following)]
                with part:
                    addresses, following = reads(b.sub(rest, I64(1)))
                    _move_part(b, KINDS[size], addresses, writes, left, rest)
                    ends.append((b.block, following))
            return _joined(b, ends)

        v.loop(b, squares, [start, I64(0)], square)
        return list(place)

    v.loop(b, bands, [target, line], band)


def _first_of(b: Builder, joined: bool, number: Value, lanes: int, count: Value) -> Value:
    """Return where a square begins along a side: the last one is whole if it may go back."""
    first = b.mul(number, I64(lanes))
    if joined:
        return first
    last = b.sub(count, I64(lanes))
    back = b.and_(b.icmp_signed(">", first, last), b.icmp_signed(">=", last, I64(0)))
    return b.select(back, last, first)


def _move_whole(b: Builder, kind: ir.VectorType, reads: list[Value], writes: list[Value]) -> None:
    """Transpose a square."""
    seen = [v.load(b, kind, read) for read in reads]
    for write, x in zip(writes, _transposed(b, seen), strict=True):
        v.store(b, x, write)


def _move_part(
    b: Builder, kind: ir.VectorType, reads: list[Value], writes: list[Value], lines: Value,
    columns: Value,
) -> None:  # fmt: skip
    """Transpose as many lines and columns as there are."""
    floats = kind == FLOATS
    below, mask = (lanes_below(b, n) if floats else _below(b, kind, n) for n in (lines, columns))
    load = load_masked if floats else functools.partial(_load_some, kind)
    store = store_masked if floats else v.store_lanes
    seen = [load(b, read, below) for read in reads]
    for line, x in enumerate(_transposed(b, seen)):
        with b.if_then(b.icmp_signed(">", lines, I64(line))):
            store(b, x, writes[line], mask)


def _joined(b: Builder, ends: Sequence[tuple[Value, Sequence[Value]]]) -> list[Value]:
    """Return values that are known at the ends of blocks, of the one that was passed."""
    found = []
    for values in zip(*(values for _, values in ends), strict=True):
        phi = b.phi(values[0].type)
        for (block, _), value in zip(ends, values, strict=True):
            phi.add_incoming(value, block)
        found.append(phi)
    return found


def _below(b: Builder, kind: ir.VectorType, count: Value) -> Value:
    """Return the mask of the first lanes of a vector."""
    numbers = ir.Constant(v.vector(I64, kind.count), list(range(kind.count)))
    return b.icmp_signed("<", numbers, v.splat(b, count, kind.count))


def _transposed(b: Builder, rows: Sequence[Value]) -> list[Value]:
    """Transpose a square of lanes: of short vectors by joining halves of rows lane by lane."""
    lanes, current = len(rows), list(rows)
    if rows[0].type not in UNPACKED:
        return v.transpose(b, rows)
    halves = [[n // 2 + lanes * (n % 2) + part for n in range(lanes)] for part in (0, lanes // 2)]
    for _ in range(lanes.bit_length() - 1):
        pairs = zip(current[: lanes // 2], current[lanes // 2 :], strict=True)
        current = [v.shuffle(b, *pair, half) for pair in pairs for half in halves]
    return current


def _load_some(kind: ir.VectorType, b: Builder, address: Value, mask: Value) -> Value:
    return v.load_lanes(b, address, mask, v.constant(kind, 0))


def _after(
    b: Builder, joined: bool, at: Sequence[Value], step: Value, run: Sequence[Value]
) -> tuple[Value, Value]:
    """Return the address of the element after one, and its place in its run.

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
    b: Builder,
    joined: bool,
    at: Sequence[Value],
    step: Value,
    run: Sequence[Value],
    count: int,
    last: Value | None = None,
) -> tuple[list[Value], list[Value]]:
    """Return the addresses of some elements, all after the last as that, and what follows.

    Others are as of ``_after``. What does not wait for the address before is sooner known.
    """
    more = [last and b.icmp_signed("<", I64(lane), last) for lane in range(count)]
    if not joined:
        lanes = [
            b.select(some, I64(lane), last) if some else I64(lane) for lane, some in enumerate(more)
        ]
        addresses = [b.add(at[0], b.mul(step, lane)) for lane in lanes]
        return addresses, [b.add(at[0], b.mul(step, I64(count))), at[1]]
    addresses = []
    for some in more:
        addresses.append(at[0])
        after = _after(b, joined, at, step, run)
        pairs = zip(after, at, strict=True)
        at = [b.select(some, own, before) if some else own for own, before in pairs]
    return addresses, list(at)


@parallel
def transpose_part(arguments: Any, task: Any, worker: Any) -> None:
    """Write some lines of the result."""
    source, target, sizes, numbers = arguments
    size = sizes.size
    for unit in range(task * sizes.grain, min(sizes.units, (task + 1) * sizes.grain)):
        row, first = unit // sizes.bands, unit % sizes.bands * sizes.band
        read, write = places_of(row, numbers[len(TRANSPOSE_FIELDS) :])
        block, place = first // sizes.block, first % sizes.block
        read += first * sizes.line_apart
        write += block * sizes.target_block + place * sizes.target_line
        at, to, count = (
            source + size * read,
            target + size * write,
            min(sizes.band, sizes.lines - first),
        )
        if sizes.few == JOINED_COLUMNS:
            transpose_few(sizes.columns, 1, size, to, at, size * sizes.apart, count)
            continue
        if sizes.few == PARTED_LINES:
            transpose_few(sizes.lines, 0, size, at, to, size * sizes.target_line, sizes.columns)
            continue
        transpose_lines(
            sizes.joined, size, at, size * sizes.apart, sizes.run, size * sizes.run_apart,
            sizes.columns, to, size * sizes.target_line, place, sizes.block,
            size * sizes.target_block, count,
        )  # fmt: skip


@helper
def places_of(row: Any, axes: Any) -> Any:
    """Return where a row of the outer axes begins in the source and in the result."""
    read, write = i64(0), i64(0)
    for axis in range(AXES - 1, -1, -1):
        length = axes[axis]
        index = row % length
        read += index * axes[AXES + axis]
        write += index * axes[2 * AXES + axis]
        row //= length
    return read, write


@kernel(
    (In(u8, 1), Out(u8, 1), In(i64, 1), size),
    Contract(launch="strides are positive; lines lie side by side"),
)
def transpose(x, y, numbers, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Write ``y = x.transpose(...)``.

    Args:
        x: The bytes of the first element; the others lie as strides say.
        y: The result's bytes.
        numbers: As ``tenonnx_cpu.data_movement.kernels.TRANSPOSE_FIELDS`` says.
        threads: How many threads to use.
    """
    sizes = transpose_sizes(numbers)
    transpose_part((x.ctypes.data, y.ctypes.data, sizes, numbers), sizes.tasks, threads)
