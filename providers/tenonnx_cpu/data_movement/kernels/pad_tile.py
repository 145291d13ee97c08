"""Elements copied run by run: what joins, pads, repeats and picks has in common."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.data_movement.kernels.runs import copy_runs, width_of
from tenonnx_cpu.jit.compiling import Contract, In, Out, helper, i64, inlined, kernel, size, u8
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors.views import elements, on_stack


@inlined
def copy(source: Any, target: Any, count: Any, step: Any, dtype: Any) -> None:
    """Copy elements in the other order, or one again and again."""
    given, made = elements(source, count, dtype), elements(target, count, dtype)
    if step == 0:
        for i in range(count):
            made[i] = given[0]
    else:
        for i in range(count):
            made[i] = given[count - 1 - i]


@helper
def copy_otherwise(source: Any, target: Any, count: Any, step: Any, width: Any) -> None:
    """Do a run whose elements do not follow each other in the source."""
    if width == 1:
        copy(source, target, count, step, np.uint8)
    elif width == 2:
        copy(source, target, count, step, np.uint16)
    elif width == 4:
        copy(source, target, count, step, np.uint32)
    else:
        copy(source, target, count, step, np.uint64)


@parallel
def move_runs(arguments: Any, task: Any, worker: Any) -> None:
    """Copy some of the runs."""
    runs, sources, out, width, grain = arguments
    starts = on_stack(17, np.int64)
    for n in range(17):
        starts[n] = sources[n].ctypes.data
    before, together = i64(1), i64(width)
    for n in range(task * grain, min(runs.shape[0], (task + 1) * grain)):
        source = starts[runs[n, 0]] + width * runs[n, 1]
        target = out + width * runs[n, 2]
        count, step, times = runs[n, 3], runs[n, 4], runs[n, 5]
        source_step, target_step = width * runs[n, 6], width * runs[n, 7]
        if step == 1:
            if count != before:
                before, together = count, width_of(width * count)
            copy_runs(together, source, source_step, target, target_step, width * count, times)
            continue
        source -= width * (count - 1) if step < 0 else 0
        for i in range(times):
            at, to = source + i * source_step, target + i * target_step
            copy_otherwise(at, to, count, step, width)


@kernel(
    (In(i64, 2), (In(u8, 1),) * 17, Out(u8, 1), size, size, size),
    Contract(plan="numpy moves the places of elements, and refuses what is wrong"),
)
def move(runs, sources, out, width, grain, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Copy runs of elements.

    Args:
        runs: Of each, the source's number, the place of its first element there, the place of that
            in the result, how many elements there are, what is from one to the next in the
            source: 1, 0 or -1; how many such runs there are, and elements from one to the next in
            the source and in the result.
        sources: The beginnings of 16 sources, and of what nothing is moved to.
        out: The result.
        width: Bytes of an element: 1, 2, 4 or 8.
        grain: Runs in a task.
        threads: How many threads to use.
    """
    tasks = -(-runs.shape[0] // grain)
    move_runs((runs, sources, out.ctypes.data, width, grain), tasks, threads)
