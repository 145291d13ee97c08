"""Reductions of elements of any type over any axes, and the places of extremes along one."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.elementwise.kernels.operations import DIV, FLOAT64, MIN, SQRT
from tenonnx_cpu.elementwise.kernels.typed_rows import apply_row
from tenonnx_cpu.jit.compiling import Contract, In, Out, helper, i64, inlined, kernel, size, u8
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors.named import named
from tenonnx_cpu.jit.vectors.views import elements
from tenonnx_cpu.reduce.kernels import FOLD_FIELDS, PIECE
from tenonnx_cpu.reduce.kernels.places import place_in_columns, place_in_row
from tenonnx_cpu.reduce.kernels.row_reductions import reduce_columns, reduce_row

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


@inlined
def logarithms(sums: Any, count: Any, dtype: Any) -> None:
    """Take the logarithms of sums."""
    some = elements(sums, count, dtype)
    for i in range(count):
        some[i] = np.log(np.float64(some[i]))


@helper
def finish(sizes: Any, numbers: Any, sums: Any, count: Any, to: Any) -> None:
    """Write results of what rows came to."""
    element, step = sizes.element, sizes.size
    operand = numbers.ctypes.data + 8 * len(FOLD_FIELDS)
    if sizes.divides:
        apply_row(DIV, element, sums, step, operand, 0, 0, 0, sums, count)
    if sizes.root:
        apply_row(SQRT, element, sums, step, 0, 0, 0, 0, sums, count)
        apply_row(MIN, element, sums, step, operand, 0, 0, 0, sums, count)
    if sizes.log and element == FLOAT64:
        logarithms(sums, count, np.float64)
    elif sizes.log:
        logarithms(sums, count, np.float32)
    apply_row(sizes.write, sizes.write_of, sums, step, 0, 0, 0, 0, to, count)


@helper
def fold_piece(x: Any, y: Any, sums: Any, sizes: Any, numbers: Any, unit: Any) -> None:
    """Compute results of adjacent columns."""
    kept, reduced = numbers[AXES_AT:], numbers[AXES_AT + 2 * sizes.kept :]
    row, left = unit // sizes.pieces, unit % sizes.pieces * sizes.piece
    count = min(sizes.piece, sizes.width - left)
    start = x + offset_of(row, kept, sizes.kept) + left * sizes.step
    to = y + (row * sizes.width + left) * sizes.result_size
    if sizes.finds:
        place_in_columns(
            sizes.kind, sizes.source, start, sizes.step, count, sizes.rows, sizes.row_step,
            sizes.last, to,
        )  # fmt: skip
        return
    for n in range(sizes.outer):
        reduce_columns(
            sizes.kind, sizes.source, start + offset_of(n, reduced, sizes.reduced), sizes.step,
            count, sizes.rows, sizes.row_step, sums, i64(n == 0),
        )  # fmt: skip
    finish(sizes, numbers, sums, count, to)


@helper
def fold_rows(
    x: Any, y: Any, sums: Any, sizes: Any, numbers: Any, unit: Any, count: Any, apart: Any
) -> None:
    """Compute results that follow each other, of rows that are ``apart``."""
    kept, reduced = numbers[AXES_AT:], numbers[AXES_AT + 2 * sizes.kept :]
    start, to = x + offset_of(unit, kept, sizes.kept), y + unit * sizes.result_size
    for n in range(sizes.outer):
        reduce_row(
            sizes.kind, sizes.source, start + offset_of(n, reduced, sizes.reduced), sizes.step,
            sizes.width, sizes.rows, sizes.row_step, count, apart, sums, i64(n == 0),
        )  # fmt: skip
    if not sizes.finds:
        finish(sizes, numbers, sums, count, to)
        return
    for n in range(count):
        place_in_row(
            sizes.source, start + n * apart, sizes.width, sums + n * sizes.size, sizes.last,
            to + 8 * n,
        )  # fmt: skip


@parallel
def fold_units(arguments: Any, task: Any, worker: Any) -> None:
    """Compute some results, or pieces of rows of them."""
    x, y, memory, sizes, numbers = arguments
    sums = memory + 8 * PIECE * worker
    unit, stop = task * sizes.grain, min(sizes.units, (task + 1) * sizes.grain)
    length, apart = i64(1), i64(0)
    if sizes.kept:
        length, apart = numbers[AXES_AT], numbers[AXES_AT + 1]
    while unit < stop:
        count = i64(1)
        if sizes.pieces:
            fold_piece(x, y, sums, sizes, numbers, unit)
        else:
            count = min(PIECE, stop - unit, length - unit % length)
            fold_rows(x, y, sums, sizes, numbers, unit, count, apart)
        unit += count


@kernel(
    (In(u8, 1), Out(u8, 1), Out(u8, 1), In(i64, 1), size),
    Contract(launch="axes are the input's, and have elements; types are the operations'"),
)
def fold(x, y, memory, numbers, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Reduce some axes.

    Args:
        x: The bytes of the first element; the others lie as the numbers say.
        y: The results' bytes.
        memory: ``PIECE`` numbers of 8 bytes for each thread.
        numbers: As ``tenonnx_cpu.reduce.kernels.FOLD_FIELDS`` says.
        threads: How many threads to use.
    """
    sizes = fold_sizes(numbers)
    arguments = (x.ctypes.data, y.ctypes.data, memory.ctypes.data, sizes, numbers)
    fold_units(arguments, sizes.tasks, threads)
