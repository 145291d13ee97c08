"""LSTM and GRU: step by step, every thread the same hidden units of all items of the batch.

A thread's part of the recurrent weights then stays in its own cache from step to step.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.jit.compiling import In, Out, f32, helper, kernel, size
from tenonnx_cpu.jit.products.block import multiply_block
from tenonnx_cpu.jit.products.pack import make_pack
from tenonnx_cpu.jit.products.tile import COLUMNS, ZERO
from tenonnx_cpu.jit.threads.pool import parallel
from tenonnx_cpu.jit.vectors import vmath
from tenonnx_cpu.jit.vectors.views import floats

F = np.float32
PANEL = 4 * COLUMNS
CHUNK = 4 * COLUMNS
"""Columns of weights that are gone over in order."""

LSTM, GRU, GRU_RESET_AFTER = 0, 1, 2
pack = make_pack("f32")


@helper
def panels(count: Any) -> Any:
    """Returns how many panels so many columns take."""
    return -(-count // COLUMNS)


@helper
def pack_rows(weights: Any, row: Any, count: Any, depth: Any, target: Any) -> Any:
    """Packs rows of ``weights`` as panels of columns; returns the address after them."""
    for column in range(0, count, COLUMNS):
        source = weights + 4 * depth * (row + column)
        pack(source, 4, 4 * depth, depth, min(COLUMNS, count - column), target)
        target += PANEL * depth
    return target


@parallel
def pack_part(arguments: Any, task: Any, worker: Any) -> None:
    """Packs the weights of some units: gate by gate, or those of all units in one."""
    kind, weights, packed, units = arguments
    width, n = weights.shape[1], weights.shape[2]
    parts = -(-n // units)
    way, first = task // parts, task % parts * units
    count = min(units, n - first)
    source = weights.ctypes.data + 4 * width * n * way
    target = packed.ctypes.data + 4 * (packed.shape[2] * task)
    if parts > 1:
        for gate in range(width // n):
            target = pack_rows(source, gate * n + first, count, n, target)
        return
    split = 2 * n if kind == GRU else width
    target = pack_rows(source, 0, split, n, target)
    if split < width:
        pack_rows(source, split, width - split, n, target)


@helper
def sum_gates(
    gates: Any, state: Any, units: Any, n: Any, rows: Any, weights: Any, sums: Any, row: Any,
    edge: Any, odd: Any,
) -> None:  # fmt: skip
    """Writes what the state adds to gates, for some units.

    Args:
        gates: How many.
        state: Address of the state, ``(rows, n)``.
        units: How many.
        n: Units there are.
        rows: Items of the batch.
        weights: Address of the packed weights.
        sums: Address of the result, gate by gate of the units.
        row: Bytes from row to row of it.
        edge: Address of memory for a tile.
        odd: Whether to begin at the end. Steps do so by turns: what weights the cache still has
            from the step before are used before they are replaced.
    """
    if units == n:
        chunks = -(-gates * n // CHUNK)
        for index in range(chunks):
            column = CHUNK * (chunks - 1 - index if odd else index)
            multiply_block(
                rows, min(CHUNK, gates * n - column), n, state, 4 * n, 4,
                weights + PANEL * n * column // COLUMNS, PANEL, PANEL * n, sums + 4 * column, row,
                ZERO, edge,
            )  # fmt: skip
        return
    for gate in range(gates):
        multiply_block(
            rows, units, n, state, 4 * n, 4, weights + PANEL * n * panels(units) * gate, PANEL,
            PANEL * n, sums + 4 * units * gate, row, ZERO, edge,
        )  # fmt: skip


@helper
def sums_row(units: Any) -> Any:
    """Returns the bytes from item to item of what the state adds to gates; no power of two."""
    return 4 * (4 * units + 16)


@helper
def lstm_cells(line: Any, n: Any, own: Any, cell: Any, hidden: Any) -> None:
    """Turns sums of gates (input, output, forget, cell) into the next cell and hidden state.

    Args:
        line: What the input adds to gates, from some unit's on; its other gates are ``n`` further.
        n: Units there are.
        own: What the state adds, gate by gate of the units at hand.
        cell: The cells from that unit's on.
        hidden: The states, to be written.
    """
    count = cell.size
    for gate in range(4):
        given, sums = line[gate * n : gate * n + count], own[gate * count : (gate + 1) * count]
        for k in range(count):
            sums[k] += given[k]
    i, o, f, g = own, own[count:], own[2 * count :], own[3 * count :]
    for k in range(count):
        cell[k] = vmath.sigmoid(f[k]) * cell[k] + vmath.sigmoid(i[k]) * vmath.tanh(g[k])
    for k in range(count):
        hidden[k] = vmath.sigmoid(o[k]) * vmath.tanh(cell[k])


@helper
def gru_mix(update: Any, candidate: Any, before: Any, hidden: Any) -> None:
    """Mixes the state with a candidate; the update gate's sums say how much of it stays."""
    for k in range(hidden.size):
        z = vmath.sigmoid(update[k])
        hidden[k] = (F(1) - z) * vmath.tanh(candidate[k]) + z * before[k]


