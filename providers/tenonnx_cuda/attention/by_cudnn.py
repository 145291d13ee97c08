"""Attention of many queries by cuDNN, where it is."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from tenonnx.operators import Array
from tenonnx_cuda.attention.attention_graph import (
    BIAS,
    KEYS,
    MAX_WORKSPACE_BYTES,
    QUERIES,
    Attention,
    K,
    Q,
    V,
    Y,
)
from tenonnx_cuda.attention.flash import FROM_ZERO, FlashTask, Heads
from tenonnx_cuda.capture.tracer import DynamicNumber, cannot_capture, is_capturing
from tenonnx_cuda.cudnn.operations import Tensor
from tenonnx_cuda.platform import CannotCaptureError
from tenonnx_cuda.sources import THREADS_PER_BLOCK, Kernel, blocks, is_aligned, pointer

# Queries from which on cuDNN's tiles have rows for all of their lanes.
MIN_QUERIES: Final = 64

# Elements of a head at most.
MAX_HEAD_ELEMENTS: Final = 256

# Elements in 16 bytes.
VECTOR_ELEMENTS: Final = 8

# The bit of ``sdpa_kernel`` that asks for cuDNN.
ASKED_FOR: Final = 8

# Of a block of ``blank`` and ``clear``: as ``unseen.cu`` says.
MASK_WARPS: Final = 4

# Keys that cuDNN's kernels load at once at most.
MAX_TILE_KEYS: Final = 256


def by_cudnn(task: FlashTask) -> bool:
    """Start cuDNN's kernel, and what is around it, if there is one."""
    cudnn = task.target.platform.cudnn
    if cudnn is None or not suits(task) or (what := described(task)) is None:
        return False
    if is_capturing() and not cudnn.is_settled(what):
        raise CannotCaptureError(f"cuDNN has not run {what} yet")
    plan = cudnn.plan(what, {})
    if plan is None:
        return False
    if task.k.room:
        cannot_capture()  # a plan is for as many keys as there are now
    arrays = {Q: task.q.array, K: task.k.array, V: task.v.array, Y: task.y}
    if what.bias is not None:
        arrays[BIAS] = spread(task, what.bias)
    if what.lengths:
        arrays[QUERIES], arrays[KEYS] = counted(task)
        if task.scoring.offset == FROM_ZERO:  # the node's own caches
            clear(task)
    if not cudnn.does(what, plan, arrays, task.target.xp):
        return False
    if may_see_nothing(task):
        blank(task)
    return True


def suits(task: FlashTask) -> bool:
    """Return whether cuDNN is wanted, and takes heads that lie so."""
    asked, all_heads = task.target.options.sdpa_kernel, (task.q, task.k, task.v)
    wanted = (not asked or asked & ASKED_FOR) and task.q.steps >= MIN_QUERIES
    sizes = all(h.size % VECTOR_ELEMENTS == 0 and h.size <= MAX_HEAD_ELEMENTS for h in all_heads)
    even = all(stride % VECTOR_ELEMENTS == 0 for h in all_heads for stride in h.strides)
    alone = task.scoring.sinks is None and is_aligned(*(h.array for h in all_heads))
    return bool(wanted and sizes and even and alone)


def described(task: FlashTask) -> Attention | None:
    """Return what cuDNN is asked for; ``None`` for what it does not know."""
    q, k, v, scoring = task.q, task.k, task.v, task.scoring
    bias = room_for(task)
    if bias is not None and math.prod(bias.shape) * q.array.itemsize > MAX_WORKSPACE_BYTES:
        return None
    before = first(task)
    banded = scoring.left >= 0 or scoring.right >= 0
    aligned = banded and before != 0
    if aligned and scoring.lengths is None and before != k.steps - q.steps:
        return None
    shape = (q.batch, q.heads, q.steps, v.size)
    return Attention(
        q.array.dtype, lying(q), lying(k), lying(v), Tensor(shape, (*task.strides, 1)),
        float(scoring.scale), float(scoring.softcap), bias, scoring.lengths is not None, aligned,
        scoring.left, scoring.right,
        scoring.fixed or bool(task.target.options.sdpa_kernel & ASKED_FOR),
    )  # fmt: skip


