"""Recurrent layers: products with the inputs, then step by step."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.elementwise.kernels.opcodes import NONE
from tenonnx_cpu.jit.compiling import Contract, In, Out, f32, helper, i32, i64, kernel, pasted
from tenonnx_cpu.jit.threads.parallel_for import look
from tenonnx_cpu.jit.vectors.views import floats
from tenonnx_cpu.matmul.kernels.gemm import make_product
from tenonnx_cpu.recurrent import kernels as at
from tenonnx_cpu.recurrent.kernels.steps import pack_part, run_items, run_units

ONE, NOTHING = np.float32(1), np.float32(0)

# Products of the steps that are taken before the run can be stopped: some milliseconds.
MAX_CHUNK_PRODUCTS = 1 << 26

# Products in whose time a step does what does not depend on sizes.
OVERHEAD = 1 << 12
product = pasted(make_product("f32"))


@helper
def add_biases(shape: Any, b: Any, width: Any, biases: Any) -> None:
    """Write what is added to the gates whatever the inputs are.

    What the reset gate scales is added later.
    """
    n = shape[at.N]
    for way in range(shape[at.WAYS]):
        for unit in range(width):
            bias = b[way, unit]
            if shape[at.KIND] != at.GRU_RESET_AFTER or unit < 2 * n:
                bias += b[way, width + unit]
            biases[way * width + unit] = bias


@helper
def start_states(shape: Any, states: Any, memory: Any, start: Any) -> None:
    """Put states where steps find them; zeros if none are given."""
    n, batch, pitch = shape[at.N], shape[at.BATCH], shape[at.PITCH]
    for way in range(shape[at.WAYS]):
        for item in range(batch):
            source = way * shape[at.STATE_WAY] + item * shape[at.STATE_ROW]
            target = start + (way * batch + item) * pitch
            for unit in range(n):
                memory[target + unit] = states[source + unit] if states.size else NOTHING


@helper
def end_states(shape: Any, memory: Any, start: Any, states: Any) -> None:
    """Give out the last states."""
    n, batch, pitch = shape[at.N], shape[at.BATCH], shape[at.PITCH]
    for way in range(shape[at.WAYS]):
        for item in range(batch):
            target = way * shape[at.STATE_WAY] + item * shape[at.STATE_ROW]
            source = start + (way * batch + item) * pitch
            for unit in range(n):
                states[target + unit] = memory[source + unit]


@kernel(
    (
        In(i64, 1), In(f32, 2), In(f32, 2, "A"), In(f32, 3), In(f32, 1), In(f32, 1), In(f32, 2),
        In(i32, 1), Out(f32, 4), Out(f32, 1), Out(f32, 1), Out(f32, 1), Out(f32, 2), In(i64, 2),
        In(f32, 2), Out(i32, 1),
    ),
    Contract(
        plan="hidden_size is R's",
        launch="W, R, B and states agree; a length per item",
        values="lengths are from 0 to the steps",
    ),
)  # fmt: skip
def run_layer(  # type: ignore[no-untyped-def] # the signature has them
    shape, x, w, r, h, c, b, lengths, y, hidden, cell, memory, gates, offsets, residual,
    refusal,
):  # fmt: skip
    """Run a recurrent layer.

    Args:
        shape: The numbers of ``recurrent.layout.Layout``.
        x: The inputs, in the order of ``X_TIME`` and ``X_ROW``.
        w: Their weights, ``(inputs, directions * gates * n)``, the inputs' adjacent.
        r: The recurrent weights, ``(directions, gates * n, n)``.
        h: The first hidden states, or nothing.
        c: The first cells of an LSTM, likewise.
        b: The biases of both weights, ``(directions, 2 * gates * n)``.
        lengths: How many steps each item of the batch has, or nothing.
        y: All hidden states.
        hidden: The last ones.
        cell: The last cells of an LSTM.
        memory: As the layout says.
        gates: Its beginning, where what the inputs add to gates is, a row per step and item.
        offsets: Where a product's only pair of matrices lies.
        residual: Of no size: products add nothing else.
        refusal: Where 1 is written, and nothing done, if an item has less than no steps, or more
            than there are.
    """
    refusal[0] = 0
    for item in range(lengths.size):
        if lengths[item] < 0 or lengths[item] > shape[at.STEPS]:
            refusal[0] = 1
            return
    width = r.shape[1]
    ways, batch, steps = shape[at.WAYS], shape[at.BATCH], shape[at.STEPS]
    base = memory.ctypes.data
    biases = floats(base + 4 * shape[at.BIAS_AT], ways * width)
    add_biases(shape, b, width, biases)
    start_states(shape, h, memory, shape[at.STATES_AT])
    if cell.size:
        start_states(shape, c, memory, shape[at.CELLS_AT])
    tasks = ways * shape[at.PARTS]
    if shape[at.PACKS]:
        extras = (biases, residual, ONE, NONE, NOTHING, NOTHING)
        work = memory[shape[at.WORK_AT] :]
        product(x, w, gates, offsets, extras, work, shape[at.TEAM])
        pack_part((shape, r, memory), tasks, shape[at.TEAM])
    layer = (shape, x, w, r, lengths, b, y, memory)
    if shape[at.PARTS] == 1:
        span = max(
            1,
            MAX_CHUNK_PRODUCTS // (width * shape[at.ITEMS] * (r.shape[2] + w.shape[0]) + OVERHEAD),
        )
        for first in range(0, steps, span):
            if first:
                look()
            arguments = first, min(steps, first + span), layer
            run_items(arguments, ways * shape[at.GROUPS], shape[at.TEAM])
    else:
        for moment in range(steps):
            for phase in range(2 if shape[at.KIND] == at.GRU else 1):
                run_units((phase, moment, layer), tasks, shape[at.TEAM])
    end_states(
        shape, memory, shape[at.STATES_AT] + steps % 2 * ways * batch * shape[at.PITCH], hidden
    )
    if cell.size:
        end_states(shape, memory, shape[at.CELLS_AT], cell)
