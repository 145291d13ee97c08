"""Linear attention: every token decays a head's state, writes into it, and is answered by it."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.jit.compiling import Contract, In, Out, f32, helper, kernel, size
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors.views import floats

F = np.float32
TOKENS = In(f32, 3, "A")


@helper
def row_of(x: Any, batch: Any, token: Any, first: Any, count: Any) -> Any:
    """Return some elements of a token."""
    place = x.ctypes.data + batch * x.strides[0] + token * x.strides[1]
    return floats(place + 4 * first, count)


@helper
def decayed(state: Any, decay: Any, k: Any, held: Any) -> None:
    """Scale a state's rows by ``exp(decay)``, one for all or one each; add up ``k @ state``."""
    factor = np.exp(decay[0]) if decay.size else F(1)
    for j in range(held.size):
        held[j] = F(0)
    for i in range(k.size):
        if decay.size > 1:
            factor = np.exp(decay[i])
        row, weight = state[i], k[i]
        for j in range(held.size):
            row[j] *= factor
            held[j] += weight * row[j]


@helper
def written(state: Any, k: Any, value: Any) -> None:
    """Add the outer product of a key and a value."""
    for i in range(k.size):
        row, weight = state[i], k[i]
        for j in range(value.size):
            row[j] += weight * value[j]


@helper
def answer(state: Any, q: Any, scale: Any, y: Any) -> None:
    """Write ``scale * q @ state``."""
    for j in range(y.size):
        y[j] = F(0)
    for i in range(q.size):
        row, weight = state[i], q[i] * scale
        for j in range(y.size):
            y[j] += weight * row[j]


@parallel
def attend_group(arguments: Any, task: Any, worker: Any) -> None:
    """Go through all tokens for one state."""
    tokens, gates, past, scale, corrects, y, states, memory = arguments
    q, k, v = tokens
    decay, beta = gates
    groups, depth, width = states.shape[1], states.shape[2], states.shape[3]
    batch, group = task // groups, task % groups
    heads, own = y.shape[2], q.shape[2] // depth
    key_head = group // (groups // (k.shape[2] // depth))
    state, held = states[batch, group], memory[worker, :width]
    for i in range(depth):
        for j in range(width):
            state[i, j] = past[batch, group, i, j] if past.size else F(0)
    each = decay.shape[2] // groups if decay.size else 0
    for token in range(q.shape[1]):
        key = row_of(k, batch, token, key_head * depth, depth)
        value = row_of(v, batch, token, group * width, width)
        if decay.size or corrects:
            decayed(state, row_of(decay, batch, token, group * each, each), key, held)
        rate = F(1)
        if corrects:
            rates = row_of(beta, batch, token, 0, beta.shape[2])
            rate = rates[group if rates.size > 1 else 0]
        for j in range(width):
            held[j] = rate * (value[j] - (held[j] if corrects else F(0)))
        written(state, key, held)
        for head in range(group * (heads // groups), (group + 1) * (heads // groups)):
            query = row_of(q, batch, token, head // (heads // own) * depth, depth)
            answer(state, query, scale, y[batch, token, head])


@kernel(
    (
        (TOKENS, TOKENS, TOKENS), (TOKENS, TOKENS), In(f32, 4), f32, size, Out(f32, 4),
        Out(f32, 4), Out(f32, 2), size,
    ),
    Contract(launch="heads divide, states have the heads' shape"),
)  # fmt: skip
def linear_attend(tokens, gates, past, scale, corrects, y, states, memory, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Answer queries by states of a fixed size.

    Args:
        tokens: Queries, keys and values, ``(batch, length, heads * size)`` each; as all that is
            said of tokens, adjacent in the last axis. A group has a state; it has some heads of
            queries or shares one, and some groups share a head of keys.
        gates: The logarithm of what states keep, ``(batch, length, groups or groups * size)``, or
            of no size; how much of a value is written, ``(batch, length, groups or 1)``.
        past: The states before, or of no size.
        scale: What queries are multiplied by.
        corrects: Whether what a key already reads is taken from what is written.
        y: The answers, ``(batch, length, heads, value size)``.
        states: The states after, ``(batch, groups, size, value size)``.
        memory: A row of as many floats as values have for every thread.
        threads: How many threads to use.
    """
    arguments = (tokens, gates, past, scale, corrects, y, states, memory)
    attend_group(arguments, states.shape[0] * states.shape[1], threads)
