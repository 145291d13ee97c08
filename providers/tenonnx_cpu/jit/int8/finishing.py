"""Sums of products of bytes that lack their weights' zero points: those added, and finished."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.jit.compiling import In, Out, f32, i32, kernel, size, u8
from tenonnx_cpu.jit.int8.conv_tile import ROUNDED, Finish
from tenonnx_cpu.jit.int8.strip import finish_row
from tenonnx_cpu.jit.threads.pool import parallel


@parallel
def add_totals(arguments: Any, task: Any, worker: Any) -> None:
    """Finishes one row."""
    sums, y, middle, factor, summand, finish, rows, columns = arguments
    group, row = task // rows, task % middle.size
    first = (task + group) * columns
    own = sums[first : first + columns]
    first = ((group + 1) * (rows + 1) - 1) * columns
    totals = sums[first : first + columns]
    for i in range(columns):
        own[i] += middle[row] * totals[i]
    width = 1 if finish.form == ROUNDED else 4
    finish_row(own, y + width * task * columns, factor[row], summand[row], finish)


@kernel((
    Out(i32, 1), Out(u8, 1), In(i32, 1), In(f32, 1), In(f32, 1), size, f32, f32, i32, size, size,
    size,
))  # fmt: skip
def finish(  # type: ignore[no-untyped-def] # the signature has them
    sums, y, middle, factor, summand, form, low, high, zero, rows, columns, threads,
):  # fmt: skip
    """Computes what becomes of ``sums + middle * totals``; see ``conv_int8``.

    Args:
        sums: Rows of int32: for every group so many ``rows``, then totals of what windows see.
        y: The result's bytes.
        middle: What weights lack, an int32 for every row of a result.
        factor: A float32, likewise.
        summand: The same.
        form: What the result is.
        low: The least result but for the zero point.
        high: The greatest.
        zero: The zero point.
        rows: Of a group.
        columns: Elements of a row.
        threads: How many threads to use.
    """
    done = Finish(0, 0, 0, form, low, high, zero)
    arguments = (sums, np.intp(y.ctypes.data), middle, factor, summand, done, rows, columns)
    add_totals(arguments, sums.size // (columns * (rows + 1)) * rows, threads)
