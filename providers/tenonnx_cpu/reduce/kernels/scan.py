"""Running sums and products along any axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.jit.compiling import Contract, In, Out, helper, i64, inlined, kernel, size, u8
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors import vmath
from tenonnx_cpu.jit.vectors.named import named
from tenonnx_cpu.jit.vectors.views import elements
from tenonnx_cpu.reduce.kernels import SCAN_FIELDS, SPAN

scan_sizes = named("ScanSizes", SCAN_FIELDS)


@vmath.exact
def joined(product: Any, x: Any, y: Any) -> Any:
    """Add or multiply; not in another order."""
    return x * y if product else x + y


@inlined
def scan_row(product: Any, x: Any, y: Any, sizes: Any, first: Any, dtype: Any) -> None:
    """Go over a row, whose addresses these are: sums do not wait until others are stored."""
    step = (1 - 2 * sizes.reverse) * sizes.size
    start = (sizes.count - 1) * sizes.reverse * sizes.size
    here, there = x + start, y + start
    if sizes.exclusive:
        total = first
        for n in range(sizes.count):
            given = elements(here + n * step, 1, dtype)[0]
            elements(there + n * step, 1, dtype)[0] = total
            total = joined(product, total, given)
        return
    whole = elements(here, 1, dtype)[0]
    elements(there, 1, dtype)[0] = whole
    for n in range(1, sizes.count):
        whole = joined(product, whole, elements(here + n * step, 1, dtype)[0])
        elements(there + n * step, 1, dtype)[0] = whole


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
def scan_part(x: Any, y: Any, sizes: Any, task: Any, dtype: Any) -> None:
    """Do a task's rows or lines of one type."""
    if sizes.product:
        scan_lines(True, x, y, sizes, task, dtype)
    else:
        scan_lines(False, x, y, sizes, task, dtype)


@inlined
def scan_lines(product: Any, x: Any, y: Any, sizes: Any, task: Any, dtype: Any) -> None:
    """Do the same for sums or products, which is a constant."""
    first = dtype(1 if product else 0)
    if sizes.inner == 1:
        begin, stop = task * sizes.grain, min(sizes.outer, (task + 1) * sizes.grain)
        for n in range(stop - begin):
            # From the last row on, too, so that memory is read and written one way.
            row = stop - 1 - n if sizes.reverse else begin + n
            start = row * sizes.count * sizes.size
            scan_row(product, x + start, y + start, sizes, first, dtype)
        return
    pieces = -(-sizes.inner // SPAN)
    stack, left = task // pieces, task % pieces * SPAN
    start = (stack * sizes.count * sizes.inner + left) * sizes.size
    width = min(SPAN, sizes.inner - left)
    scan_columns(product, x + start, y + start, width, sizes, first, dtype)


@parallel
def scan_some(arguments: Any, task: Any, worker: Any) -> None:
    """Do a task's rows or lines."""
    x, y, sizes = arguments
    if sizes.size == 4 and sizes.floats:
        scan_part(x, y, sizes, task, np.float32)
    elif sizes.size == 4:
        scan_part(x, y, sizes, task, np.int32)
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
