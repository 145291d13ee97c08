"""The tasks of a recurrent layer of a given shape, and the layout of its memory."""

from __future__ import annotations

import functools
from typing import NamedTuple

from tenonnx_cpu.conv.layout import fixed
from tenonnx_cpu.kernel_selection import NDArray
from tenonnx_cpu.matmul.kernels import WORKSPACE

GATE_COUNTS = (1, 4, 3, 3)

# Columns of a packed panel at most; what is reserved is rounded up to them.
MAX_PANEL_COLUMNS = 64

# Floats of a cache line: threads write to different ones.
CACHE_LINE_FLOATS = 16

# Hidden units that a thread takes at least; every number of them is a multiple, but the last.
MIN_UNITS_PER_THREAD = 32

# Products of a step that are worth a second thread, which is waited for at every step.
MIN_STEP_PRODUCTS_PER_THREAD = 1 << 16

# Products of all steps that are worth one that is not: for the other direction, or other items.
MIN_PRODUCTS_PER_GROUP = 1 << 20

# Recurrent weights that every thread may read at each step: its second-level cache has them.
CACHED = 1 << 18

# Steps times items of the batch up to which packed weights would not be used often enough.
MAX_UNPACKED_STEPS = 4


class RecurrentLayout(NamedTuple):
    """A layer cut into tasks.

    Attributes:
        numbers: As above.
        floats: Memory that it needs.
    """

    numbers: NDArray
    floats: int


class Sizes(NamedTuple):
    """The parameters of a layer's layout."""

    kind: int
    steps: int
    batch: int
    inputs: int
    n: int
    ways: int
    reverse: int
    batch_first: int
    threads: int


@functools.lru_cache(maxsize=256)
def layout(sizes: Sizes) -> RecurrentLayout:
    """Return how to run a layer."""
    kind, steps, batch, inputs, n, ways, reverse, batch_first, threads = sizes
    gates, packs = GATE_COUNTS[kind], int(steps * batch > MAX_UNPACKED_STEPS)
    work = gates * n * batch * ways * (n if packs else n + inputs)
    team = 1
    if work >= MIN_STEP_PRODUCTS_PER_THREAD or (
        batch > MAX_UNPACKED_STEPS and work * steps >= MIN_PRODUCTS_PER_GROUP
    ):
        team = threads
    elif work * steps >= MIN_PRODUCTS_PER_GROUP:
        team = min(threads, ways)
    groups = 1
    if batch > MAX_UNPACKED_STEPS and n * n * gates <= CACHED:
        groups = max(1, min(team // ways, batch // 2))
    items = -(-batch // groups)
    groups = -(-batch // items)
    # Threads that share a direction's units wait for one another at every step.
    parts = 1 if groups > 1 else max(1, min(team // ways, n // MIN_UNITS_PER_THREAD))
    units = -(-n // (parts * MIN_UNITS_PER_THREAD)) * MIN_UNITS_PER_THREAD if parts > 1 else n
    parts = -(-n // units)
    pitch = up(n)
    share = 1024 + items * (up(gates * units) + CACHE_LINE_FLOATS)
    panels = n * (-(-units // MAX_PANEL_COLUMNS) * gates + 1) * MAX_PANEL_COLUMNS if packs else 0
    strides = (1, steps, ways * n, n, steps * ways * n, n, ways * n)
    if not batch_first:
        strides = (batch, 1, ways * batch * n, batch * n, n, batch * n, n)
    used = [
        steps * batch * ways * gates * n, ways * gates * n, 2 * ways * batch * pitch,
        ways * batch * pitch, ways * batch * pitch, ways * parts * panels,
        max(team * share, threads * WORKSPACE),
    ]  # fmt: skip
    starts = [sum(map(up, used[:index])) for index in range(len(used) + 1)]
    numbers = fixed((
        kind, steps, batch, inputs, n, ways, reverse, packs, units, parts, items,
        groups, team, *strides, pitch, share, panels, *starts[:-1],
    ))  # fmt: skip
    return RecurrentLayout(numbers, starts[-1])


def up(count: int) -> int:
    """Return a number of floats rounded up to whole cache lines."""
    return -(-count // CACHE_LINE_FLOATS) * CACHE_LINE_FLOATS
