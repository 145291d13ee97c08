"""Reductions of elements of any type over any axes, by operations on rows."""

from __future__ import annotations

from typing import Any

from tenonnx_cpu.elementwise.kernels.operations import DIV, MUL, SQRT
from tenonnx_cpu.elementwise.kernels.typed import apply_row
from tenonnx_cpu.jit.compiling import Contract, In, Out, helper, i64, kernel, size, u8
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors.named import named
from tenonnx_cpu.reduce.kernels import FOLD_FIELDS, NOTHING, PIECE, SQUARED

fold_sizes = named("FoldSizes", FOLD_FIELDS)

AXES_AT = len(FOLD_FIELDS) + 1


@helper
def offset_of(number: Any, axes: Any, count: Any) -> Any:
    """Return the bytes to a row by its number along some axes."""
    offset = i64(0)
    for axis in range(count):
        length = axes[2 * axis]
        offset += number % length * axes[2 * axis + 1]
        number //= length
    return offset


@helper
def fold_row(sizes: Any, x: Any, count: Any, sums: Any, spare: Any, is_first: Any) -> None:
    """Combine a row's elements with those of others, or begin with them.

    Args:
        sizes: The fold's numbers.
        x: Address of the first element.
        count: How many, at most ``PIECE``.
        sums: Address of what other rows came to.
        spare: Address of as much memory.
        is_first: Whether there are no others.
    """
    step = sizes.step
    if sizes.read != NOTHING:
        apply_row(sizes.read, sizes.read_of, x, step, 0, 0, 0, 0, spare, count)
        x, step = spare, sizes.size
    target = sums if is_first else spare
    if sizes.map == SQUARED:
        apply_row(MUL, sizes.map_of, x, step, x, step, 0, 0, target, count)
        x, step = target, sizes.size
    elif sizes.map != NOTHING:
        apply_row(sizes.map, sizes.map_of, x, step, 0, 0, 0, 0, target, count)
        x, step = target, sizes.size
    elif is_first:
        apply_row(sizes.copy, sizes.copy, x, step, 0, 0, 0, 0, sums, count)
    if not is_first:
        apply_row(
            sizes.combine, sizes.combine_of, sums, sizes.size, x, step, 0, 0, sums, count
        )  # fmt: skip


@helper
def fold_together(sizes: Any, sums: Any, count: Any) -> None:
    """Combine adjacent elements to one, by halves."""
    while count > 1:
        half = count // 2
        rest = sums + (count - half) * sizes.size
        step = sizes.size
        apply_row(
            sizes.combine, sizes.combine_of, sums, step, rest, step, 0, 0, sums, half
        )  # fmt: skip
        count -= half


@helper
def finish(sizes: Any, numbers: Any, sums: Any, count: Any, to: Any) -> None:
    """Write results of what rows came to."""
    element, step = sizes.element, sizes.size
    if sizes.divides:
        divisor = numbers.ctypes.data + 8 * len(FOLD_FIELDS)
        apply_row(DIV, element, sums, step, divisor, 0, 0, 0, sums, count)
    if sizes.root:
        apply_row(SQRT, element, sums, step, 0, 0, 0, 0, sums, count)
    apply_row(sizes.write, sizes.write_of, sums, step, 0, 0, 0, 0, to, count)


@parallel
def fold_units(arguments: Any, task: Any, worker: Any) -> None:
    """Compute some results, or pieces of rows of them."""
    x, y, memory, sizes, numbers = arguments
    sums = memory + 2 * 8 * PIECE * worker
    spare = sums + 8 * PIECE
    kept, reduced = numbers[AXES_AT:], numbers[AXES_AT + 2 * sizes.kept :]
    for unit in range(task * sizes.grain, min(sizes.units, (task + 1) * sizes.grain)):
        if sizes.pieces:
            row, left = unit // sizes.pieces, unit % sizes.pieces * sizes.piece
            start = x + offset_of(row, kept, sizes.kept) + left * sizes.step
            count = min(sizes.piece, sizes.width - left)
            for n in range(sizes.rows):
                at = start + offset_of(n, reduced, sizes.reduced)
                fold_row(sizes, at, count, sums, spare, n == 0)
            to = y + (row * sizes.width + left) * sizes.result_size
            finish(sizes, numbers, sums, count, to)
            continue
        start = x + offset_of(unit, kept, sizes.kept)
        for n in range(sizes.rows):
            at = start + offset_of(n, reduced, sizes.reduced)
            for left in range(0, sizes.width, sizes.piece):
                count = min(sizes.piece, sizes.width - left)
                is_first = n == 0 and left == 0
                fold_row(sizes, at + left * sizes.step, count, sums, spare, is_first)
        fold_together(sizes, sums, sizes.piece)
        finish(sizes, numbers, sums, 1, y + unit * sizes.result_size)


@kernel(
    (In(u8, 1), Out(u8, 1), Out(u8, 1), In(i64, 1), size),
    Contract(launch="axes are the input's, and have elements; types are the operations'"),
)
def fold(x, y, memory, numbers, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Reduce some axes.

    Args:
        x: The bytes of the first element; the others lie as the numbers say.
        y: The results' bytes.
        memory: Two times ``PIECE`` numbers of 8 bytes for each thread.
        numbers: As ``tenonnx_cpu.reduce.kernels.FOLD_FIELDS`` says.
        threads: How many threads to use.
    """
    sizes = fold_sizes(numbers)
    arguments = (x.ctypes.data, y.ctypes.data, memory.ctypes.data, sizes, numbers)
    fold_units(arguments, sizes.tasks, threads)
