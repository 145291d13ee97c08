"""Products of float64 and of whole numbers, which wrap around: a row of the result at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.elementwise.kernels.operations import FLOAT64, INT32
from tenonnx_cpu.jit.compiling import Contract, In, Out, helper, i64, inlined, kernel, size, u8
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors.named import named
from tenonnx_cpu.jit.vectors.views import elements
from tenonnx_cpu.matmul.kernels.wide_fields import WIDE_FIELDS

wide_sizes = named("WideSizes", WIDE_FIELDS)

# Rows of B that are added together, so that a row of the result is read and written once for them.
TOGETHER = 4


@inlined
def add_rows(a: Any, b: Any, c: Any, sizes: Any, dtype: Any) -> None:
    """Write one row of a product, whose columns are adjacent as B's are."""
    columns, step = sizes.columns, sizes.a_step
    out = elements(c, columns, dtype)
    for j in range(columns):
        out[j] = dtype(0)
    whole = sizes.depth // TOGETHER * TOGETHER
    for k in range(0, whole, TOGETHER):
        line = elements(b + k * sizes.b_row, columns, dtype)
        second = elements(b + (k + 1) * sizes.b_row, columns, dtype)
        third = elements(b + (k + 2) * sizes.b_row, columns, dtype)
        fourth = elements(b + (k + 3) * sizes.b_row, columns, dtype)
        w, x = elements(a + k * step, 1, dtype)[0], elements(a + (k + 1) * step, 1, dtype)[0]
        y, z = elements(a + (k + 2) * step, 1, dtype)[0], elements(a + (k + 3) * step, 1, dtype)[0]
        for j in range(columns):
            out[j] += w * line[j] + x * second[j] + y * third[j] + z * fourth[j]
    for k in range(whole, sizes.depth):
        line, w = elements(b + k * sizes.b_row, columns, dtype), elements(a + k * step, 1, dtype)[0]
        for j in range(columns):
            out[j] += w * line[j]


@helper
def multiply_rows(a: Any, b: Any, c: Any, offsets: Any, sizes: Any, task: Any, dtype: Any) -> None:
    """Write a task's rows of one type."""
    count = offsets.shape[0] * sizes.rows
    for number in range(task * sizes.grain, min(count, (task + 1) * sizes.grain)):
        item, row = number // sizes.rows, number % sizes.rows
        left = a + offsets[item, 0] + row * sizes.a_row
        add_rows(left, b + offsets[item, 1], c + number * sizes.c_row, sizes, dtype)


@parallel
def multiply_some(arguments: Any, task: Any, worker: Any) -> None:
    """Write some rows of the products."""
    a, b, c, offsets, sizes = arguments
    if sizes.element == FLOAT64:
        multiply_rows(a, b, c, offsets, sizes, task, np.float64)
    elif sizes.element == INT32:
        multiply_rows(a, b, c, offsets, sizes, task, np.int32)
    else:
        multiply_rows(a, b, c, offsets, sizes, task, np.int64)


@kernel(
    (In(u8, 1), In(u8, 1), Out(u8, 1), In(i64, 2), In(i64, 1), size),
    Contract(launch="the matrices are the arrays', of one type; B's columns are adjacent"),
)
def multiply_wide(a, b, c, offsets, numbers, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Compute ``A @ B`` for every pair of a batch.

    Args:
        a: The bytes of the first A's first element.
        b: Those of the first B's.
        c: The bytes of the results, one below the other.
        offsets: For every pair, bytes from the first A, and from the first B.
        numbers: As ``tenonnx_cpu.matmul.kernels.wide_fields.WIDE_FIELDS`` says.
        threads: How many threads to use.
    """
    sizes = wide_sizes(numbers)
    arguments = (a.ctypes.data, b.ctypes.data, c.ctypes.data, offsets, sizes)
    multiply_some(arguments, sizes.tasks, threads)
