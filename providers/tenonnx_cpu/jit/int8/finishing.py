"""Sums of products of bytes made bytes again, row by row."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.jit.compiling import In, Out, f32, i32, kernel, size, u8
from tenonnx_cpu.jit.int8.between import to_byte
from tenonnx_cpu.jit.threads.pool import parallel

F = np.float32


@parallel
def finish_row(arguments: Any, task: Any, worker: Any) -> None:
    """Rounds one row."""
    sums, y, factors, summands, low, high, zero, columns = arguments
    row = task % factors.size
    x = sums[task * columns : (task + 1) * columns]
    made = y[task * columns : (task + 1) * columns]
    factor, summand = factors[row], summands[row]
    for i in range(made.size):
        made[i] = to_byte(F(x[i]) * factor + summand, low, high, zero)


@kernel((In(i32, 1), Out(u8, 1), In(f32, 1), In(f32, 1), f32, f32, i32, size, size))
def finish(sums, y, factors, summands, low, high, zero, columns, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Computes ``y = clip(round(sums * factor + summand), low, high) + zero``.

    Args:
        sums: Rows of int32; after as many as there are factors, they begin anew.
        y: As many bytes.
        factors: One for every row.
        summands: Likewise.
        low: The least result.
        high: The greatest one.
        zero: The zero point.
        columns: Elements of a row.
        threads: How many threads to use.
    """
    arguments = (sums, y, factors, summands, low, high, zero, columns)
    finish_row(arguments, sums.size // columns, threads)
