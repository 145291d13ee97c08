"""Attention with a cache: heads turned by position, keys and values kept, queries answered."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.attention.kernels.attention import (
    MASK,
    RULE,
    SINKS,
    SPANS,
    WORK,
    attend_heads,
)
from tenonnx_cpu.jit.compiling import Contract, In, Out, f32, helper, i32, i64, kernel, size
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors.views import floats

# The columns of an entry: the number of keys, the slot of its first token, how many tokens are
# before that, and how many slots at the front of its cache make room.
SEEN, SLOT, BEFORE, DROPPED = range(4)

# Elements of tokens, and of caches, that one thread places before others have started.
SERIAL, SERIAL_CACHES = 1 << 15, 1 << 16


@helper
def turn(x: Any, cos: Any, sin: Any, interleaved: Any, out: Any) -> None:
    """Rotate a head's first elements by angles; the others stay as they are."""
    pairs = cos.size
    if interleaved:
        for i in range(pairs):
            p, q = x[2 * i], x[2 * i + 1]
            out[2 * i] = p * cos[i] - q * sin[i]
            out[2 * i + 1] = p * sin[i] + q * cos[i]
    else:
        for i in range(pairs):
            p, q = x[i], x[pairs + i]
            out[i] = p * cos[i] - q * sin[i]
            out[pairs + i] = p * sin[i] + q * cos[i]
    for i in range(2 * pairs, x.size):
        out[i] = x[i]


@parallel
def keep_past(arguments: Any, task: Any, worker: Any) -> None:
    """Copy what a cache has of one head to another one, or to its front, with zeros behind it."""
    pasts, caches, spans = arguments
    past, cache = pasts[task % 2], caches[task % 2]
    groups, width = cache.shape[1], cache.shape[3]
    batch, head = task // 2 // groups, task // 2 % groups
    dropped = spans[batch, DROPPED]
    held = past.shape[2] - dropped if past.size else 0
    for slot in range(cache.shape[2]):
        target = cache[batch, head, slot]
        if slot < held:
            place = past.ctypes.data + batch * past.strides[0] + head * past.strides[1]
            source = floats(place + (slot + dropped) * past.strides[2], width)
            for i in range(width):
                target[i] = source[i]
        else:
            for i in range(width):
                target[i] = np.float32(0)


@helper
def position(positions: Any, batch: Any, token: Any, counted: Any, is_first: Any) -> Any:
    """Return a token's position; of those given for a first prompt the first one counts."""
    if not positions.size:
        return counted + token
    return positions[0, 0] + token if is_first else positions[batch, token]


@parallel
def place_tokens(arguments: Any, task: Any, worker: Any) -> None:
    """Place one token."""
    q, k, v, cos, sin, positions, spans, is_first, interleaved, turned, keys, values = arguments
    length = q.shape[1]
    batch, token = task // length, task % length
    width, groups = keys.shape[3], keys.shape[1]
    slot = spans[batch, SLOT] + token
    at = position(positions, batch, token, spans[batch, BEFORE], is_first) if cos.size else 0
    left, right = cos[at], sin[at]
    for head in range(turned.shape[2]):
        source = q[batch, token, head * width : (head + 1) * width]
        turn(source, left, right, interleaved, turned[batch, token, head])
    for head in range(groups):
        source = k[batch, token, head * width : (head + 1) * width]
        turn(source, left, right, interleaved, keys[batch, head, slot])
        source = v[batch, token, head * width : (head + 1) * width]
        target = values[batch, head, slot]
        for i in range(width):
            target[i] = source[i]


