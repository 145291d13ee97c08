"""Rows of scores: capped, masked, made weights, block by block where there are many.

The softmax goes from block to block as in "Online normalizer calculation for softmax"
(arXiv:1805.02867): sums so far are rescaled when a greater score turns up.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.jit.compiling import helper, inlined
from tenonnx_cpu.jit.vectors import vmath
from tenonnx_cpu.jit.vectors.memory import load_float, store_float
from tenonnx_cpu.jit.vectors.reductions import exponentials_at, scores_at, times_at
from tenonnx_cpu.jit.vectors.views import floats

F = np.float32


@inlined
def seen_by(spans: Any, batch: Any, query: Any, left: Any, right: Any) -> Any:
    """Return the first key that a query sees, and the one after the last; one side may be open."""
    everything, own = spans[batch, 0], spans[batch, 1] + query
    first = min(everything, max(0, own - left)) if left >= 0 else 0
    last = min(everything, own + right + 1) if right >= 0 else everything
    return first, max(first, last)


@helper
def mask_at(mask: Any, batch: Any, head: Any, query: Any, key: Any) -> Any:
    """Return the address of what is added to a score, or 0 without a mask."""
    if not mask.size:
        return 0
    row = mask.ctypes.data + batch * mask.strides[0] + head * mask.strides[1]
    return row + query * mask.strides[2] + 4 * key


@helper
def cap_row(scores: Any, scale: Any, softcap: Any) -> None:
    """Turn products into scores that a cap bounds."""
    steepness = scale / softcap
    for i in range(scores.size):
        scores[i] = softcap * vmath.tanh(scores[i] * steepness)


@inlined
def score_row(scores: Any, count: Any, mask: Any, fill: Any, scale: Any, softcap: Any) -> Any:
    """Turn products at an address into scores; return the greatest.

    ``mask`` is the address of what is added, or 0; ``fill`` that of ``Rule``; a cap of 0 is none.
    """
    if softcap:
        cap_row(floats(scores, count), scale, softcap)
        scale = F(1)
    return scores_at(scores, count, scale, mask, fill)


@helper
def weigh_nothing(scores: Any) -> Any:
    """Make scores that are minus infinity weights of 0; return 0, or NaN if one is that."""
    missing = F(0)
    for i in range(scores.size):
        missing += F(0) if scores[i] == -np.inf else F(np.nan)
        scores[i] = F(0)
    return missing


@inlined
def weigh(scores: Any, count: Any, top: Any) -> Any:
    """Make scores at an address weights, by the greatest score; return their sum."""
    if top == -np.inf:
        return weigh_nothing(floats(scores, count))
    return exponentials_at(scores, scores, count, top)


@inlined
def raise_top(top: Any, sums: Any, width: Any, state: Any) -> Any:
    """Return the greatest score so far, by which a row's sums and total are rescaled.

    Args:
        top: The greatest of a block of keys.
        sums: Address of what earlier blocks added up to.
        width: How many sums there are.
        state: Address of the greatest score and the sum of weights so far.
    """
    before, total = load_float(state), load_float(state + 4)
    if before != -np.inf:
        if top > before:
            factor = vmath.exp(before - top)
            times_at(sums, sums, width, factor)
            store_float(total * factor, state + 4)
        else:
            top = before
    store_float(top, state)
    return top


@inlined
def weigh_row(scores: Any, count: Any, top: Any, sums: Any, width: Any, state: Any) -> None:
    """Make a row of ``count`` scores weights, and add them to the row's total.

    ``scores`` is the address of those of one block of keys, the others are as of ``raise_top``.
    """
    top = raise_top(top, sums, width, state)
    store_float(load_float(state + 4) + weigh(scores, count, top), state + 4)


@inlined
def hide(scores: Any, first: Any, last: Any, count: Any) -> None:
    """Make all weights 0 at an address, but those from the first to before the last."""
    for i in range(first):
        store_float(F(0), scores + 4 * i)
    for i in range(last, count):
        store_float(F(0), scores + 4 * i)


@inlined
def finish_row(sums: Any, total: Any, y: Any, width: Any, nothing: Any) -> None:
    """Divide by the sum of weights; ``nothing`` is the result where no key is seen."""
    if total == F(0):
        for i in range(width):
            store_float(nothing, y + 4 * i)
    else:
        times_at(sums, y, width, F(1) / total)
