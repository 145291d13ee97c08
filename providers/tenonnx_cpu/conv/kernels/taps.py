"""Arrays resized along their axes, one after the other, by weighted sums of a few elements each."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.conv.kernels import TAPS_FIELDS, TAPS_PASS
from tenonnx_cpu.elementwise.kernels.operations import FLOAT32, FLOAT64, ROUND
from tenonnx_cpu.elementwise.kernels.typed_rows import apply_row
from tenonnx_cpu.jit.compiling import Contract, In, Out, f64, helper, i64, inlined, kernel, size, u8
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors.named import named
from tenonnx_cpu.jit.vectors.views import elements

taps_sizes = named("TapsSizes", TAPS_FIELDS)
pass_sizes = named("TapsPass", TAPS_PASS)

# Elements that a task converts.
TASK_ELEMENTS = 1 << 13

# A result so little below a whole number is that number.
ALMOST = 1e-9


@inlined
def weigh_line(some: Any, out: Any, places: Any, weights: Any, taps: Any, dtype: Any) -> None:
    """Compute a line of results from elements of a line, those of two taps at a time."""
    count = out.size
    for tap in range(0, taps, 2):
        a, v = places[tap * count :][:count], weights[tap * count :][:count]
        if tap == taps - 1:
            for j in range(count):
                one = some[np.uint64(a[j])] * dtype(v[j])
                out[j] = one + out[j] if tap else one
            return
        b, w = places[(tap + 1) * count :][:count], weights[(tap + 1) * count :][:count]
        if tap:
            for j in range(count):
                out[j] += some[np.uint64(a[j])] * dtype(v[j]) + some[np.uint64(b[j])] * dtype(w[j])
        else:
            for j in range(count):
                out[j] = some[np.uint64(a[j])] * dtype(v[j]) + some[np.uint64(b[j])] * dtype(w[j])


@inlined
def weigh(
    x: Any, y: Any, places: Any, weights: Any, sizes: Any, line: Any, width: Any, dtype: Any
) -> None:
    """Compute a line of results, or all results of a line if these are side by side."""
    inner, count, taps = sizes.inner, sizes.resized, sizes.taps
    if inner == 1:
        some = elements(x + line * sizes.length * width, sizes.length, dtype)
        out = elements(y + line * count * width, count, dtype)
        weigh_line(some, out, places, weights, taps, dtype)
        return
    stack, j = line // count, line % count
    out = elements(y + line * inner * width, inner, dtype)
    for tap in range(taps):
        row = stack * sizes.length + places[tap * count + j]
        some, weight = elements(x + row * inner * width, inner, dtype), weights[tap * count + j]
        if tap == 0:
            for i in range(inner):
                out[i] = some[i] * dtype(weight)
        else:
            for i in range(inner):
                out[i] += some[i] * dtype(weight)


@parallel
def weigh_lines(arguments: Any, task: Any, worker: Any) -> None:
    """Do some lines of a pass."""
    x, y, places, weights, sizes, wide = arguments
    own_places, own_weights = places[sizes.first :], weights[sizes.first :]
    for line in range(task * sizes.grain, min(sizes.lines, (task + 1) * sizes.grain)):
        if wide:
            weigh(x, y, own_places, own_weights, sizes, line, 8, np.float64)
        else:
            weigh(x, y, own_places, own_weights, sizes, line, 4, np.float32)


@parallel
def widen(arguments: Any, task: Any, worker: Any) -> None:
    """Convert some elements to the type of the sums."""
    x, y, sizes = arguments
    first = task * TASK_ELEMENTS
    count = min(TASK_ELEMENTS, sizes.given - first)
    target = FLOAT64 if sizes.wide else FLOAT32
    at, to = x + first * sizes.size, y + first * (8 if sizes.wide else 4)
    apply_row(target, sizes.source, at, sizes.size, 0, 0, 0, 0, to, count)


@helper
def settle(x: Any, count: Any, sizes: Any) -> None:
    """Round or truncate results to whole numbers of a type."""
    some = elements(x, count, np.float64)
    low, high = np.float64(sizes.low), np.float64(sizes.high)
    if sizes.rounded:
        apply_row(ROUND, FLOAT64, x, 8, 0, 0, 0, 0, x, count)
    else:
        for i in range(count):
            some[i] += -ALMOST if some[i] < 0 else ALMOST
    for i in range(count):
        some[i] = min(max(some[i], low), high)


@parallel
def narrow(arguments: Any, task: Any, worker: Any) -> None:
    """Convert some results."""
    x, y, sizes = arguments
    first = task * TASK_ELEMENTS
    count = min(TASK_ELEMENTS, sizes.results - first)
    width = 8 if sizes.wide else 4
    at = x + first * width
    if sizes.whole:
        settle(at, count, sizes)
    source = FLOAT64 if sizes.wide else FLOAT32
    apply_row(
        sizes.target, source, at, width, 0, 0, 0, 0, y + first * sizes.size, count
    )  # fmt: skip


@kernel(
    (In(u8, 1), In(i64, 1), In(f64, 1), Out(u8, 1), Out(u8, 1), In(i64, 1), size),
    Contract(plan="places are in the axes", launch="the array is whole, its shape the plan's"),
)
def resample(x, places, weights, y, memory, numbers, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Resize axes one after the other.

    Args:
        x: The elements' bytes.
        places: Of each pass and tap, and of each result along the axis, an element's place.
        weights: As many.
        y: The results' bytes.
        memory: For what is between passes.
        numbers: As ``tenonnx_cpu.conv.kernels.TAPS_FIELDS`` says, then ``TAPS_PASS`` of each pass.
        threads: How many threads to use.
    """
    sizes = taps_sizes(numbers)
    start, own, to = x.ctypes.data, memory.ctypes.data, y.ctypes.data
    if sizes.widens:
        widen((start, own, sizes), -(-sizes.given // TASK_ELEMENTS), threads)
        start = own
    for number in range(sizes.passes):
        some = pass_sizes(numbers[len(TAPS_FIELDS) + number * len(TAPS_PASS) :])
        target = to if some.target < 0 else own + some.target
        weigh_lines((start, target, places, weights, some, sizes.wide), some.tasks, threads)
        start = target
    if sizes.widens:
        narrow((start, to, sizes), -(-sizes.results // TASK_ELEMENTS), threads)
