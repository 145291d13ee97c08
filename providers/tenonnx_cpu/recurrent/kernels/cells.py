"""The cells of recurrent layers: from the sums of gates to states, unit by unit."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.jit.compiling import helper
from tenonnx_cpu.jit.vectors import vmath
from tenonnx_cpu.recurrent.kernels import GRU, GRU_RESET_AFTER, LSTM

F = np.float32


@helper
def lstm_cells(line: Any, n: Any, own: Any, cell: Any, hidden: Any) -> None:
    """Turn sums of gates (input, output, forget, cell) into the next cell and hidden state.

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
        cell[k] = vmath.gate(f[k]) * cell[k] + vmath.gate(i[k]) * vmath.tanh(g[k])
    for k in range(count):
        hidden[k] = vmath.gate(o[k]) * vmath.tanh(cell[k])


@helper
def gru_mix(update: Any, candidate: Any, before: Any, hidden: Any) -> None:
    """Mix the state with a candidate; the update gate's sums say how much of it stays."""
    for k in range(hidden.size):
        z = vmath.gate(update[k])
        hidden[k] = (F(1) - z) * vmath.tanh(candidate[k]) + z * before[k]


@helper
def gru_reset(line: Any, n: Any, own: Any, before: Any, mixed: Any) -> None:
    """Finish the update gate's sums, and write what the reset gate leaves of the state."""
    count = mixed.size
    r, more = line[n:], own[count:]
    for k in range(count):
        line[k] += own[k]
    for k in range(count):
        mixed[k] = vmath.gate(r[k] + more[k]) * before[k]


@helper
def gru_after(line: Any, n: Any, own: Any, bias: Any, before: Any, hidden: Any) -> None:
    """Take a step of a GRU whose reset gate scales what the state adds to the candidate."""
    count = hidden.size
    r, candidate, more, product = line[n:], line[2 * n :], own[count:], own[2 * count :]
    for k in range(count):
        line[k] += own[k]
    for k in range(count):
        candidate[k] += vmath.gate(r[k] + more[k]) * (product[k] + bias[k])
    gru_mix(line, candidate, before, hidden)


@helper
def finish_units(
    kind: Any, phase: Any, line: Any, n: Any, own: Any, bias: Any, before: Any, mixed: Any,
    cell: Any, hidden: Any,
) -> None:  # fmt: skip
    """Take some units of one item a step further, or a GRU's to its second phase.

    Args:
        kind: Of the layer.
        phase: Which of its phases.
        line: As ``lstm_cells``; of no use afterwards.
        n: As of ``lstm_cells``.
        own: As of ``lstm_cells``.
        bias: What the reset gate scales along with it, of ``GRU_RESET_AFTER``.
        before: The states before.
        mixed: What a GRU's first phase leaves of them.
        cell: As ``lstm_cells``.
        hidden: As of ``lstm_cells``.
    """
    if kind == LSTM:
        lstm_cells(line, n, own, cell, hidden)
    elif kind == GRU_RESET_AFTER:
        gru_after(line, n, own, bias, before, hidden)
    elif kind == GRU and phase == 0:
        gru_reset(line, n, own, before, mixed)
    elif kind == GRU:
        candidate = line[2 * n :]
        for k in range(hidden.size):
            candidate[k] += own[k]
        gru_mix(line, candidate, before, hidden)
    else:
        for k in range(hidden.size):
            hidden[k] = vmath.tanh(line[k] + own[k])
