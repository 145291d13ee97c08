"""What attention with a cache begins with: heads turned by position, keys and values kept."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.jit.compiling import In, Out, f32, helper, i64, kernel, size
from tenonnx_cpu.jit.threads.pool import parallel
from tenonnx_cpu.jit.vectors.views import floats


@helper
def turn(x: Any, cos: Any, sin: Any, interleaved: Any, out: Any) -> None:
    """Rotates a head's first elements by angles; the others stay as they are."""
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
    """Copies what a cache has of one head to another one, with zeros behind it."""
    pasts, caches = arguments
    past, cache = pasts[task % 2], caches[task % 2]
    groups, width = cache.shape[1], cache.shape[3]
    batch, head = task // 2 // groups, task // 2 % groups
    held = past.shape[2] if past.size else 0
    for slot in range(cache.shape[2]):
        target = cache[batch, head, slot]
        if slot < held:
            place = past.ctypes.data + batch * past.strides[0] + head * past.strides[1]
            source = floats(place + slot * past.strides[2], width)
            for i in range(width):
                target[i] = source[i]
        else:
            for i in range(width):
                target[i] = np.float32(0)


@parallel
def place_tokens(arguments: Any, task: Any, worker: Any) -> None:
    """Places one token."""
    q, k, v, cos, sin, positions, starts, interleaved, turned, keys, values = arguments
    length = q.shape[1]
    batch, token = task // length, task % length
    width, groups = keys.shape[3], keys.shape[1]
    slot = starts[batch] + token
    at = positions[batch, token] if positions.size else slot
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


@kernel(
    (
        (In(f32, 3, "A"), In(f32, 3, "A"), In(f32, 3, "A")), (In(f32, 4, "A"), In(f32, 4, "A")),
        (In(f32, 2), In(f32, 2)), In(i64, 2), In(i64, 1), size, Out(f32, 4),
        (Out(f32, 4), Out(f32, 4)), size,
    )
)  # fmt: skip
def place(tokens, pasts, angles, positions, starts, interleaved, turned, caches, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Turns queries and keys, and puts keys and values into their caches.

    Args:
        tokens: Queries, ``(batch, length, heads * size)``, keys, ``(batch, length, groups *
            size)``, and values, likewise; adjacent in the last axis.
        pasts: What the caches of keys and values begin with, ``(batch, groups, slots, size)``,
            adjacent in the last axis; or of no size, or the caches themselves.
        angles: Cosines and sines by position, ``(positions, pairs)``; of no pairs to turn nothing.
        positions: Of the tokens, ``(batch, length)``; of no size if they are the slots.
        starts: The slot of each entry's first token, ``(batch,)``.
        interleaved: Whether pairs are adjacent, or half of what is turned apart.
        turned: The queries, ``(batch, length, heads, size)``.
        caches: Of keys and values, ``(batch, groups, capacity, size)``.
        threads: How many threads to use.
    """
    q, k, v = tokens
    cos, sin = angles
    keys, values = caches
    if pasts[0].ctypes.data != keys.ctypes.data or pasts[1].ctypes.data != values.ctypes.data:
        keep_past((pasts, caches), 2 * keys.shape[0] * keys.shape[1], threads)
    arguments = (q, k, v, cos, sin, positions, starts, interleaved, turned, keys, values)
    place_tokens(arguments, q.shape[0] * q.shape[1], threads)
