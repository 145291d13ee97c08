"""AttnLSTM: an LSTM that looks, after every step, at a memory (Bahdanau et al. 2014)."""

from __future__ import annotations

import math
from typing import Any

from tenonnx import Array, Namespace, OperatorTable
from tenonnx_array.recurrence import Recurrence, States
from tenonnx_array.recurrent import layer, memory

table = OperatorTable("com.microsoft")
op = table.op


@op(
    "AttnLSTM",
    like=[layer],
    without=("layout", "output_sequence"),
    multiple=True,
    shapes=(
        "X: T N I; B: D 8*H; R: D 4*H H; W: D 4*H ...; sequence_lens memory_seq_lens: N; "
        "initial_h initial_c: D N H; P: D 3*H; D == 1 + (direction == 'bidirectional'); "
        "QW: D H A; MW: D M[2] A; V: D A; M: N L M[2]; AW: D H+M[2] O"
    ),
)
def attn_lstm(
    xp: Namespace,
    X: Array,
    W: Array,
    R: Array,
    B: Array | None = None,
    sequence_lens: Array | None = None,
    initial_h: Array | None = None,
    initial_c: Array | None = None,
    P: Array | None = None,
    QW: Array | None = None,
    MW: Array | None = None,
    V: Array | None = None,
    M: Array | None = None,
    memory_seq_lens: Array | None = None,
    AW: Array | None = None,
    *,
    activations: tuple[str, ...] = ("Sigmoid", "Tanh", "Tanh") * 2,
    input_forget: int = 0,
    **attributes: Any,
) -> tuple[Array, ...]:
    """Return every hidden state, the last one, and the last cell.

    Every step's input is X's, followed by what the step before attended to: (directions,
    4 * hidden_size, inputs + attention) are W's sizes. The attention is the mean of M's entries
    weighted by the softmax of V . tanh(M MW + h QW); with AW, [h, mean] AW.

    Raises:
        ValueError: QW, MW, V or M is missing, or W's width does not fit.
    """
    if QW is None or MW is None or V is None or M is None:
        raise ValueError("expected the inputs QW, MW, V and M")
    inputs, width = X.shape[2], (M if AW is None else AW).shape[-1]
    if W.shape[2] != inputs + width:
        raise ValueError(
            f"expected W of {inputs} input and {width} attention columns, found {W.shape[2]}"
        )
    # W's columns for X are multiplied for all steps at once; those for the attention cannot be
    # known before the step, and are multiplied in it.
    net, (f, g, h) = layer(
        xp, X, W[..., :inputs], R, B, sequence_lens, activations, 3, **attributes
    )
    cell = memory(xp, net, f, g, h, bool(input_forget), P)
    look = Attention(xp, net, QW, MW, V, M, memory_seq_lens, AW)
    attended = net.wide(W[..., inputs:]).swapaxes(1, 2)

    def step(x: Array, states: States) -> States:
        after = cell(x + xp.matmul(states[2], attended), states[:2])
        return *after, look(after[0])

    nothing = xp.zeros((net.directions, X.shape[1], width), X.dtype)
    bias = net.input_bias + net.recurrent_bias
    return net.run(step, bias, initial_h, initial_c, nothing)[:3]


class Attention:
    """The attention of a hidden state (directions, batch, hidden size).

    Args:
        xp: The array namespace.
        net: Whose precision is computed in.
        QW: (directions, hidden size, depth).
        MW: (directions, memory depth, depth).
        V: (directions, depth).
        M: (batch, places, memory depth).
        lengths: How many of an item's places count; None for all.
        AW: (directions, hidden size + memory depth, attention).

    Raises:
        ValueError: A length is not one of a part of the places.
    """

    def __init__(
        self,
        xp: Namespace,
        net: Recurrence,
        QW: Array,
        MW: Array,
        V: Array,
        M: Array,
        lengths: Array | None,
        AW: Array | None,
    ) -> None:
        self.xp = xp
        self.query, self.layer = net.wide(QW), None if AW is None else net.wide(AW)
        self.scorer = net.wide(V)[:, None, :, None]
        self.values = net.wide(M)
        self.outside = None
        if lengths is not None:
            if xp.any((lengths < 1) | (lengths > M.shape[1])):
                raise ValueError(
                    f"expected memory_seq_lens of 1 to {M.shape[1]}, found {lengths.tolist()}"
                )
            self.outside = xp.arange(M.shape[1]) >= lengths[:, None]
            self.values = xp.where(self.outside[..., None], 0, self.values)
        self.keys = xp.matmul(self.values, net.wide(MW)[:, None])

    def __call__(self, hidden: Array) -> Array:
        """Return (directions, batch, attention)."""
        xp = self.xp
        query = xp.matmul(hidden, self.query)[:, :, None]
        scores = xp.matmul(xp.tanh(self.keys + query), self.scorer)[..., 0]
        if self.outside is not None:
            scores = xp.where(self.outside, -math.inf, scores)
        weights = xp.exp(scores - scores.max(axis=-1, keepdims=True))
        weights = weights / weights.sum(axis=-1, keepdims=True)
        mean = xp.matmul(weights[..., None, :], self.values)[..., 0, :]
        if self.layer is None:
            return mean
        return xp.matmul(xp.concatenate((hidden, mean), axis=-1), self.layer)
