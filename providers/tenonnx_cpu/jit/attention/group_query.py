"""What attention with a cache begins with: heads turned by position, keys and values kept."""

from __future__ import annotations

from typing import Any

from tenonnx_cpu.jit.compiling import In, Out, f32, helper, i64, kernel, size
from tenonnx_cpu.jit.threads.pool import parallel


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
def place_tokens(arguments: Any, task: Any, worker: Any) -> None:
    """Places one token."""
    q, k, v, cos, sin, positions, starts, interleaved, turned, keys, values = arguments
    length = q.shape[1]
    batch, token = task // length, task % length
    width, groups = keys.shape[3], keys.shape[1]
    at = positions[batch, token]
    slot = starts[batch] + token
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
        In(f32, 3, "A"), In(f32, 3, "A"), In(f32, 3, "A"), In(f32, 2), In(f32, 2), In(i64, 2),
        In(i64, 1), size, Out(f32, 4), Out(f32, 4), Out(f32, 4), size,
    )
)  # fmt: skip
def place(q, k, v, cos, sin, positions, starts, interleaved, turned, keys, values, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Turns queries and keys, and puts keys and values into their caches.

    Args:
        q: Queries, ``(batch, length, heads * size)``; as keys and values, adjacent in the last
            axis.
        k: Keys, ``(batch, length, groups * size)``.
        v: Values, likewise.
        cos: Angles by position, ``(positions, pairs)``; of no pairs to turn nothing.
        sin: Likewise.
        positions: Of the tokens, ``(batch, length)``.
        starts: Where the first token goes in the caches, ``(batch,)``.
        interleaved: Whether pairs are adjacent, or half of what is turned apart.
        turned: The queries, ``(batch, length, heads, size)``.
        keys: The cache, ``(batch, groups, capacity, size)``.
        values: Likewise.
        threads: How many threads to use.
    """
    arguments = (q, k, v, cos, sin, positions, starts, interleaved, turned, keys, values)
    place_tokens(arguments, q.shape[0] * q.shape[1], threads)
