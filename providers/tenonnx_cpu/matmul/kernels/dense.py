"""Small dense layers one after the other on a few rows: what a call costs is paid once."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.elementwise.kernels.activate import activate
from tenonnx_cpu.jit.compiling import Contract, In, Out, f32, helper, i64, kernel, size
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors.views import floats
from tenonnx_cpu.matmul.kernels import WORKSPACE
from tenonnx_cpu.matmul.kernels.band import multiply_band
from tenonnx_cpu.matmul.kernels.gemv_dot import make_dot_lines

F = np.float32
dots = make_dot_lines("f32")


@helper
def multiply_row(x: Any, weights: Any, down: Any, y: Any) -> None:
    """Write ``x @ W`` for W at an address, whose columns are adjacent."""
    for j in range(y.size):
        y[j] = F(0)
    whole = x.size // 4 * 4
    for k in range(0, whole, 4):
        place = weights + k * down
        a, b = floats(place, y.size), floats(place + down, y.size)
        c, d = floats(place + 2 * down, y.size), floats(place + 3 * down, y.size)
        p, q, r, s = x[k], x[k + 1], x[k + 2], x[k + 3]
        for j in range(y.size):
            y[j] += (p * a[j] + q * b[j]) + (r * c[j] + s * d[j])
    for k in range(whole, x.size):
        line, p = floats(weights + k * down, y.size), x[k]
        for j in range(y.size):
            y[j] += p * line[j]


# Rows up to which columns of weights, if they are adjacent, are not worth packing as panels.
MAX_ROWS_OF_DOTS = 56


@helper
def multiply_rows(
    rows: Any, columns: Any, depth: Any, x: Any, weights: Any, down: Any, across: Any, y: Any,
    memory: Any,
) -> None:  # fmt: skip
    """Write ``X @ W`` for rows at an address, and W of strides in bytes, one of them 4."""
    if rows == 1 and across == 4:
        multiply_row(floats(x, depth), weights, down, floats(y, columns))
    elif across == 4 or rows > MAX_ROWS_OF_DOTS:
        multiply_band(
            rows, columns, depth, x, 4 * depth, weights, down, across, y, 4 * columns, memory
        )
    else:
        dots(rows, columns, depth, x, 4 * depth, weights, across, y, 4 * columns)


@parallel
def block_of_rows(arguments: Any, task: Any, worker: Any) -> None:
    """Take some rows through the layers."""
    x, layers, numbers, memory, y, share, grain = arguments
    top = task * grain
    rows = min(grain, x.shape[0] - top)
    own = memory.ctypes.data + 4 * share * worker
    half = (share - WORKSPACE) // 2
    depth = x.shape[1]
    given = x.ctypes.data + 4 * top * depth
    for n in range(layers.shape[0]):
        columns = layers[n, 3]
        out = own + 4 * (WORKSPACE + n % 2 * half)
        if n == layers.shape[0] - 1:
            out = y.ctypes.data + 4 * top * columns
        weights, down, across = layers[n, 0], layers[n, 1], layers[n, 2]
        multiply_rows(rows, columns, depth, given, weights, down, across, out, own)
        for row in range(rows):
            line = floats(out + 4 * row * columns, columns)
            if layers[n, 4]:
                bias = floats(layers[n, 4], columns)
                for j in range(columns):
                    line[j] += bias[j]
            activate(layers[n, 5], line, line, numbers[n, 0], numbers[n, 1])
        given, depth = out, columns


@kernel(
    (In(f32, 2), In(i64, 2), In(f32, 2), Out(f32, 1), size, Out(f32, 2), size, size),
    Contract(
        plan="each layer's rows are the columns of the one before; a bias has a number per column",
        launch="x is a matrix of the first layer's rows",
        addressed=True,
    ),
)
def run_layers(x, layers, numbers, memory, share, y, grain, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Run dense layers.

    Args:
        x: The rows.
        layers: Per layer the address of its weights, bytes from row to row and from column to
            column, how many columns there are, the address of its bias or 0, and its activation.
        numbers: The activation's parameters.
        memory: Floats to work in: ``share`` for every thread.
        share: ``WORKSPACE``, and two blocks of ``grain`` rows of the widest layer.
        y: The results.
        grain: Rows of a task, as many as ``multiply_band`` has room for with the widest layer.
        threads: How many to use at most.
    """
    arguments = (x, layers, numbers, memory, y, share, grain)
    block_of_rows(arguments, -(-x.shape[0] // grain), threads)
