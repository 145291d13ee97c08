"""Applying functions to rows, for programs alone."""

from __future__ import annotations

from typing import Any

from tenonnx_cpu.elementwise.kernels import functions as codes
from tenonnx_cpu.jit.compiling import helper
from tenonnx_cpu.jit.vectors import functions


@helper
def apply_function(op: Any, x: Any, y: Any, first: Any, second: Any) -> None:
    """Compute ``y = op(x)`` for adjacent elements; ``first`` and ``second`` are parameters."""
    if op <= codes.TAN:
        apply_circular(op, x, y)
    elif op <= codes.ATANH:
        apply_hyperbolic(op, x, y)
    elif op == codes.ELU:
        for i in range(y.size):
            y[i] = functions.elu(x[i], first, second)
    elif op == codes.CELU:
        for i in range(y.size):
            y[i] = functions.celu(x[i], first)
    elif op == codes.SOFTPLUS:
        for i in range(y.size):
            y[i] = functions.softplus(x[i])
    elif op == codes.MISH:
        for i in range(y.size):
            y[i] = functions.mish(x[i])
    elif op == codes.SHRINK:
        for i in range(y.size):
            y[i] = functions.shrink(x[i], first, second)


@helper
def apply_hyperbolic(op: Any, x: Any, y: Any) -> None:
    """Apply an inverse circular function, or a hyperbolic one."""
    if op == codes.ASIN:
        for i in range(y.size):
            y[i] = functions.asin(x[i])
    elif op == codes.ACOS:
        for i in range(y.size):
            y[i] = functions.acos(x[i])
    elif op == codes.ATAN:
        for i in range(y.size):
            y[i] = functions.atan(x[i])
    elif op == codes.SINH:
        for i in range(y.size):
            y[i] = functions.sinh(x[i])
    elif op == codes.COSH:
        for i in range(y.size):
            y[i] = functions.cosh(x[i])
    elif op == codes.ASINH:
        for i in range(y.size):
            y[i] = functions.asinh(x[i])
    elif op == codes.ACOSH:
        for i in range(y.size):
            y[i] = functions.acosh(x[i])
    elif op == codes.ATANH:
        for i in range(y.size):
            y[i] = functions.atanh(x[i])


@helper
def apply_circular(op: Any, x: Any, y: Any) -> None:
    """Apply the logarithm, or a circular function."""
    if op == codes.LOG:
        for i in range(y.size):
            y[i] = functions.log(x[i])
        return
    near = True
    for i in range(x.size):
        near &= abs(x[i]) < functions.FAR
    if not near:
        apply_far(op, x, y)
    elif op == codes.SIN:
        for i in range(y.size):
            y[i] = functions.sin(x[i], False)
    elif op == codes.COS:
        for i in range(y.size):
            y[i] = functions.cos(x[i], False)
    else:
        for i in range(y.size):
            y[i] = functions.tan(x[i], False)


@helper
def apply_far(op: Any, x: Any, y: Any) -> None:
    """Apply a circular function to angles of any size."""
    for i in range(y.size):
        if op == codes.SIN:
            y[i] = functions.sin(x[i], True)
        elif op == codes.COS:
            y[i] = functions.cos(x[i], True)
        else:
            y[i] = functions.tan(x[i], True)
