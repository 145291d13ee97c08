"""LSTM and GRU: all steps of some items of a batch, their weights packed once."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.jit import vmath
from tenonnx_cpu.jit.compiling import In, Out, f32, helper, kernel, size
from tenonnx_cpu.jit.gemm import multiply_block
from tenonnx_cpu.jit.pack import make_pack
from tenonnx_cpu.jit.pool import parallel
from tenonnx_cpu.jit.tile import ADD, COLUMNS, ZERO
from tenonnx_cpu.jit.views import floats

F = np.float32
PANEL = 4 * COLUMNS
LSTM, GRU, GRU_RESET_AFTER = 0, 1, 2
pack = make_pack("f32")


@helper
def pack_rows(weights: Any, row: Any, count: Any, depth: Any, target: Any) -> Any:
    """Packs rows of ``weights`` as panels of columns; returns the address after them."""
    for column in range(0, count, COLUMNS):
        source = weights + 4 * depth * (row + column)
        pack(source, 4, 4 * depth, depth, min(COLUMNS, count - column), target)
        target += PANEL * depth
    return target


@helper
def lstm_cells(gates: Any, cell: Any, hidden: Any) -> None:
    """Turns sums of gates (input, output, forget, cell) into the next cell and hidden state."""
    n = cell.size
    i, o, f, g = gates[:n], gates[n : 2 * n], gates[2 * n : 3 * n], gates[3 * n :]
    for k in range(n):
        cell[k] = vmath.sigmoid(f[k]) * cell[k] + vmath.sigmoid(i[k]) * vmath.tanh(g[k])
    for k in range(n):
        hidden[k] = vmath.sigmoid(o[k]) * vmath.tanh(cell[k])


@helper
def gru_mix(update: Any, candidate: Any, hidden: Any) -> None:
    """Mixes the state with a candidate; the update gate's sums say how much of it stays."""
    for k in range(hidden.size):
        z = vmath.sigmoid(update[k])
        hidden[k] = (F(1) - z) * vmath.tanh(candidate[k]) + z * hidden[k]


@parallel
def run_items(arguments: Any, task: Any, worker: Any) -> None:
    """Runs some items of the batch in one direction through all steps."""
    kind, gates, inner, hidden, cell, y, backwards, grain, packed, memory, share = arguments
    steps, batch, width = gates.shape[1], gates.shape[2], gates.shape[3]
    n = hidden.shape[2]
    parts = -(-batch // grain)
    way, first = task // parts, task % parts * grain
    count = min(grain, batch - first)
    own = memory.ctypes.data + 4 * share * worker
    edge = own
    extra = own + 4 * 1024
    reset = extra + 4 * grain * n
    panels = packed.ctypes.data + 4 * packed.shape[1] * way
    split = width if kind == LSTM else 2 * n
    later = panels + PANEL * n * -(-split // COLUMNS)
    state = hidden.ctypes.data + 4 * n * (way * batch + first)
    for moment in range(steps):
        t = steps - 1 - moment if backwards[way] else moment
        sums = gates.ctypes.data + 4 * width * ((way * steps + t) * batch + first)
        multiply_block(
            count, split, n, state, 4 * n, 4, panels, PANEL, PANEL * n, sums, 4 * width, ADD, edge
        )
        if kind == GRU:
            for row in range(count):
                line, now = gates[way, t, first + row], hidden[way, first + row]
                out = floats(reset + 4 * n * row, n)
                r = line[n : 2 * n]
                for k in range(n):
                    out[k] = vmath.sigmoid(r[k]) * now[k]
            multiply_block(
                count, n, n, reset, 4 * n, 4, later, PANEL, PANEL * n,
                sums + 8 * n, 4 * width, ADD, edge,
            )  # fmt: skip
        elif kind == GRU_RESET_AFTER:
            multiply_block(
                count, n, n, state, 4 * n, 4, later, PANEL, PANEL * n, extra, 4 * n, ZERO, edge
            )
            for row in range(count):
                line, product = gates[way, t, first + row], floats(extra + 4 * n * row, n)
                r, candidate, bias = line[n : 2 * n], line[2 * n :], inner[way]
                for k in range(n):
                    candidate[k] += vmath.sigmoid(r[k]) * (product[k] + bias[k])
        for row in range(count):
            line, now = gates[way, t, first + row], hidden[way, first + row]
            if kind == LSTM:
                lstm_cells(line, cell[way, first + row], now)
            else:
                gru_mix(line[:n], line[2 * n :], now)
            out = y[t, way, first + row]
            for k in range(n):
                out[k] = now[k]


@parallel
def pack_way(arguments: Any, task: Any, worker: Any) -> None:
    """Packs the weights of one direction."""
    kind, weights, packed = arguments
    width, n = weights.shape[1], weights.shape[2]
    split = width if kind == LSTM else 2 * n
    source = weights.ctypes.data + 4 * width * n * task
    target = packed.ctypes.data + 4 * packed.shape[1] * task
    target = pack_rows(source, 0, split, n, target)
    if split < width:
        pack_rows(source, split, width - split, n, target)


@kernel(
    (
        size, Out(f32, 4), In(f32, 3), In(f32, 2), Out(f32, 3), Out(f32, 3), Out(f32, 4),
        In(size, 1), size, Out(f32, 2), Out(f32, 1), size, size,
    )
)  # fmt: skip
def run_steps(  # type: ignore[no-untyped-def] # the signature has them
    kind, gates, weights, inner, hidden, cell, y, backwards, grain, packed, memory, share, threads
):
    """Runs a recurrent layer.

    Args:
        kind: ``LSTM``, ``GRU``, or ``GRU_RESET_AFTER``.
        gates: What the inputs add to the gates, biases among it, ``(directions, steps, batch,
            gates * n)``; destroyed.
        weights: The recurrent ones, ``(directions, gates * n, n)``.
        inner: A bias within the reset gate's reach, ``(directions, n)``.
        hidden: The first hidden states, ``(directions, batch, n)``; become the last ones.
        cell: Likewise the cells of an LSTM.
        y: All hidden states, ``(steps, directions, batch, n)``.
        backwards: Per direction, whether time runs backwards.
        grain: Items of the batch in a task.
        packed: Memory for packed weights, ``(directions, floats)``.
        memory: ``share`` floats for every thread: 1024 and two states of ``grain`` items.
        share: Likewise.
        threads: How many threads to use.
    """
    ways, batch = gates.shape[0], gates.shape[2]
    pack_way((kind, weights, packed), ways, threads)
    arguments = (
        kind, gates, inner, hidden, cell, y, backwards, grain, packed, memory, share
    )  # fmt: skip
    run_items(arguments, ways * -(-batch // grain), threads)
