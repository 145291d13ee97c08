"""Linear attention: a state of fixed size that every token decays, writes and reads."""

from __future__ import annotations

import math
from collections import deque

from tenonnx.operators import Array, Namespace, OperatorTable
from tenonnx.process import interruption
from tenonnx_array.attention import in_heads

table = OperatorTable()
op = table.op

UPDATE_RULES = {  # update_rule: (decays, corrects what it writes)
    "linear": (False, False),
    "gated": (True, False),
    "delta": (False, True),
    "gated_delta": (True, True),
}


def recur(
    xp: Namespace,
    q: Array,
    k: Array,
    v: Array,
    decay: Array | None,
    rate: Array | None,
    state: Array,
    *,
    kept: int = 1,
) -> tuple[Array, list[Array]]:
    """Return what each token reads (length, batch, heads, value size) and the ``kept`` last states.

    All begin with (length, batch, heads): q and k are as wide as keys, v as values, decay as
    keys or 1 (as a logarithm), rate is 1 wide. The state is (batch, heads, keys, values), of a
    divisor of the heads of q.
    """
    states, read = deque[Array](maxlen=kept), []
    shared = q.shape[2] // state.shape[1]
    for t in range(q.shape[0]):
        interruption.check()
        if decay is not None:
            state = state * xp.exp(decay[t])[..., None]
        column, written = k[t][..., None], v[t][..., None, :]
        if rate is not None:
            # The delta rule: write the difference from the value that the key reads so far.
            held = xp.matmul(column.swapaxes(-1, -2), state)
            written = rate[t][..., None] * (written - held)
        state = state + column * written
        states.append(state)
        rows = q[t].reshape(q.shape[1], state.shape[1], shared, q.shape[3])
        read.append(xp.matmul(rows, state).reshape(*q.shape[1:3], v.shape[-1]))
    empty = xp.zeros((0, *q.shape[1:3], v.shape[-1]), q.dtype)
    return xp.stack(read) if read else empty, list(states)


def by_token(x: Array, heads: int) -> Array:
    """Return (batch, length, heads * size) as float32 of shape (length, batch, heads, size)."""
    return in_heads(x, heads).transpose(2, 0, 1, 3).astype("float32")


def repeated(xp: Namespace, x: Array, heads: int) -> Array:
    """Return (length, batch, heads, size) with every head repeated until there are so many."""
    return x if x.shape[2] == heads else xp.repeat(x, heads // x.shape[2], axis=2)


def check_rule(rule: str, decay: Array | None, beta: Array | None) -> tuple[bool, bool]:
    """Return whether a rule decays the state and whether it corrects what it writes.

    Raises:
        ValueError: An unknown rule, or one that lacks its decay or beta.
    """
    if rule not in UPDATE_RULES:
        raise ValueError(f"expected an update_rule of {', '.join(UPDATE_RULES)}, found {rule!r}")
    decays, corrects = UPDATE_RULES[rule]
    for name, reads, given in (("decay", decays, decay), ("beta", corrects, beta)):
        if reads and given is None:
            raise ValueError(f"expected an input {name} with update_rule {rule!r}, found none")
    return decays, corrects


@op(
    "LinearAttention",
    since=27,
    multiple=True,
    shapes=(
        "query: B T q_num_heads*size; key: B T kv_num_heads*size; value: B T ...; "
        "past_state: B kv_num_heads size width; "
        "decay: B T kv_num_heads | B T kv_num_heads*size; beta: B T 1 | B T kv_num_heads; "
        "size = query[2] / q_num_heads; width = value[2] / kv_num_heads; len(value) == 3; "
        "value[2] % kv_num_heads == 0"
    ),
)
def linear_attention(
    xp: Namespace,
    query: Array,
    key: Array,
    value: Array,
    past_state: Array | None = None,
    decay: Array | None = None,
    beta: Array | None = None,
    *,
    chunk_size: int = 64,  # noqa: ARG001 - a hint to implementations that work in chunks
    kv_num_heads: int,
    q_num_heads: int,
    scale: float = 0.0,
    update_rule: str = "gated_delta",
) -> tuple[Array, Array]:
    """Return the outputs (batch, length, heads * value size) and the state after the last token.

    query, key and value are (batch, length, heads * size); the state is (batch, key heads,
    key size, value size). Computed in float32, whatever the types.

    Raises:
        ValueError: An unknown rule, or one that lacks its decay or beta; heads do not divide.
    """
    decays, corrects = check_rule(update_rule, decay, beta)
    for name, reads, given in (("decay", decays, decay), ("beta", corrects, beta)):
        if given is not None and not reads:
            raise ValueError(
                f"expected no input {name} with update_rule {update_rule!r}, found one"
            )
    if q_num_heads % kv_num_heads:
        raise ValueError(f"expected {kv_num_heads} heads to divide the query's {q_num_heads}")
    groups, size = kv_num_heads, query.shape[-1] // q_num_heads
    q = by_token(query, q_num_heads) * xp.float32(scale or 1 / math.sqrt(size))
    k, v = by_token(key, groups), by_token(value, groups)
    gate = by_token(decay, groups) if decays else None
    rate = by_token(beta, beta.shape[-1]) if corrects and beta is not None else None
    state = xp.zeros((query.shape[0], groups, size, v.shape[-1]), xp.float32)
    if past_state is not None:
        state = past_state.astype(xp.float32)
    read, states = recur(xp, q, k, v, gate, rate, state)
    output = read.swapaxes(0, 1).reshape(*query.shape[:2], q_num_heads * v.shape[-1])
    dtype = query.dtype if past_state is None else past_state.dtype
    return output.astype(query.dtype), (states[-1] if states else state).astype(dtype)
