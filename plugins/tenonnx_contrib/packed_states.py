"""Causal convolutions of tokens of several requests, one after another."""

from __future__ import annotations

import itertools

from tenonnx import Array, Namespace, OperatorTable
from tenonnx_contrib.states import causal_conv_with_state

table = OperatorTable("com.microsoft")


@table.op(
    "VarlenCausalConvWithState",
    host=(2, 5),
    multiple=True,
    shapes=(
        "weight: C 1 K; bias: C; capture_count: B; initial_state: B C (K-1)*dilation; C > 0; "
        "cumulative_sequence_length: ends; B = ends - 1"
    ),
)
def varlen_causal_conv_with_state(
    xp: Namespace,
    input: Array,  # noqa: A002 - the schema's name
    weight: Array,
    cumulative_sequence_length: Array,
    bias: Array | None,
    initial_state: Array,
    capture_count: Array | None = None,
    kernel_delta: Array | None = None,
    previous_mask: Array | None = None,
    *,
    activation: str = "none",
    delta_offset: int = 0,  # noqa: ARG001 - of kernel_delta
    dilation: int = 1,
    group_size: int = 1,  # noqa: ARG001 - likewise
    state_update_capacity: int = 0,
) -> tuple[Array, Array, Array | None]:
    """Convolve each request's tokens with what came before them, as CausalConvWithState does.

    input is (tokens, channels), of which request i has those from ``cumulative_sequence_length[i]``
    on; states are (requests, channels, positions). Also return each request's first inputs, up to
    ``capture_count`` of them, in ``state_update_capacity`` places, zeros in the others.

    Raises:
        ValueError: The lengths do not add up, counts are missing, or taps are given per token,
            which onnxruntime has on CUDA alone.
    """
    if kernel_delta is not None or previous_mask is not None:
        raise ValueError("expected no kernel_delta and previous_mask, found one")
    ends = [int(end) for end in cumulative_sequence_length]
    if ends[0] != 0 or ends[-1] != len(input) or sorted(set(ends)) != ends:
        raise ValueError(
            f"expected cumulative_sequence_length to go up from 0 to {len(input)}, found {ends}"
        )
    if (capture_count is None) != (state_update_capacity == 0):
        raise ValueError(
            f"expected capture_count if state_update_capacity={state_update_capacity} is positive"
        )
    outputs, states = [], []
    for request, (start, stop) in enumerate(itertools.pairwise(ends)):
        y, state = causal_conv_with_state(
            xp,
            input[None, start:stop].swapaxes(1, 2),
            weight,
            bias,
            initial_state[request : request + 1],
            activation=activation,
            dilation=dilation,
        )
        outputs.append(y[0].T)
        states.append(state[0])
    if capture_count is None:
        return xp.concatenate(outputs), xp.stack(states), None
    updates = xp.zeros((len(states), state_update_capacity, input.shape[1]), input.dtype)
    for request, (start, stop) in enumerate(itertools.pairwise(ends)):
        count = max(0, min(int(capture_count[request]), state_update_capacity, stop - start))
        updates[request, :count] = input[start : start + count]
    return xp.concatenate(outputs), xp.stack(states), updates
