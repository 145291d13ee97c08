"""Rows over their length, rounded as onnxruntime rounds them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.jit.code import numba_target
from tenonnx_cpu.jit.compiling import Contract, In, Out, f32, kernel, size
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.ml.kernels import L2

F = np.float32


def rounded(function: Any) -> Any:
    """Decorate a function each of whose steps is rounded: squares are, before they are added."""
    return numba_target.njit(error_model="numpy", fastmath=False)(function)


@rounded
def term(x: Any, norm: Any) -> Any:
    """Return what an element adds."""
    return x * x if norm == L2 else abs(x)


@rounded
def divide(x: Any, squares: Any, norm: Any, y: Any) -> None:
    """Write a row's quotients; one whose divisor is zero stays as it is.

    ``squares`` are what a row adds, or of no size.
    """
    whole, given = F(0), squares.size > 0
    for i in range(x.size):
        whole += squares[i] if given else term(x[i], norm)
    if whole == 0:
        for i in range(x.size):
            y[i] = x[i]
    elif norm == L2:
        for i in range(x.size):
            root = np.sqrt((squares[i] if given else term(x[i], norm)) / whole)
            y[i] = -root if x[i] < 0 else root
    else:
        for i in range(x.size):
            y[i] = x[i] / whole


@parallel
def divide_rows(arguments: Any, task: Any, worker: Any) -> None:
    """Do some rows."""
    x, squares, norm, y, grain = arguments
    for row in range(task * grain, min(x.shape[0], (task + 1) * grain)):
        divide(x[row], squares[row if squares.shape[1] else 0], norm, y[row])


@kernel(
    (In(f32, 2), In(f32, 2), size, Out(f32, 2), size, size),
    Contract(launch="there are elements, and squares of all or of none"),
)
def normalizer(x, squares, norm, y, grain, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Write every row over its norm.

    Args:
        x: The rows.
        squares: Those of the elements for ``L2``; a row of none if they are to be computed.
        norm: ``L1`` or ``L2``.
        y: The quotients.
        grain: Rows of a task.
        threads: How many to use.
    """
    divide_rows((x, squares, norm, y, grain), -(-x.shape[0] // grain), threads)
