"""One of two arrays' elements or the other, as a third one says."""

from __future__ import annotations

from typing import Any

from tenonnx_cpu.jit.compiling import Contract, In, Out, boolean, f32, helper, kernel, size
from tenonnx_cpu.jit.threads.parallel_for import parallel


@helper
def choose_line(kept: Any, x: Any, y: Any, out: Any) -> None:
    """Writes a line; in loops of their own where all lie side by side, or x is one number."""
    one, other = x.strides[0] // 4, y.strides[0] // 4
    if kept.strides[0] == 1 and one == 0 and other == 1:
        number = x[0]
        for i in range(out.size):
            out[i] = number if kept[i] else y[i]
    elif kept.strides[0] == 1 and one == 1 and other == 0:
        number = y[0]
        for i in range(out.size):
            out[i] = x[i] if kept[i] else number
    else:
        for i in range(out.size):
            out[i] = x[i] if kept[i] else y[i]


@parallel
def choose_lines(arguments: Any, task: Any, worker: Any) -> None:
    """Writes some lines."""
    kept, x, y, out, grain = arguments
    lines = out.shape[2]
    for line in range(task * grain, min(out.shape[0] * out.shape[1] * lines, (task + 1) * grain)):
        i, j, k = line // lines // out.shape[1], line // lines % out.shape[1], line % lines
        choose_line(kept[i, j, k], x[i, j, k], y[i, j, k], out[i, j, k])


@kernel(
    (In(boolean, 4, "A"), In(f32, 4, "A"), In(f32, 4, "A"), Out(f32, 4), size, size),
    Contract(launch="all have the result's shape"),
)
def choose_f32(kept, x, y, out, grain, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Writes x where ``kept`` says so, and y elsewhere; ``grain`` lines are a task."""
    lines = out.shape[0] * out.shape[1] * out.shape[2]
    choose_lines((kept, x, y, out, grain), -(-lines // grain), threads)
