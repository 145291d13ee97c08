"""Elementwise operators of float64, one at a time."""

from __future__ import annotations

import math
from typing import Any

from tenonnx_cpu.elementwise.kernels.opcodes import (
    ABS,
    ADD,
    DIV,
    MAX,
    MIN,
    MUL,
    NEG,
    RELU,
    SQRT,
    SUB,
)
from tenonnx_cpu.jit.compiling import Contract, In, Out, f64, inlined, kernel, size
from tenonnx_cpu.jit.threads.parallel_for import parallel

CHUNK = 1 << 12
"""Elements of a task."""


@inlined
def one(code: Any, x: Any, y: Any) -> None:
    """Does some elements of one operand."""
    if code == RELU:
        for i in range(x.size):
            y[i] = 0.0 if x[i] < 0 else x[i]
    elif code == NEG:
        for i in range(x.size):
            y[i] = -x[i]
    elif code == ABS:
        for i in range(x.size):
            y[i] = abs(x[i])
    elif code == SQRT:
        for i in range(x.size):
            y[i] = math.sqrt(x[i])


@inlined
def two(code: Any, x: Any, z: Any, y: Any) -> None:
    """Does some elements of two operands, of which NaN wins."""
    if code == ADD:
        for i in range(x.size):
            y[i] = x[i] + z[i]
    elif code == SUB:
        for i in range(x.size):
            y[i] = x[i] - z[i]
    elif code == MUL:
        for i in range(x.size):
            y[i] = x[i] * z[i]
    elif code == DIV:
        for i in range(x.size):
            y[i] = x[i] / z[i]
    elif code == MAX:
        for i in range(x.size):
            y[i] = x[i] if (x[i] >= z[i]) | (x[i] != x[i]) else z[i]
    elif code == MIN:
        for i in range(x.size):
            y[i] = x[i] if (x[i] <= z[i]) | (x[i] != x[i]) else z[i]


@parallel
def apply_some(arguments: Any, task: Any, worker: Any) -> None:
    """Does some elements."""
    code, x, z, y = arguments
    begin, end = task * CHUNK, min(y.size, (task + 1) * CHUNK)
    if code < ADD:
        one(code, x[begin:end], y[begin:end])
    else:
        two(code, x[begin:end], z[begin:end], y[begin:end])


@kernel(
    (size, In(f64, 1), In(f64, 1), Out(f64, 1), size),
    Contract(
        plan="the code is one of these",
        launch="the arrays have as many elements; the second one is not read for one operand",
    ),
)
def apply_doubles(code, x, z, y, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Writes what an operator makes of elements.

    Args:
        code: The operator.
        x: Its operand.
        z: Its second operand.
        y: The results.
        threads: How many threads to use.
    """
    apply_some((code, x, z, y), -(-y.size // CHUNK), threads)
