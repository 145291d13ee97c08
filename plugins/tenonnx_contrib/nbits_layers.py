"""Several blockwise quantized products of one input, with the norm before them."""

from __future__ import annotations

from tenonnx import Array, Namespace, OperatorTable
from tenonnx_array.nonlinear import gelu, sigmoid, swish
from tenonnx_contrib.matmul_nbits import matmul_nbits
from tenonnx_contrib.skip_norm import (
    simplified_layer_normalization,
    skip_simplified_layer_normalization,
)

table = OperatorTable("com.microsoft")
op = table.op


def normed(
    xp: Namespace, A: Array, skip: Array | None, scale: Array | None, epsilon: float
) -> tuple[Array, Array]:
    """Return the RMS norm of ``A + skip``, if there is a scale, and that sum."""
    if scale is None:
        return A, A
    if skip is None:
        return simplified_layer_normalization(xp, A, scale, epsilon=epsilon)[0], A
    y, _, _, total = skip_simplified_layer_normalization(xp, A, skip, scale, epsilon=epsilon)
    return y, total


@op("MatMulNBitsMlp", multiple=True)
def matmul_nbits_mlp(
    xp: Namespace,
    A: Array,
    skip: Array | None,
    norm_scale: Array | None,
    gate_B: Array,
    gate_scales: Array,
    gate_bias: Array | None,
    up_B: Array,
    up_scales: Array,
    up_bias: Array | None = None,
    *,
    K: int,
    N: int,
    accuracy_level: int = 0,  # noqa: ARG001 - a license to be less accurate
    activation: str,
    bits: int = 4,
    block_size: int,
    epsilon: float = 1e-5,
) -> tuple[Array, Array]:
    """Return ``activation(gate) * up`` of the norm of ``A + skip``, and that sum.

    Raises:
        ValueError: An unknown activation.
    """
    known = {"gelu": gelu, "sigmoid": sigmoid, "silu": swish, "swish": swish}
    if activation.lower() not in known:
        raise ValueError(f"expected activation of {', '.join(known)}, found {activation!r}")
    x, total = normed(xp, A, skip, norm_scale, epsilon)
    gate, up = (
        matmul_nbits(xp, x, B, scales, bias=bias, K=K, N=N, bits=bits, block_size=block_size)
        for B, scales, bias in ((gate_B, gate_scales, gate_bias), (up_B, up_scales, up_bias))
    )
    return known[activation.lower()](xp, gate) * up, total


@op("MatMulNBitsQkv", multiple=True)
def matmul_nbits_qkv(
    xp: Namespace,
    A: Array,
    skip: Array | None,
    norm_scale: Array,
    q_B: Array,
    q_scales: Array,
    q_bias: Array | None,
    k_B: Array,
    k_scales: Array,
    k_bias: Array | None,
    v_B: Array,
    v_scales: Array,
    v_bias: Array | None = None,
    *,
    K: int,
    Nkv: int,
    Nq: int,
    accuracy_level: int = 0,  # noqa: ARG001 - a license to be less accurate
    bits: int = 4,
    block_size: int,
    epsilon: float = 1e-6,
) -> tuple[Array, ...]:
    """Return query, key and value of the norm of ``A + skip``, and that sum."""
    x, total = normed(xp, A, skip, norm_scale, epsilon)
    rows = (
        (q_B, q_scales, q_bias, Nq),
        (k_B, k_scales, k_bias, Nkv),
        (v_B, v_scales, v_bias, Nkv),
    )
    products = (
        matmul_nbits(xp, x, B, scales, bias=bias, K=K, N=N, bits=bits, block_size=block_size)
        for B, scales, bias, N in rows
    )
    return *products, total
