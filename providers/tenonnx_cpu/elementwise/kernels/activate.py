"""Activations of rows: the one place where kernels choose among them."""

from __future__ import annotations

from typing import Any

from tenonnx_cpu.elementwise.kernels import opcodes
from tenonnx_cpu.jit.compiling import inlined
from tenonnx_cpu.jit.vectors import activations, vmath


@inlined
def activate(op: Any, x: Any, y: Any, first: Any, second: Any) -> None:
    """Compute ``y = op(x)`` for adjacent elements; ``first`` and ``second`` are parameters.

    Both may be the same array. It is inlined, so that LLVM then knows that they are, and needs not
    look whether they overlap, which such arrays do.
    """
    if op == opcodes.RELU:
        for i in range(y.size):
            y[i] = activations.relu(x[i])
    elif op == opcodes.GELU:
        for i in range(y.size):
            y[i] = vmath.gelu(x[i])
    elif op == opcodes.GELU_TANH:
        for i in range(y.size):
            y[i] = vmath.gelu_tanh(x[i])
    elif op == opcodes.SIGMOID:
        for i in range(y.size):
            y[i] = vmath.sigmoid(x[i])
    elif op == opcodes.SILU:
        for i in range(y.size):
            y[i] = vmath.silu(x[i])
    elif op == opcodes.TANH:
        for i in range(y.size):
            y[i] = vmath.tanh(x[i])
    elif op == opcodes.CLIP:
        for i in range(y.size):
            y[i] = activations.clip(x[i], first, second)
    elif op == opcodes.LEAKY_RELU:
        for i in range(y.size):
            y[i] = activations.leaky_relu(x[i], first)
    elif op == opcodes.HARD_SIGMOID:
        for i in range(y.size):
            y[i] = activations.hard_sigmoid(x[i], first, second)
    elif op == opcodes.HARD_SWISH:
        for i in range(y.size):
            y[i] = activations.hard_sigmoid(x[i], first, second) * x[i]
    elif op == opcodes.SOFTSIGN:
        for i in range(y.size):
            y[i] = activations.softsign(x[i])
    elif op == opcodes.THRESHOLDED_RELU:
        for i in range(y.size):
            y[i] = activations.thresholded_relu(x[i], first)
