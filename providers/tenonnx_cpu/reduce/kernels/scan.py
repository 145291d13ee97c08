"""Running sums and products along any axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.jit.compiling import Contract, In, Out, helper, i64, inlined, kernel, size, u8
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors import vmath
from tenonnx_cpu.jit.vectors.named import named
from tenonnx_cpu.jit.vectors.views import elements, on_stack
from tenonnx_cpu.reduce.kernels import SCAN_FIELDS, SPAN

scan_sizes = named("ScanSizes", SCAN_FIELDS)

# Rows that are gone over together: a sum waits for the one before it, but not for others'.
ROWS_TOGETHER = 8


@vmath.exact
def joined(product: Any, x: Any, y: Any) -> Any:
    """Add or multiply; not in another order."""
    return x * y if product else x + y


@inlined
def scan_rows(product: Any, x: Any, y: Any, rows: Any, sizes: Any, first: Any, dtype: Any) -> None:
    """Go over adjacent rows, ``ROWS_TOGETHER`` of them at most, of which a row is an axis."""
    count, by = sizes.count, 1 - 2 * sizes.reverse
    start, before = (count - 1) * sizes.reverse, by * sizes.exclusive
    totals = on_stack(ROWS_TOGETHER, dtype)
    for row in range(rows):
        own = row * count + start
        totals[row] = first if sizes.exclusive else x[own]
        y[own] = totals[row]
    for n in range(1, count):
        at = start + by * n
        for row in range(rows):
            own = row * count + at
            totals[row] = joined(product, totals[row], x[own - before])
            y[own] = totals[row]


@inlined
def scan_columns(
    product: Any, x: Any, y: Any, width: Any, sizes: Any, first: Any, dtype: Any
) -> None:
    """Go over lines; x and y are the addresses of their first elements."""
    line = sizes.inner * sizes.size
    by = (1 - 2 * sizes.reverse) * line
    start = (sizes.count - 1) * sizes.reverse * line
    out, given = elements(y + start, width, dtype), elements(x + start, width, dtype)
    for i in range(width):
        out[i] = first if sizes.exclusive else given[i]
    for n in range(1, sizes.count):
        at = start + by * n
        before, out = elements(y + at - by, width, dtype), elements(y + at, width, dtype)
        given = elements(x + at - by * sizes.exclusive, width, dtype)
        for i in range(width):
            out[i] = joined(product, before[i], given[i])


@helper
def scan_integers(x: Any, y: Any, sizes: Any, task: Any, dtype: Any) -> None:
    """Do a task's rows of integers, whose sums wait for nothing: one after the other."""
    for row in range(task * sizes.grain, min(sizes.outer, (task + 1) * sizes.grain)):
        start = row * sizes.count * sizes.size
        given, out = (
            elements(x + start, sizes.count, dtype),
            elements(y + start, sizes.count, dtype),
        )
        scan_rows(sizes.product, given, out, 1, sizes, dtype(sizes.product), dtype)


@helper
def scan_part(x: Any, y: Any, sizes: Any, task: Any, dtype: Any) -> None:
    """Do a task's rows or lines of one type."""
    first = dtype(sizes.product)
    if sizes.inner == 1:
        stop = min(sizes.outer, (task + 1) * sizes.grain)
        for row in range(task * sizes.grain, stop, ROWS_TOGETHER):
            rows = min(ROWS_TOGETHER, stop - row)
            start, total = row * sizes.count * sizes.size, rows * sizes.count
            given, out = elements(x + start, total, dtype), elements(y + start, total, dtype)
            if rows == ROWS_TOGETHER:
                scan_rows(sizes.product, given, out, ROWS_TOGETHER, sizes, first, dtype)
            else:
                scan_rows(sizes.product, given, out, rows, sizes, first, dtype)
        return
    pieces = -(-sizes.inner // SPAN)
    stack, left = task // pieces, task % pieces * SPAN
    start = (stack * sizes.count * sizes.inner + left) * sizes.size
    width = min(SPAN, sizes.inner - left)
    scan_columns(sizes.product, x + start, y + start, width, sizes, first, dtype)


@parallel
def scan_some(arguments: Any, task: Any, worker: Any) -> None:
    """Do a task's rows or lines."""
    x, y, sizes = arguments
    in_turn = (sizes.inner == 1) & (sizes.floats == 0)
    if sizes.size == 4:
        if in_turn:
            scan_integers(x, y, sizes, task, np.int32)
        elif sizes.floats:
            scan_part(x, y, sizes, task, np.float32)
        else:
            scan_part(x, y, sizes, task, np.int32)
    elif in_turn:
        scan_integers(x, y, sizes, task, np.int64)
    elif sizes.floats:
        scan_part(x, y, sizes, task, np.float64)
    else:
        scan_part(x, y, sizes, task, np.int64)


@kernel(
    (In(u8, 1), Out(u8, 1), In(i64, 1), size),
    Contract(launch="axes have elements of 4 or 8 bytes; y is as large as x"),
)
def scan(x, y, numbers, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Write the sums or products of all elements up to each one.

    Args:
        x: The elements' bytes, those along the middle one of three axes being joined.
        y: The results' bytes.
        numbers: As ``tenonnx_cpu.reduce.kernels.SCAN_FIELDS`` says.
        threads: How many threads to use.
    """
    sizes = scan_sizes(numbers)
    scan_some((x.ctypes.data, y.ctypes.data, sizes), sizes.tasks, threads)
