"""Linear attention: a state of fixed size that every token decays, writes and reads."""

from __future__ import annotations

import math

from tenonnx import interruption
from tenonnx.operators import Array, Namespace, OperatorTable
from tenonnx_array.attention import unpack

table = OperatorTable()
op = table.op

RULES = {  # update_rule: (decays, corrects what it writes)
    "linear": (False, False),
    "gated": (True, False),
    "delta": (False, True),
    "gated_delta": (True, True),
}


@op("LinearAttention", since=27, multiple=True)
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
    if update_rule not in RULES:
        raise ValueError(f"expected an update_rule of {', '.join(RULES)}, found {update_rule!r}")
    decays, corrects = RULES[update_rule]
    for name, needed, given in (("decay", decays, decay), ("beta", corrects, beta)):
        if needed != (given is not None):
            raise ValueError(
                f"expected {'an' if needed else 'no'} input {name} "
                f"with update_rule {update_rule!r}, found {'none' if needed else 'one'}"
            )
    if q_num_heads % kv_num_heads:
        raise ValueError(f"expected {kv_num_heads} heads to divide the query's {q_num_heads}")
    batch, length, width = query.shape
    groups, size = kv_num_heads, width // q_num_heads
    shared = q_num_heads // groups
    q, k, v = by_token(query, q_num_heads), by_token(key, groups), by_token(value, groups)
    q = q.reshape(length, batch, groups, shared, size) * xp.float32(scale or 1 / math.sqrt(size))
    keep = xp.exp(by_token(decay, groups))[..., None] if decays else None
    rate = by_token(beta, beta.shape[-1]) if corrects and beta is not None else None
    state = xp.zeros((batch, groups, size, v.shape[-1]), xp.float32)
    if past_state is not None:
        state = past_state.astype(xp.float32)

    read = []
    for t in range(length):
        interruption.check()
        if keep is not None:
            state = state * keep[t]
        column, written = k[t][..., None], v[t][..., None, :]
        if rate is not None:
            written = rate[t][..., None] * (written - xp.matmul(column.swapaxes(-1, -2), state))
        state = state + column * written
        read.append(xp.matmul(q[t], state))
    output = xp.stack(read, axis=1) if read else xp.zeros((batch, 0, q_num_heads), xp.float32)
    output = output.reshape(batch, length, q_num_heads * v.shape[-1]).astype(query.dtype)
    return output, state.astype(query.dtype if past_state is None else past_state.dtype)


def by_token(x: Array, heads: int) -> Array:
    """Return (batch, length, heads * size) as float32 of shape (length, batch, heads, size)."""
    return unpack(x, heads).transpose(2, 0, 1, 3).astype("float32")