@helper
def resident(total: Any, capacity: Any, window: Any) -> Any:
    """Return how many of so many tokens a cache holds that drops some at a time when it is full.

    It keeps as many as the next query sees.
    """
    if total <= capacity:
        return total
    stride = capacity - window + 1
    return total - stride * -(-(total - capacity) // stride)


@helper
def find_spans(
    length: Any, held: Any, window: Any, cos: Any, positions: Any, lengths: Any, total: Any,
    capacity: Any, spans: Any,
) -> Any:  # fmt: skip
    """Write where each entry's tokens go; return whether all fit."""
    if capacity != (held if window else max(total, held)):
        return False
    is_first = total == length
    if not window and total > held + length:
        return False
    for batch in range(lengths.size):
        count = lengths[batch] + 1
        if count > total:
            return False
        before = 0 if is_first else count - length
        slot, dropped = before, 0
        if window:
            slot = resident(before, capacity, window)
            if slot == capacity and length == 1:
                slot, dropped = window - 1, capacity - window + 1
        if before < 0 or count < 1 or slot + max(length, count - before) > capacity:
            return False
        spans[batch, SEEN] = slot + min(count, total) - before
        spans[batch, SLOT], spans[batch, BEFORE], spans[batch, DROPPED] = slot, before, dropped
        for token in range(length if cos.size else 0):
            if not 0 <= position(positions, batch, token, before, is_first) < cos.shape[0]:
                return False
    return True


@kernel(
    (
        (In(f32, 3, "A"), In(f32, 3, "A"), In(f32, 3, "A")), (In(f32, 4, "A"), In(f32, 4, "A")),
        (In(f32, 2), In(f32, 2)), In(i64, 2, "A"), (In(i32, 1), In(i32, 1)), MASK, SINKS, RULE,
        size, size, (In(f32, 4, "A"), Out(f32, 4)), (Out(f32, 4), Out(f32, 4)), SPANS, WORK,
        Out(i32, 1),
    ),
    Contract(
        plan="heads divide; a window has a size",
        launch="widths divide into heads; caches have the heads' shape; a length per entry",
        values="lengths fit the caches, total_sequence_length is positive, positions have angles",
    ),
)  # fmt: skip
def group_query(  # type: ignore[no-untyped-def] # the signature has them
    tokens, pasts, angles, positions, filled, mask, sinks, rule, window, interleaved, results,
    caches, spans, work, refusal,
):  # fmt: skip
    """Put keys and values into their caches, and attend with queries to what is there.

    Args:
        tokens: Queries, ``(batch, length, heads * size)``, keys, ``(batch, length, groups *
            size)``, and values, likewise; adjacent in the last axis.
        pasts: What the caches of keys and values begin with, ``(batch, groups, slots, size)``,
            adjacent in the last axis; or of no size, or the caches themselves.
        angles: Cosines and sines by position, ``(positions, pairs)``; of no pairs to turn nothing.
        positions: Of the tokens, ``(batch, length)``; of no size if they are the slots.
        filled: Each entry's tokens with the new ones, less one, and the most of all entries. If
            there are no more than new ones, these are the first; else they are an entry's last.
        mask: As of ``attend_heads``.
        sinks: As of ``attend_heads``.
        rule: As of ``attend_heads``.
        window: How many tokens a query sees of caches that keep the last ones alone, or 0. When
            such a cache is full, one token makes room; several are refused.
        interleaved: Whether pairs are adjacent, or half of what is turned apart.
        results: ``(batch, heads, length, size)``, a view of ``(batch, length, heads, size)``.
        caches: Of keys and values, ``(batch, groups, capacity, size)``.
        spans: Room for what ``attend_heads`` is told, ``(batch, 4)``.
        work: As of ``attend_heads``.
        refusal: Where 1 is written if lengths do not fit the caches or there are no angles for a
            position, else 0.
    """
    q, k, v = tokens
    cos, sin = angles
    keys, values = caches
    view, y = results
    _, _, _, threads = work
    lengths, total = filled[0], filled[1][0]
    held = pasts[0].shape[2] if pasts[0].size else 0
    refusal[0] = 1
    if (
        total < 1
        or (mask.size and mask.shape[3] != total)
        or not find_spans(
            q.shape[1], held, window, cos, positions, lengths, total, keys.shape[2], spans
        )
    ):
        return
    refusal[0] = 0
    team = threads if q.size > SERIAL or keys.size > SERIAL_CACHES else 1
    moved = pasts[0].ctypes.data != keys.ctypes.data or pasts[1].ctypes.data != values.ctypes.data
    for batch in range(spans.shape[0]):
        moved = moved or spans[batch, DROPPED] > 0
    if moved:
        keep_past((pasts, caches, spans), 2 * keys.shape[0] * keys.shape[1], team)
    is_first = total == q.shape[1]
    arguments = q, k, v, cos, sin, positions, spans, is_first, interleaved, y, keys, values
    place_tokens(arguments, q.shape[0] * q.shape[1], team if q.size > SERIAL else 1)
    attend_heads((view, keys, values), mask, sinks, rule, spans, y, work)
