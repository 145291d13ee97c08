"""GatedDeltaNet: linear attention over tokens of several requests, one after another."""

from __future__ import annotations

import itertools
import math

import numpy as np

from tenonnx import Array, Namespace, OperatorTable
from tenonnx_array.linear_attention import check_rule, recur, repeated
from tenonnx_array.nonlinear import sigmoid, softplus

# Activations of a gate, by the names of ``gate_activation``.
GATE_FUNCTIONS = {
    "softplus": "softplus",
    "qwen": "softplus",
    "sigmoid": "sigmoid",
    "kda": "sigmoid",
}

table = OperatorTable("com.microsoft")
op = table.op


@op(
    "GatedDeltaNet",
    host=(3, 9, 10),
    multiple=True,
    shapes=(
        "key: *query; value: *query[:-2] HV V; decay: *value[:-1] | *value[:-1] query[-1]; "
        "beta: *value[:-1]; key is None or len(query) in (3, 4); "
        "initial_state: R heads V query[-1] if key is not None; a_log: heads; "
        "dt_bias: heads | heads query[-1] | heads*query[-1]; "
        "heads = HV if initial_state is None else initial_state[1]; "
        "R = None if cu_seqlens is None and len(query) < 4 else query[0] if cu_seqlens is None "
        "else cu_seqlens[0] - 1"
    ),
)
def gated_delta_net(
    xp: Namespace,
    query: Array,
    key: Array | None = None,
    value: Array | None = None,
    cu_seqlens: Array | None = None,
    decay: Array | None = None,
    beta: Array | None = None,
    initial_state: Array | None = None,
    a_log: Array | None = None,
    dt_bias: Array | None = None,
    capture_count: Array | None = None,  # noqa: ARG001 - without a capacity nothing is captured
    state_update_active: Array | None = None,  # noqa: ARG001 - likewise
    *,
    beta_activation: str = "none",
    chunk_size: int = 64,  # noqa: ARG001 - a hint to implementations that work in chunks
    gate_activation: str = "none",
    gate_lower_bound: float = -5.0,
    qk_l2_norm: int = 0,
    scale: float = 0.0,
    state_update_capacity: int = 0,
    update_rule: str = "gated_delta",
) -> tuple[Array, Array]:
    """Return outputs (tokens, value heads, value size) and each request's last state.

    query and key are (tokens, heads, key size), value (tokens, a multiple of heads, value size),
    or query holds all three in rows; a leading (batch, length) may stand for tokens. States are
    (batch, value heads, value size, key size). Computed in float32.

    Raises:
        ValueError: An unknown rule or activation, nothing tells the requests apart, or compact
            state updates are asked for.
    """
    if state_update_capacity:
        raise ValueError(
            f"expected state_update_capacity=0, found {state_update_capacity}: transitions are "
            "not captured"
        )
    decays, corrects = check_rule(update_rule, decay, beta)
    q, k, v = heads_of(xp, query, key, value, initial_state)
    if qk_l2_norm:
        q, k = (x / xp.sqrt(xp.sum(x * x, axis=-1, keepdims=True) + 1e-6) for x in (q, k))
    tokens, heads, width = v.shape
    q, k = (repeated(xp, x[:, None], heads) for x in (q, k))
    q = q * xp.float32(scale or 1 / math.sqrt(q.shape[-1]))
    gate = None
    if decays:
        gate = log_decay(xp, decay, a_log, dt_bias, gate_activation, gate_lower_bound)
    rate = update_rate(xp, beta, beta_activation) if corrects else None
    gate, rate = (None if x is None else x.reshape(tokens, 1, heads, -1) for x in (gate, rate))
    outputs, states = [], []
    spans = itertools.pairwise(boundaries(query, initial_state, cu_seqlens, tokens))
    for request, (start, stop) in enumerate(spans):
        state = xp.zeros((1, heads, k.shape[-1], width), xp.float32)
        if initial_state is not None:
            state = initial_state[request : request + 1].swapaxes(-1, -2)
        span = slice(start, stop)
        keep, share = (None if x is None else x[span] for x in (gate, rate))
        read, after = recur(xp, q[span], k[span], v[span, None], keep, share, state)
        outputs.append(read[:, 0])
        states.append((after[-1] if after else state)[0].swapaxes(-1, -2))
    y = xp.concatenate(outputs).astype(query.dtype)
    return y.reshape(*query.shape[:2], heads, width) if query.ndim == 4 else y, xp.stack(states)


def heads_of(
    xp: Namespace, query: Array, key: Array | None, value: Array | None, state: Array | None
) -> tuple[Array, ...]:
    """Return query, key and value as float32 (tokens, heads, size).

    Raises:
        ValueError: A query that holds all three comes without a state to tell its sizes.
    """
    if key is not None and value is not None:
        return tuple(x.reshape(-1, *x.shape[-2:]).astype(xp.float32) for x in (query, key, value))
    if state is None:
        raise ValueError("expected initial_state with query, key and value in one, found none")
    rows = query.reshape(-1, query.shape[-1]).astype(xp.float32)
    heads, width, size = state.shape[1:]
    keys = (rows.shape[1] - heads * width) // 2
    cuts = ((0, keys, size), (keys, 2 * keys, size), (2 * keys, rows.shape[1], width))
    return tuple(rows[:, a:b].reshape(rows.shape[0], (b - a) // n, n) for a, b, n in cuts)


def log_decay(
    xp: Namespace,
    decay: Array,
    a_log: Array | None,
    dt_bias: Array | None,
    activation: str,
    bound: float,
) -> Array:
    """Return the logarithm of what a state keeps, a multiple of ``bound`` for a sigmoid.

    Raises:
        ValueError: An unknown activation.
    """
    if activation == "none":
        return decay
    if activation not in GATE_FUNCTIONS:
        known = ", ".join(GATE_FUNCTIONS)
        raise ValueError(f"expected gate_activation of none, {known}, found {activation!r}")
    factor = xp.float32(1) if a_log is None else xp.exp(a_log)
    x = decay.astype(xp.float32)
    x = x if dt_bias is None else x + dt_bias
    if GATE_FUNCTIONS[activation] == "sigmoid":
        return xp.float32(bound) * sigmoid(xp, factor * x)
    return -factor * softplus(xp, x)


def update_rate(xp: Namespace, beta: Array, activation: str) -> Array:
    """Return how much of the new value is written.

    Raises:
        ValueError: An unknown activation.
    """
    if activation not in ("none", "sigmoid"):
        raise ValueError(f"expected beta_activation of none or sigmoid, found {activation!r}")
    return sigmoid(xp, beta) if activation == "sigmoid" else beta


def boundaries(
    query: Array, state: Array | None, cu_seqlens: Array | None, tokens: int
) -> list[int]:
    """Return where each request begins, and the end of the last.

    Raises:
        ValueError: Nothing says how many requests there are.
    """
    if cu_seqlens is not None:
        return [int(n) for n in cu_seqlens]
    if state is None and query.ndim != 4:
        raise ValueError("expected cu_seqlens or initial_state, found neither")
    batch = query.shape[0] if state is None else state.shape[0]
    return [int(n) for n in np.arange(batch + 1) * (tokens // max(batch, 1))]
