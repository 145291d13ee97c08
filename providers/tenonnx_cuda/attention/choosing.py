"""The choice of a kernel for attention."""

from __future__ import annotations

from tenonnx.operators import Array
from tenonnx_cuda.attention.by_cudnn import by_cudnn
from tenonnx_cuda.attention.flash import FlashTask, Heads, Scoring, by_tiles, on_tensor_cores
from tenonnx_cuda.kernel_selection import Target


def attended(target: Target, q: Heads, k: Heads, v: Heads, scoring: Scoring) -> Array:
    """Return attention's result in the layout of q, for heads that there is a kernel for."""
    task = FlashTask.of(target, q, k, v, scoring)
    halves = target.has_tensor_cores and q.array.dtype.itemsize == 2
    if halves and by_cudnn(task):
        return task.y
    start = on_tensor_cores if halves and task.suits_tensor_cores else by_tiles
    start(task)
    return task.y
