"""Steps of recurrent layers: every thread the same hidden units of all items of the batch.

A thread's part of the recurrent weights then stays in its own cache from step to step.
"""

from __future__ import annotations

from typing import Any

from tenonnx_cpu.jit.compiling import helper
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors.views import floats
from tenonnx_cpu.matmul.kernels.block import multiply_block
from tenonnx_cpu.matmul.kernels.gemv_dot import make_dot_lines
from tenonnx_cpu.matmul.kernels.pack import make_pack
from tenonnx_cpu.matmul.kernels.tile import COLUMNS, ZERO
from tenonnx_cpu.recurrent import kernels as at
from tenonnx_cpu.recurrent.kernels.cells import finish_units

PANEL_ROW_BYTES = 4 * COLUMNS
# Columns of weights that are gone over in order.
CHUNK_COLUMNS = 4 * COLUMNS

pack = make_pack("f32")
dots = make_dot_lines("f32")


@helper
def panels(count: Any) -> Any:
    """Return how many panels so many columns take."""
    return -(-count // COLUMNS)


@helper
def pack_rows(weights: Any, row: Any, count: Any, depth: Any, target: Any) -> Any:
    """Pack rows of ``weights`` as panels of columns; return the address after them."""
    for column in range(0, count, COLUMNS):
        source = weights + 4 * depth * (row + column)
        pack(source, 4, 4 * depth, depth, min(COLUMNS, count - column), target)
        target += PANEL_ROW_BYTES * depth
    return target


@parallel
def pack_part(arguments: Any, task: Any, worker: Any) -> None:
    """Pack the weights of some units: gate by gate, or those of all units in one."""
    shape, weights, memory = arguments
    width, n = weights.shape[1], weights.shape[2]
    parts, units = shape[at.PARTS], shape[at.UNITS]
    way, first = task // parts, task % parts * units
    count = min(units, n - first)
    source = weights.ctypes.data + 4 * width * n * way
    target = memory.ctypes.data + 4 * (shape[at.PACKED_AT] + shape[at.PANELS] * task)
    if parts > 1:
        for gate in range(width // n):
            target = pack_rows(source, gate * n + first, count, n, target)
        return
    split = 2 * n if shape[at.KIND] == at.GRU else width
    target = pack_rows(source, 0, split, n, target)
    if split < width:
        pack_rows(source, split, width - split, n, target)


@helper
def sum_gates(
    gates: Any, state: Any, state_row: Any, units: Any, n: Any, rows: Any, weights: Any, sums: Any,
    row: Any, edge: Any, odd: Any,
) -> None:  # fmt: skip
    """Write what the state adds to gates, for some units.

    Args:
        gates: How many.
        state: Address of the state.
        state_row: Bytes from item to item of the state.
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
        chunks = -(-gates * n // CHUNK_COLUMNS)
        for index in range(chunks):
            column = CHUNK_COLUMNS * (chunks - 1 - index if odd else index)
            multiply_block(
                rows, min(CHUNK_COLUMNS, gates * n - column), n, state, state_row, 4,
                weights + PANEL_ROW_BYTES * n * column // COLUMNS, PANEL_ROW_BYTES,
                PANEL_ROW_BYTES * n, sums + 4 * column, row, ZERO, edge,
            )  # fmt: skip
        return
    for gate in range(gates):
        multiply_block(
            rows, units, n, state, state_row, 4,
            weights + PANEL_ROW_BYTES * n * panels(units) * gate, PANEL_ROW_BYTES,
            PANEL_ROW_BYTES * n, sums + 4 * units * gate, row, ZERO, edge,
        )  # fmt: skip


@helper
def sum_directly(
    layer: Any, moment: Any, way: Any, first: Any, count: Any, gate: Any, gates: Any, state: Any,
    sums: Any, row: Any,
) -> None:  # fmt: skip
    """Write what inputs and state add to some gates of some units, from weights where they are.

    Both inputs and ``sums`` are all that one moment needs of them; what the inputs add is written
    once, with the gates of the first phase.
    """
    shape, x, w, r, _, _, _, memory = layer
    n, inputs, batch = shape[at.N], shape[at.INPUTS], shape[at.BATCH]
    width = r.shape[1]
    biases = memory.ctypes.data + 4 * (shape[at.BIAS_AT] + way * width + first)
    lines = memory.ctypes.data + 4 * (shape[at.GATES_AT] + way * width + first)
    for number in range(gate, gate + gates):
        line = way * width + number * n + first
        dots(
            batch, count, n, state, 4 * shape[at.PITCH], r.ctypes.data + 4 * n * line, 4 * n,
            sums + 4 * count * (number - gate), row,
        )  # fmt: skip
    if gate:
        return
    for item in range(batch):
        place = time_of(layer, way, item, moment) * shape[at.X_TIME] + item * shape[at.X_ROW]
        target = lines + 4 * r.shape[0] * width * place
        for number in range(width // n):
            line = way * width + number * n + first
            dots(
                1, count, inputs, x.ctypes.data + 4 * inputs * place, 0,
                w.ctypes.data + 4 * inputs * line, 4 * inputs, target + 4 * n * number, 0,
            )  # fmt: skip
            own = floats(target + 4 * n * number, count)
            bias = floats(biases + 4 * n * number, count)
            for k in range(count):
                own[k] += bias[k]


@helper
def length_of(layer: Any, item: Any) -> Any:
    """Return how many steps an item has."""
    lengths, steps = layer[4], layer[0][at.STEPS]
    return lengths[item] if lengths.size else steps


@helper
def time_of(layer: Any, way: Any, item: Any, moment: Any) -> Any:
    """Return what is read and written at a moment: directions may run backwards.

    After an item's last step that is zeros, where nothing has been written.
    """
    length = length_of(layer, item)
    backwards = way != layer[0][at.REVERSE]
    return length - 1 - moment if backwards and moment < length else moment


@helper
def take_step(
    phase: Any, moment: Any, part: Any, top: Any, high: Any, worker: Any, layer: Any
) -> None:
    """Take some units of some items one step further; GRU needs a second phase for that.

    Sums are apart from what other threads write: cores that read ahead would fetch it in between.
    """
    shape, _, _, r, _, _, _, memory = layer
    batch, n, pitch, kind = shape[at.BATCH], shape[at.N], shape[at.PITCH], shape[at.KIND]
    parts, units = shape[at.PARTS], shape[at.UNITS]
    way, first = part // parts, part % parts * units
    count = min(units, n - first)
    base = memory.ctypes.data
    before = base + 4 * (shape[at.STATES_AT] + (moment % 2 * r.shape[0] + way) * batch * pitch)
    edge = base + 4 * (shape[at.WORK_AT] + shape[at.SHARE] * worker)
    sums, row = edge + 4 * 1024, 4 * (shape[at.SHARE] - 1024) // shape[at.ITEMS]
    state, gates = before, 2 - phase if kind == at.GRU else r.shape[1] // n
    packed = base + 4 * (shape[at.PACKED_AT] + shape[at.PANELS] * part)
    if phase:
        state = base + 4 * (shape[at.RESET_AT] + way * batch * pitch)
        packed += PANEL_ROW_BYTES * n * (panels(2 * n) if count == n else 2 * panels(count))
    if shape[at.PACKS]:
        state += 4 * pitch * top
        sum_gates(gates, state, 4 * pitch, count, n, high, packed, sums, row, edge, moment % 2)
    else:
        sum_directly(layer, moment, way, first, count, 2 * phase, gates, state, sums, row)
    for item in range(high):
        finish_item(layer, phase, moment, way, top + item, first, count, before, sums + row * item)


@helper
def finish_item(
    layer: Any, phase: Any, moment: Any, way: Any, item: Any, first: Any, count: Any, before: Any,
    sums: Any,
) -> None:  # fmt: skip
    """Make the next states of some units of one item from the sums of their gates."""
    shape, _, _, r, _, b, y, memory = layer
    batch, n, pitch, ways = shape[at.BATCH], shape[at.N], shape[at.PITCH], r.shape[0]
    width = r.shape[1]
    t = time_of(layer, way, item, moment)
    base, own = memory.ctypes.data, way * batch + item
    after = base + 4 * (shape[at.STATES_AT] + ((moment + 1) % 2 * ways * batch + own) * pitch)
    old = floats(before + 4 * (item * pitch + first), count)
    hidden = floats(after + 4 * first, count)
    target = t * shape[at.Y_TIME] + way * shape[at.Y_WAY] + item * shape[at.Y_ROW] + first
    out = floats(y.ctypes.data + 4 * target, count)
    if moment >= length_of(layer, item):
        for k in range(count):
            out[k] = 0
            hidden[k] = old[k]
        return
    place = t * shape[at.X_TIME] + item * shape[at.X_ROW]
    line = base + 4 * (shape[at.GATES_AT] + (place * ways + way) * width + first)
    finish_units(
        shape[at.KIND], phase, floats(line, width - first), n, floats(sums, width),
        floats(b.ctypes.data + 4 * (way * 2 * width + width + 2 * n + first), count), old,
        floats(base + 4 * (shape[at.RESET_AT] + own * pitch + first), count),
        floats(base + 4 * (shape[at.CELLS_AT] + own * pitch + first), count), hidden,
    )  # fmt: skip
    for k in range(count):
        out[k] = hidden[k]


@parallel
def run_units(arguments: Any, task: Any, worker: Any) -> None:
    """Take a step with some units of one direction, as ``take_step``."""
    phase, moment, layer = arguments
    take_step(phase, moment, task, 0, layer[0][at.BATCH], worker, layer)


@parallel
def run_items(arguments: Any, task: Any, worker: Any) -> None:
    """Take several steps of some items in one direction, which wait for no other thread's."""
    first, last, layer = arguments
    shape = layer[0]
    way, top = task // shape[at.GROUPS], task % shape[at.GROUPS] * shape[at.ITEMS]
    high = min(shape[at.ITEMS], shape[at.BATCH] - top)
    for moment in range(first, last):
        for phase in range(2 if shape[at.KIND] == at.GRU else 1):
            take_step(phase, moment, way, top, high, worker, layer)
