"""Activations with a bias, and sums, as transformers and diffusion models have them."""

from __future__ import annotations

import math

from tenonnx import Array, Namespace, OperatorTable
from tenonnx_array.dtypes import accumulator
from tenonnx_array.nonlinear import gelu, sigmoid, swish
from tenonnx_array.precision import widened
from tenonnx_array.softmax import softmax

table = OperatorTable("com.microsoft")
op = table.op


op("Gelu", without=["approximate"])(gelu)


@op("BiasGelu", shapes="A: ... N; B: N")
@widened
def bias_gelu(xp: Namespace, A: Array, B: Array) -> Array:
    return gelu(xp, A + B)


@op("FastGelu", shapes="X: ... N; bias: N")
@widened
def fast_gelu(xp: Namespace, X: Array, bias: Array | None = None) -> Array:
    """Return the tanh approximation of Gelu of ``X + bias``."""
    return gelu(xp, X if bias is None else X + bias, approximate="tanh")


@op("QuickGelu")
def quick_gelu(xp: Namespace, X: Array, *, alpha: float = 1.702) -> Array:
    """Return ``X sigmoid(alpha X)``."""
    return swish(xp, X, alpha=alpha)


@op("BiasSplitGelu")
@widened
def bias_split_gelu(xp: Namespace, X: Array, bias: Array) -> Array:
    """Return the first half of ``X + bias`` along the last axis times the Gelu of the second."""
    x = X + bias
    half = x.shape[-1] // 2
    return x[..., :half] * gelu(xp, x[..., half:])


@op("BiasAdd")
@widened
def bias_add(xp: Namespace, X: Array, bias: Array, skip: Array) -> Array:  # noqa: ARG001 - a sum
    return X + bias + skip


@op("BiasSoftmax")
@widened
def bias_softmax(
    xp: Namespace, data: Array, bias: Array, *, axis: int = 1, is_inner_broadcast: int
) -> Array:
    """Return the softmax of ``data + bias`` over all axes from ``axis`` on.

    The bias repeats over the axes that end before ``axis`` if ``is_inner_broadcast``, else over
    the first axes of data.
    """
    axis %= data.ndim
    rows, length = math.prod(data.shape[:axis]), math.prod(data.shape[axis:])
    groups = bias.size // length
    x = data.reshape(rows, length)
    b = bias.reshape(groups, length)
    if groups != rows:
        shape = (groups, rows // groups) if is_inner_broadcast else (rows // groups, groups)
        x = x.reshape(*shape, length)
        b = b[:, None] if is_inner_broadcast else b
    return softmax(xp, x + b).reshape(data.shape)


@op("ScaledSiLU", shapes="scale:")
def scaled_silu(
    xp: Namespace, X: Array, scale: Array | None = None, *, alpha: float = 1.0
) -> Array:
    """Return ``z sigmoid(z)`` for ``z = scale X``, each step rounded to X's type."""
    wide = accumulator(X.dtype)
    factor = wide.type(alpha) if scale is None else scale.reshape(()).astype(wide)
    z = (X.astype(wide) * factor).astype(X.dtype)
    return (z.astype(wide) * sigmoid(xp, z).astype(wide)).astype(X.dtype)


@op(
    "GatedAdd",
    shapes=(
        "Y: *X; gate: *X[:-1] 1 if gate_weight is None; "
        "gate: ... gate_weight[0] if gate_weight is not None"
    ),
)
def gated_add(
    xp: Namespace, X: Array, Y: Array, gate: Array, gate_weight: Array | None = None
) -> Array:
    """Return ``X + Y gate``, the product rounded first.

    With a ``gate_weight`` the gate is ``sigmoid(gate @ gate_weight)``, each step computed in
    float32 and rounded to X's type.
    """
    if gate_weight is not None:
        rows = gate.astype(xp.float32) @ gate_weight.astype(xp.float32)
        rows = rows.astype(X.dtype).astype(xp.float32)
        gate = sigmoid(xp, rows).astype(X.dtype)
    return X + Y * gate
