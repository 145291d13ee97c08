"""Attention as one kernel: the computation of scores, and the arguments of the launch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_cpu.attention.kernels import (
    MAX_UNPACKED_QUERIES,
    MAX_WINDOW_QUERIES,
    QUERIES,
    workspace,
)
from tenonnx_cpu.buffers import F32, contiguous, empty
from tenonnx_cpu.capture.launch import Launch
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.jit.scratch import pieces, share_of, worker_shares

ATTEND = JitKernel("attention.attention", "attend")
NO_MASK = np.zeros((0, 0, 0, 0), np.float32)
NO_SINKS = np.zeros(0, np.float32)
NO_LENGTHS = np.zeros(0, np.int64)
NO_CACHE = np.zeros((0, 0, 0, 0), np.float32)
NO_SEEN, NO_ADDED = np.zeros(0, np.uint8), np.zeros(0, np.float32)

# Bits of how many keys there is room for at least.
MOST_KEYS = 12

# Elements of a mask of booleans at most that a kernel makes one of floats.
MOST_SEEN = 1 << 20

Pair: TypeAlias = tuple[Any, Any]


@cacheable
@dataclass(frozen=True)
class Rule:
    """The computation of scores, and the keys that a query sees.

    Attributes:
        scale: The factor of products.
        softcap: ``cap(x) = softcap * tanh(x / softcap)``; 0 for no cap.
        left: So many keys before its own; -1 for all.
        right: So many keys after its own, 0 for causal attention; -1 for all.
        nothing: The result of a query that sees no key.
        fill: The score of a key to whose score the mask adds -inf; NaN for that sum.
        narrows: Whether factors of products may be rounded to bfloat16.
    """

    scale: float
    softcap: float = 0.0
    left: int = -1
    right: int = -1
    nothing: float = math.nan
    fill: float = math.nan
    narrows: bool = False

    @property
    def arguments(self) -> tuple[float, float, int, int, float, float, int]:
        """Its arguments for kernels."""
        seen = self.left, self.right
        return self.scale, self.softcap, *seen, self.nothing, self.fill, int(self.narrows)


def attend_launch(
    operands: tuple[Any, Any, Any],
    mask: Any,
    rule: Rule,
    threads: int,
    before: int = 0,
    lengths: Any = None,
    pasts: Pair | None = None,
) -> Launch | None:
    """Return what computes ``softmax(cap(scale * q @ k') + mask) @ v``; ``None`` for numpy.

    Args:
        operands: q, ``(batch, heads, queries, size)``; k, ``(batch, groups, keys, size)``; v,
            ``(batch, groups, keys, value size)``.
        mask: What broadcasts to ``(batch, heads, queries, keys)``: floats that scores are added
            to, or which keys are seen; or ``None``.
        rule: How scores come about.
        threads: How many threads to use at most.
        before: Keys before the first query's own.
        lengths: How many keys of each entry count, int64 ``(batch,)``; ``before`` is then what
            they leave before the queries. The launch is refused if a length is more than there are
            keys, or less than 1, or than queries that see some keys around their own.
        pasts: Keys and values before k and v, if there are some.

    Returns:
        Its result is a view of shape ``(batch, heads, queries, value size)`` of memory in which
        heads are within queries, and all keys and values.
    """
    run = ATTEND.run
    q, k, v = operands
    if run is None or not (q.ndim == k.ndim == v.ndim == 4):
        return None
    if not (q.dtype == k.dtype == v.dtype == F32) or not q.size or not k.size or not v.size:
        return None
    batch, heads, queries, size = q.shape
    _, groups, keys, width = v.shape
    if k.shape != (batch, groups, keys, size) or v.shape[0] != batch or heads % groups:
        return None
    parts = joined = NO_CACHE, NO_CACHE
    news = parts
    if pasts is not None:
        if not _are_before(pasts, (k, v)):
            return None
        keys += pasts[0].shape[2]
        parts, news = (adjacent(pasts[0]), adjacent(pasts[1])), (adjacent(k), adjacent(v))
        k, v = joined = empty((batch, groups, keys, size)), empty((batch, groups, keys, width))
    mask = NO_MASK if mask is None else _of_scores(mask, (batch, heads, queries, keys))
    if mask is None:
        return None
    counted = mask.size if mask.dtype == bool else 0
    rows, share = shares(q.shape, v.shape, threads, rule)
    y = empty((batch, queries, heads, width))
    refusal, spans, memory, added = pieces(
        ((1,), np.int32), ((batch, 2), np.int64), worker_shares(share, threads),
        ((counted,), np.float32),
    )  # fmt: skip
    seen = NO_SEEN
    if counted:
        seen, mask = mask.reshape(-1).view(np.uint8), added.reshape(mask.shape)
    if mask.size:
        mask = np.broadcast_to(mask, (batch, heads, queries, keys))
    arguments = (
        adjacent(q), adjacent(k), adjacent(v), *parts, *news, *joined, seen,
        added if counted else NO_ADDED, mask, NO_SINKS, *rule.arguments, before,
        NO_LENGTHS if lengths is None else lengths, y, spans, rows, memory, share, threads, refusal,
    )  # fmt: skip
    made = Launch(run, arguments, (y.transpose(0, 2, 1, 3), k, v))
    return made if lengths is None else made._replace(refusal=refusal)


def _are_before(pasts: Pair, news: Pair) -> bool:
    """Return whether keys and values may go before others."""
    if not all(past.dtype == F32 and past.ndim == 4 for past in pasts):
        return False
    if pasts[0].shape[2] != pasts[1].shape[2]:
        return False
    return all(
        (*past.shape[:2], past.shape[3]) == (*new.shape[:2], new.shape[3])
        for past, new in zip(pasts, news, strict=True)
    )


def _of_scores(mask: Any, scores: tuple[int, ...]) -> Any:
    """Return a mask that can be broadcast to scores, of four axes; ``None`` if it cannot."""
    if mask.dtype not in (F32, bool) or mask.ndim > 4 or mask.shape[-1:] != scores[-1:]:
        return None
    sides = zip(reversed(mask.shape), reversed(scores), strict=False)
    if any(own not in (1, size) for own, size in sides):
        return None
    if mask.dtype == F32:
        return adjacent(mask)
    once = mask[tuple(slice(1) if step == 0 else slice(None) for step in mask.strides[:-1])]
    if once.size > MOST_SEEN:
        return np.where(once, np.float32(0), np.float32(-np.inf))
    return contiguous(once)


def shares(q: tuple[int, ...], v: tuple[int, ...], threads: int, rule: Rule) -> tuple[int, int]:
    """Return the queries of a task, and the floats that a thread works with, for such shapes."""
    batch, heads, queries, size = q
    sees_all = rule.left < 0 and rule.right < 0
    blocks = -(-queries // (QUERIES if sees_all else MAX_WINDOW_QUERIES))
    if queries > MAX_UNPACKED_QUERIES:
        blocks = max(blocks, min(-(-queries // 28), -(-3 * threads // (batch * heads))))
    # Of a cache that grows, few lengths want more: a capture says the same of all between.
    keys = 1 << max(MOST_KEYS, v[2].bit_length())
    return -(-queries // blocks), share_of(workspace(queries, keys, size, v[3]))


def adjacent(x: Any) -> Any:
    """Return an array whose last axis is adjacent and whose other strides go forwards."""
    fits = x.strides[-1] == 4 or x.shape[-1] == 1
    return x if fits and x.flags.aligned else contiguous(x)