def lying(heads: Heads) -> Tensor:
    """Return where heads are: (batch, heads, steps, size)."""
    shape = (heads.batch, heads.heads, heads.steps, heads.size)
    return Tensor(shape, (*heads.strides, 1))


def room_for(task: FlashTask) -> Tensor | None:
    """Return where a mask is to be that cuDNN adds: in rows that begin at 16 bytes."""
    kind, _, strides, _ = task.scoring.mask
    if kind == 0:
        return None
    sizes = (task.q.batch, task.q.heads, task.q.steps)
    b, h, s = (n if stride else 1 for n, stride in zip(sizes, strides, strict=True))
    pitch = -(-task.k.steps // VECTOR_ELEMENTS) * VECTOR_ELEMENTS
    return Tensor((b, h, s, task.k.steps), (h * s * pitch, s * pitch, pitch, 1))


def kernel(task: FlashTask, name: str) -> Kernel:
    """Return one of the kernels of ``unseen.cu``."""
    macros = {"T": task.target.element(task.q.array), "VALUE": task.v.size}
    return task.target.kernel("attention/unseen", name, MASK=task.scoring.mask[0], **macros)


def spread(task: FlashTask, where: Tensor) -> Array:
    """Return a mask as cuDNN adds it."""
    _, mask, _, held = task.scoring.mask
    rows, pitch = math.prod(where.shape[:3]), where.strides[2]
    bias = task.target.xp.empty((rows * pitch,), task.q.array.dtype)
    sizes = (np.int64(rows), np.int32(held), np.int32(pitch))
    kernel(task, "spread")(blocks(rows * pitch), (THREADS_PER_BLOCK,), (mask, bias, *sizes))
    return bias


def counted(task: FlashTask) -> tuple[Array, Array]:
    """Return how many queries and keys each sequence has."""
    q, xp = task.q, task.target.xp
    counts = xp.empty((q.batch,), np.int32), xp.empty((q.batch,), np.int32)
    sizes = map(np.int32, (q.batch, q.steps, task.k.steps, first(task)))
    kernel(task, "count")(
        blocks(q.batch), (THREADS_PER_BLOCK,), (task.scoring.lengths, *counts, *sizes)
    )
    return counts


def clear(task: FlashTask) -> None:
    """Write zeros behind each sequence's values; cuDNN computes 0 * x there, and NaN stays."""
    v, tail = task.v, min(task.v.steps, MAX_TILE_KEYS)
    grid = (-(-tail // MASK_WARPS), v.heads, v.batch)
    arguments = (task.scoring.lengths, v.array, np.int32(v.steps), np.int32(MAX_TILE_KEYS))
    kernel(task, "clear")(grid, (MASK_WARPS * 32,), (*arguments, *map(np.int64, v.strides)))


def may_see_nothing(task: FlashTask) -> bool:
    """Return whether there may be a query that sees no key, or none that counts."""
    q, scoring = task.q, task.scoring
    if scoring.mask[0] or scoring.lengths is None:
        return bool(scoring.mask[0]) or q.steps > task.k.steps
    return q.batch > 1 or scoring.offset != FROM_ZERO  # a prompt alone is as long as it says


def blank(task: FlashTask) -> None:
    """Write zeros where a query sees nothing."""
    q, scoring = task.q, task.scoring
    _, mask, strides, held = scoring.mask
    heads = q.heads if strides[1] else 1
    grid = (-(-q.steps // MASK_WARPS), heads, q.batch)
    sizes = map(np.int32, (q.heads, q.steps, task.k.steps))
    where = map(np.int64, (*task.strides, *strides))
    arguments: tuple[Any, ...] = (pointer(mask), pointer(scoring.lengths), task.y, *sizes, *where)
    bounds = map(np.int32, (held, first(task), scoring.left, scoring.right))
    kernel(task, "blank")(grid, (MASK_WARPS * 32,), (*arguments, *bounds))


def first(task: FlashTask) -> int:
    """Return how many keys are before the first query, or that the lengths say."""
    offset = task.scoring.offset
    return int(offset.value if isinstance(offset, DynamicNumber) else offset)