@helper
def finish_units(kind: Any, phase: Any, row: Any, items: Any, before: Any, tensors: Any) -> None:
    """Turns the sums of some units' gates into what they are for, of one item of the batch."""
    gates, inner, _, cell, y, reset, _, _, _, _ = tensors
    first, count, way, t, extra = items
    n = y.shape[3]
    line, old = gates[t, row, way, first:], before[row, first : first + count]
    out = y[t, way, row, first : first + count]
    own = floats(extra + sums_row(count) * row, 4 * count)
    if kind == LSTM:
        lstm_cells(line, n, own, cell[way, row, first : first + count], out)
        return
    r, candidate = line[n:], line[2 * n :]
    if phase:
        for k in range(count):
            candidate[k] += own[k]
        gru_mix(line, candidate, old, out)
        return
    for k in range(count):
        line[k] += own[k]
    own = own[count:]
    if kind == GRU:
        mixed = reset[way, row, first : first + count]
        for k in range(count):
            mixed[k] = vmath.sigmoid(r[k] + own[k]) * old[k]
        return
    product, bias = own[count:], inner[way, first:]
    for k in range(count):
        candidate[k] += vmath.sigmoid(r[k] + own[k]) * (product[k] + bias[k])
    gru_mix(line, candidate, old, out)


@helper
def take_step(
    kind: Any, phase: Any, moment: Any, part: Any, worker: Any, units: Any, tensors: Any
) -> None:
    """Takes some units of one direction one step further; GRU needs a second phase for that."""
    gates, _, hidden, _, y, reset, backwards, packed, memory, share = tensors
    steps, batch, _, width = gates.shape
    n = hidden.shape[2]
    parts = -(-n // units)
    way, first = part // parts, part % parts * units
    count = min(units, n - first)
    t = steps - 1 - moment if backwards[way] else moment
    before = hidden[way]
    if moment:
        before = y[t + 1, way] if backwards[way] else y[t - 1, way]
    # Sums are apart from what other threads write: cores that read ahead would fetch it in between.
    edge = memory.ctypes.data + 4 * share * worker
    extra = edge + 4 * 1024
    at = packed.ctypes.data + 4 * packed.shape[2] * part
    state, some = before.ctypes.data, 2 - phase if kind == GRU else width // n
    if phase:
        state = reset[way].ctypes.data
        at += PANEL * n * (panels(2 * n) if count == n else 2 * panels(count))
    sum_gates(some, state, count, n, batch, at, extra, sums_row(count), edge, moment % 2)
    items = (first, count, way, t, extra)
    for row in range(batch):
        finish_units(kind, phase, row, items, before, tensors)


@parallel
def run_units(arguments: Any, task: Any, worker: Any) -> None:
    """Takes a step with some units of one direction, as ``take_step``."""
    kind, phase, moment, units, tensors = arguments
    take_step(kind, phase, moment, task, worker, units, tensors)


@parallel
def run_direction(arguments: Any, task: Any, worker: Any) -> None:
    """Takes all steps of one direction, whose units wait for no other thread's."""
    kind, units, tensors = arguments
    for moment in range(tensors[0].shape[0]):
        for phase in range(2 if kind == GRU else 1):
            take_step(kind, phase, moment, task, worker, units, tensors)


@kernel(
    (
        size, Out(f32, 4), In(f32, 3), In(f32, 2), Out(f32, 3), Out(f32, 3), Out(f32, 4),
        Out(f32, 3), In(size, 1), size, Out(f32, 3), Out(f32, 1), size, size,
    )
)  # fmt: skip
def run_steps(  # type: ignore[no-untyped-def] # the signature has them
    kind, gates, weights, inner, hidden, cell, y, reset, backwards, units, packed, memory, share,
    threads,
):  # fmt: skip
    """Runs a recurrent layer.

    Args:
        kind: ``LSTM``, ``GRU``, or ``GRU_RESET_AFTER``.
        gates: What the inputs add to the gates, biases among it, ``(steps, batch, directions,
            gates * n)``; destroyed.
        weights: The recurrent ones, ``(directions, gates * n, n)``.
        inner: A bias within the reset gate's reach, ``(directions, n)``.
        hidden: The first hidden states, ``(directions, batch, n)``; become the last ones.
        cell: Likewise the cells of an LSTM.
        y: All hidden states, ``(steps, directions, batch, n)``.
        reset: Room for hidden states, of a GRU.
        backwards: Per direction, whether time runs backwards.
        units: Hidden units in a task.
        packed: Memory for packed weights, ``(directions, tasks, floats)``.
        memory: ``share`` floats for every thread: 1024, and 16 and the units' gates per item.
        share: Likewise.
        threads: How many threads to use.
    """
    steps, ways = gates.shape[0], gates.shape[2]
    parts = -(-hidden.shape[2] // units)
    pack_part((kind, weights, packed, units), ways * parts, threads)
    tensors = (gates, inner, hidden, cell, y, reset, backwards, packed, memory, share)
    if parts == 1:
        run_direction((kind, units, tensors), ways, threads)
    else:
        for moment in range(steps):
            for phase in range(2 if kind == GRU else 1):
                run_units((kind, phase, moment, units, tensors), ways * parts, threads)
    for way in range(ways):
        last = y[0 if backwards[way] else steps - 1, way]
        for row in range(last.shape[0]):
            for unit in range(last.shape[1]):
                hidden[way, row, unit] = last[row, unit]
