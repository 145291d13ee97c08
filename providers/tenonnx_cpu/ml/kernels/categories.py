"""Sums of the rows that numbers choose, of a table per column."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.jit.compiling import Contract, In, Out, f32, i64, inlined, kernel, size, u8
from tenonnx_cpu.jit.threads.parallel_for import parallel


@inlined
def add_rows(x: Any, place: Any, table: Any, y: Any, width: Any) -> Any:
    """Add what numbers choose of a table to rows of sums; return whether they are all of rows."""
    fit, count = True, table.shape[0]
    # NaN is not among them either.
    low, high = np.float32(-count - 1), np.float32(count)
    for row in range(y.shape[0]):
        given = x[row, place]
        fits = (given > low) & (given < high)
        fit &= fits
        number = int(given) if fits else 0
        at = number if number >= 0 else number + count
        for i in range(width):
            y[row, i] += table[at, i]
    return fit


@parallel
def sum_rows(arguments: Any, task: Any, worker: Any) -> None:
    """Do some rows."""
    x, columns, tables, y, refused, grain = arguments
    begin, end = task * grain, min(x.shape[0], (task + 1) * grain)
    some, out = x[begin:end], y[begin:end]
    out[:] = 0
    for column in range(columns.shape[0]):
        place, first, count = columns[column]
        table = tables[first : first + count]
        if out.shape[1] == 2:
            fit = add_rows(some, place, table, out, 2)
        elif out.shape[1] == 3:
            fit = add_rows(some, place, table, out, 3)
        elif out.shape[1] == 4:
            fit = add_rows(some, place, table, out, 4)
        else:
            fit = add_rows(some, place, table, out, out.shape[1])
        if not fit:
            refused[0] = 1


@kernel(
    (In(f32, 2), In(i64, 2), In(f32, 2), Out(f32, 2), Out(u8, 1), size, size),
    Contract(
        plan="columns' rows are in the tables, which are as wide as y",
        launch="columns' places are in a row of x, which has as many as y",
        values="numbers are of rows: the kernel looks, and says if not",
        captured=False,
    ),
)
def sum_chosen(x, columns, tables, y, refused, grain, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Write the sum of what each row's numbers choose, one of a table's rows each.

    Args:
        x: The numbers; what is behind the point does not count, and below 0 from the end.
        columns: Of each table which of a row's numbers chooses, where its rows begin, how many.
        tables: One behind the other.
        y: The sums.
        refused: 1 if a number is of no row.
        grain: Rows of a task.
        threads: How many threads to use.
    """
    refused[0] = 0
    tasks = -(-x.shape[0] // grain)
    sum_rows((x, columns, tables, y, refused, grain), tasks, threads)
