"""Elements copied run by run: what joins, pads, repeats and picks has in common."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.jit.compiling import Contract, In, Out, helper, i64, kernel, size, u8
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors.views import elements


@helper
def copy(source: Any, target: Any, count: Any, step: Any) -> None:
    """Copy elements in their order, in the other if ``step`` is -1, or one again and again."""
    if step == 1:
        for i in range(count):
            target[i] = source[i]
    elif step == 0:
        for i in range(count):
            target[i] = source[0]
    else:
        for i in range(count):
            target[i] = source[count - 1 - i]


@parallel
def move_runs(arguments: Any, task: Any, worker: Any) -> None:
    """Copy some of the runs."""
    runs, sources, out, width, grain = arguments
    for n in range(task * grain, min(runs.shape[0], (task + 1) * grain)):
        source = sources[runs[n, 0]].ctypes.data + width * runs[n, 1]
        target = out + width * runs[n, 2]
        count, step = runs[n, 3], runs[n, 4]
        if step < 0:
            source -= width * (count - 1)
        if width == 1:
            copy(elements(source, 1, np.uint8), elements(target, 1, np.uint8), count, step)
        elif width == 2:
            copy(elements(source, 1, np.uint16), elements(target, 1, np.uint16), count, step)
        elif width == 4:
            copy(elements(source, 1, np.uint32), elements(target, 1, np.uint32), count, step)
        else:
            copy(elements(source, 1, np.uint64), elements(target, 1, np.uint64), count, step)


@kernel(
    (In(i64, 2), (In(u8, 1),) * 17, Out(u8, 1), size, size, size),
    Contract(plan="numpy moves the places of elements, and refuses what is wrong"),
)
def move(runs, sources, out, width, grain, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Copy runs of elements.

    Args:
        runs: Of each, the source's number, the place of its first element there, the place of that
            in the result, how many elements there are, and what is from one to the next in the
            source: 1, 0 or -1.
        sources: The beginnings of 16 sources, and of what nothing is moved to.
        out: The result.
        width: Bytes of an element: 1, 2, 4 or 8.
        grain: Runs in a task.
        threads: How many threads to use.
    """
    tasks = -(-runs.shape[0] // grain)
    move_runs((runs, sources, out.ctypes.data, width, grain), tasks, threads)
