"""Rotary position embedding (arXiv:2104.09864) of heads."""

from __future__ import annotations

from typing import Any

from tenonnx_cpu.attention.kernels.group_query import turn as turn_pairs
from tenonnx_cpu.jit.compiling import Contract, In, Out, f32, helper, i32, i64, kernel, size
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors.views import floats


@helper
def turn(x: Any, cos: Any, sin: Any, y: Any, half: Any) -> None:
    """Turn one head by the angles of its position; all but ``y`` are addresses."""
    low, high = floats(x, half), floats(x + 4 * half, half)
    c, s = floats(cos, half), floats(sin, half)
    for i in range(half):
        y[i] = low[i] * c[i] - high[i] * s[i]
    c, s, out = floats(cos + 4 * half, half), floats(sin + 4 * half, half), y[half:]
    for i in range(half):
        out[i] = high[i] * c[i] + low[i] * s[i]


@parallel
def turn_heads(arguments: Any, task: Any, worker: Any) -> None:
    """Turn all positions of one head."""
    x, cos, sin, y = arguments
    heads, length, half = x.shape[1], x.shape[2], x.shape[3] // 2
    batch, head = task // heads, task % heads
    shared = batch if cos.shape[0] > 1 else 0
    for position in range(length):
        turn(
            x.ctypes.data + batch * x.strides[0] + head * x.strides[1] + position * x.strides[2],
            cos.ctypes.data + shared * cos.strides[0] + position * cos.strides[2],
            sin.ctypes.data + shared * sin.strides[0] + position * sin.strides[2],
            y[batch, head, position],
            half,
        )


@kernel(
    (In(f32, 4, "A"), In(f32, 4, "A"), In(f32, 4, "A"), Out(f32, 4), size),
    Contract(launch="cosines and sines are broadcast to x"),
)
def rotate(x, cos, sin, y, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Turn heads ``(batch, heads, length, size)``.

    Args:
        x: The heads; as all arrays, adjacent in the last axis.
        cos: ``(batch or 1, 1, length, size)``.
        sin: Of the shape of ``cos``.
        y: The result.
        threads: How many threads to use.
    """
    turn_heads((x, cos, sin, y), x.shape[0] * x.shape[1], threads)


@parallel
def embed_tokens(arguments: Any, task: Any, worker: Any) -> None:
    """Turn all heads of one token."""
    x, cos, sin, positions, interleaved, tokens_first, y = arguments
    heads, length, width = x.shape[1], x.shape[2], x.shape[3]
    batch, token = task // length, task % length
    row = positions[batch, token] if positions.size else task
    left, right = cos[row], sin[row]
    begin = x.ctypes.data + batch * x.strides[0] + token * x.strides[2]
    for head in range(heads):
        source = floats(begin + head * x.strides[1], width)
        out = y[batch, token, head] if tokens_first else y[batch, head, token]
        turn_pairs(source, left, right, interleaved, out)


@kernel(
    (
        In(f32, 4, "A"), In(f32, 2), In(f32, 2), In(i64, 2), size, size, Out(f32, 4),
        Out(i32, 1), size,
    ),
    Contract(
        launch="caches have half of what is turned; a position per token, or one",
        values="positions are rows of the caches",
    ),
)  # fmt: skip
def embed(x, cos, sin, positions, interleaved, tokens_first, y, refusal, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Turn heads by the angles of their tokens' positions.

    Args:
        x: The heads ``(batch, heads, length, size)``, adjacent in the last axis.
        cos: ``(positions, pairs)``; elements beyond the pairs stay as they are.
        sin: Of the shape of ``cos``.
        positions: Rows of ``cos``, ``(batch, length)``; of no size if every token has its own.
        interleaved: Whether pairs are adjacent, or half of what is turned apart.
        tokens_first: Whether the result is ``(batch, length, heads, size)``.
        y: The result, otherwise of the heads' shape.
        refusal: Where 1 is written if there are no angles for some position, else 0.
        threads: How many threads to use.
    """
    refusal[0] = 0
    for batch in range(positions.shape[0]):
        for token in range(positions.shape[1]):
            if not 0 <= positions[batch, token] < cos.shape[0]:
                refusal[0] = 1
                return
    arguments = (x, cos, sin, positions, interleaved, tokens_first, y)
    embed_tokens(arguments, x.shape[0] * x.shape[2], threads)
