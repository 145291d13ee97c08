"""Small dense layers one after the other on a row at a time: what a call costs is paid once."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.jit.compiling import In, Out, f32, helper, i64, kernel, size
from tenonnx_cpu.jit.products.epilogue import activate
from tenonnx_cpu.jit.vectors.views import floats

F = np.float32


@helper
def layer(x: Any, weights: Any, down: Any, across: Any, bias: Any, y: Any) -> None:
    """Writes ``x @ W + bias`` for W at an address, strides in bytes, one of them 4."""
    if across == 4:
        if bias:
            start = floats(bias, y.size)
            for j in range(y.size):
                y[j] = start[j]
        else:
            for j in range(y.size):
                y[j] = F(0)
        rows = x.size // 4 * 4
        for k in range(0, rows, 4):
            place = weights + k * down
            a, b = floats(place, y.size), floats(place + down, y.size)
            c, d = floats(place + 2 * down, y.size), floats(place + 3 * down, y.size)
            p, q, r, s = x[k], x[k + 1], x[k + 2], x[k + 3]
            for j in range(y.size):
                y[j] += (p * a[j] + q * b[j]) + (r * c[j] + s * d[j])
        for k in range(rows, x.size):
            line, p = floats(weights + k * down, y.size), x[k]
            for j in range(y.size):
                y[j] += p * line[j]
        return
    for j in range(y.size):
        line = floats(weights + j * across, x.size)
        total = F(0)
        for k in range(x.size):
            total += x[k] * line[k]
        y[j] = total
    if bias:
        start = floats(bias, y.size)
        for j in range(y.size):
            y[j] += start[j]


@kernel((In(f32, 2), In(i64, 2), In(f32, 2), Out(f32, 1), Out(f32, 2), size))
def run_layers(x, layers, numbers, memory, y, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Runs dense layers.

    Args:
        x: The rows.
        layers: Per layer the address of its weights, bytes from row to row and from column to
            column, how many columns there are, the address of its bias or 0, and its activation.
        numbers: The activation's parameters.
        memory: Two rows of the widest layer.
        y: The results.
        threads: Of no use here.
    """
    half = memory.size // 2
    for row in range(x.shape[0]):
        given = x[row]
        for n in range(layers.shape[0]):
            out = memory[n % 2 * half : n % 2 * half + layers[n, 3]]
            if n == layers.shape[0] - 1:
                out = y[row]
            layer(given, layers[n, 0], layers[n, 1], layers[n, 2], layers[n, 4], out)
            activate(out, layers[n, 5], numbers[n, 0], numbers[n, 1])
            given = out
