"""Layers with a state of fixed size: linear attention and causal convolution."""

from __future__ import annotations

import math

from tenonnx import Array, Namespace, OperatorTable
from tenonnx_array.axes import merged
from tenonnx_array.conv import conv
from tenonnx_array.linear_attention import by_token, check_rule, recur, repeated
from tenonnx_array.nonlinear import sigmoid, softplus, swish

table = OperatorTable("com.microsoft")
op = table.op


@op(
    "LinearAttention",
    multiple=True,
    shapes=(
        "query key value: B T ...; decay beta: B T ...; "
        "past_state: B kv_num_heads size width if not state_window; "
        "past_state: state_window B kv_num_heads size width if state_window; "
        "size = query[2] / q_num_heads; width = value[2] / kv_num_heads"
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
    state_window: int = 0,
    update_rule: str = "gated_delta",
) -> tuple[Array, Array]:
    """Return outputs (batch, length, heads * size), and the last state or ``state_window`` of them.

    Inputs are (batch, length, heads * size). A state is (batch, key heads, key size, value size);
    a window of states has the last one last, and zeros before the first. In float32.

    Raises:
        ValueError: An unknown rule, or one that lacks its decay or beta.
    """
    decays, corrects = check_rule(update_rule, decay, beta)
    size = query.shape[-1] // q_num_heads
    heads = max(q_num_heads, kv_num_heads)
    q = repeated(xp, by_token(query, q_num_heads), heads)
    q = q * xp.float32(scale or 1 / math.sqrt(size))
    k = repeated(xp, by_token(key, key.shape[-1] // size), kv_num_heads)
    v = by_token(value, kv_num_heads)
    shape = (query.shape[0], kv_num_heads, size, v.shape[-1])
    dtype = query.dtype if past_state is None else past_state.dtype
    if past_state is None:
        state = xp.zeros(shape, xp.float32)
    else:
        state = (past_state[-1] if state_window else past_state).astype(xp.float32)
    gate = by_token(decay, kv_num_heads) if decays else None
    rate = by_token(beta, beta.shape[-1]) if corrects and beta is not None else None
    read, states = recur(xp, q, k, v, gate, rate, state, kept=state_window or 1)
    output = merged(read.swapaxes(0, 1), 2).astype(query.dtype)
    if not state_window:
        return output, (states[-1] if states else state).astype(dtype)
    blanks = [xp.zeros(shape, xp.float32)] * (state_window - len(states))
    return output, xp.stack(blanks + states).astype(dtype)


@op("LinearAttentionGate", multiple=True, shapes="a: ... H; dt_bias decay_scale: H; b: *a")
def linear_attention_gate(
    xp: Namespace, a: Array, dt_bias: Array, decay_scale: Array, b: Array | None = None
) -> tuple[Array, Array | None]:
    """Return ``decay_scale * softplus(a + dt_bias)`` and ``sigmoid(b)``, computed in float32."""
    decay = decay_scale * softplus(xp, a.astype(xp.float32) + dt_bias)
    beta = None if b is None else sigmoid(xp, b.astype(xp.float32)).astype(a.dtype)
    return decay.astype(a.dtype), beta


@op(
    "CausalConvWithState",
    multiple=True,
    shapes=(
        "weight: C 1 K; bias: C; input: B C L if not channels_last; input: B L C if channels_last; "
        "past_state: *window B C held if not channels_last; "
        "past_state: *window B held C if channels_last; "
        "held = (K-1) * dilation; window = (state_window,) if state_window else ()"
    ),
)
def causal_conv_with_state(
    xp: Namespace,
    input: Array,  # noqa: A002 - the schema's name
    weight: Array,
    bias: Array | None = None,
    past_state: Array | None = None,
    *,
    activation: str = "none",
    channels_last: int = 0,
    dilation: int = 1,
    input_channel_offset: int = 0,
    input_channels: int = 0,
    ndim: int = 1,
    state_channels_last: int = -1,
    state_length: int = 0,
    state_update_capacity: int = 0,
    state_window: int = 0,
) -> tuple[Array, Array]:
    """Convolve each channel with what came before it; also the last inputs, for the next call.

    input is (batch, channels, length), or (batch, length, ...) if ``channels_last``. A state
    holds ``(kernel - 1) * dilation`` positions; with a ``state_window`` there is one for each of
    the last positions, zeros before the first.

    Raises:
        ValueError: An unknown activation, more than one spatial axis, or a choice of channels, a
            layout or a length of states of their own, or updates of states, which onnxruntime has
            on CUDA alone.
    """
    if (input_channel_offset, input_channels, state_length, state_update_capacity) != (0,) * 4:
        raise ValueError(
            "expected input_channel_offset, input_channels, state_length and "
            "state_update_capacity of 0, found another"
        )
    if state_channels_last not in (-1, channels_last):
        raise ValueError(f"expected state_channels_last={channels_last}, as channels_last is")
    if activation not in ("none", "silu", "swish"):
        raise ValueError(f"expected activation to be none, silu or swish, found {activation!r}")
    if ndim != 1:
        raise ValueError(f"expected one spatial axis (ndim=1), found ndim={ndim}")
    x, trailing = channels_first(xp, input, channels_last), input.shape[2:]
    held, length = (weight.shape[2] - 1) * dilation, x.shape[2]
    past = xp.zeros((*x.shape[:2], held), x.dtype)
    if past_state is not None:
        past = channels_first(xp, past_state[-1] if state_window else past_state, channels_last)
    whole = xp.concatenate((past, x), axis=2)
    y = conv(xp, whole, weight, bias, group=x.shape[1], dilations=(dilation,))
    if activation != "none":
        y = swish(xp, y)

    def outward(values: Array) -> Array:
        if not channels_last:
            return values
        return values.swapaxes(1, 2).reshape(values.shape[0], values.shape[2], *trailing)

    if not state_window:
        return outward(y), outward(whole[:, :, length:])
    states = [
        outward(whole[:, :, end : end + held] if end > 0 else xp.zeros_like(past))
        for end in range(length - state_window + 1, length + 1)
    ]
    return outward(y), xp.stack(states)


def channels_first(xp: Namespace, x: Array, channels_last: int) -> Array:
    """Return (batch, length, ...) as (batch, channels, length), or unchanged."""
    if not channels_last:
        return x
    return xp.swapaxes(merged(x, 2), 1, 2)
