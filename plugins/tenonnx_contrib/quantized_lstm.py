"""DynamicQuantizeLSTM: an LSTM whose weights are bytes."""

from __future__ import annotations

from typing import Any

from tenonnx import Array, Namespace, OperatorTable
from tenonnx_array.recurrent import lstm

table = OperatorTable("com.microsoft")
op = table.op


@op(
    "DynamicQuantizeLSTM",
    like=[lstm],
    multiple=True,
    without=("layout", "output_sequence"),
    shapes=(
        "X: T N I; W: D I 4*H; R: D H 4*H; B: D 8*H; sequence_lens: N; "
        "initial_h initial_c: D N H; P: D 3*H; "
        "W_scale W_zero_point R_scale R_zero_point: D | D 4*H; "
        "D == 1 + (direction == 'bidirectional')"
    ),
)
def dynamic_quantize_lstm(
    xp: Namespace,
    X: Array,
    W: Array,
    R: Array,
    B: Array | None,
    sequence_lens: Array | None,
    initial_h: Array | None,
    initial_c: Array | None,
    P: Array | None,
    W_scale: Array,
    W_zero_point: Array,
    R_scale: Array,
    R_zero_point: Array,
    **attributes: Any,
) -> tuple[Array, ...]:
    """Return LSTM with dequantized weights; inputs and states keep their precision.

    The weights are (directions, inputs, 4 * hidden), quantized per direction or per column.
    """
    w, r = (
        real_weights(xp, *parts)
        for parts in ((W, W_scale, W_zero_point), (R, R_scale, R_zero_point))
    )
    return lstm(xp, X, w, r, B, sequence_lens, initial_h, initial_c, P, **attributes)


def real_weights(xp: Namespace, weights: Array, scale: Array, zero_point: Array) -> Array:
    """Return weights (directions, 4 * hidden, inputs) as float32."""
    shape = (weights.shape[0], 1, -1)
    shifted = weights.astype(xp.float32) - zero_point.reshape(shape).astype(xp.float32)
    return (shifted * scale.reshape(shape)).swapaxes(1, 2)
