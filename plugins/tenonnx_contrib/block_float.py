"""Products with weights of 4-bit and 8-bit floats that share scales by block."""

from __future__ import annotations

from typing import Final

import ml_dtypes
import numpy as np

from tenonnx import Array, Namespace, OperatorTable
from tenonnx_array.dtypes import accumulator
from tenonnx_array.packed import flattened
from tenonnx_array.packed_products import tiled

table = OperatorTable("com.microsoft")
op = table.op

E4M3_MAX: Final = np.float32(448)

# The magnitudes of FP4 codes 0 to 7; 8 to 15 are their negatives (arXiv:2305.14314's library).
FP4: Final = (0.0, 0.0052083333, 0.6666667, 1.0, 0.3333333, 0.5, 0.1666667, 0.25)

# Quantiles of the normal distribution (arXiv:2305.14314, appendix E).
NF4: Final = (
    -1.0, -0.6961928, -0.52507305, -0.39491749, -0.28444138, -0.18477343, -0.09105004, 0.0,
    0.0795803, 0.1609302, 0.2461123, 0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0,
)  # fmt: skip


@op("MatMulBnb4")
def matmul_bnb4(
    xp: Namespace,
    A: Array,
    B: Array,
    absmax: Array,
    *,
    K: int,
    N: int,
    block_size: int,
    quant_type: int,
    training_mode: int = 0,  # noqa: ARG001 - says how to keep B for the backward pass
    transB: int = 1,
) -> Array:
    """Return ``A @ W.T``, or ``A @ W`` without ``transB``, for W of shape (N, K).

    W is 4-bit codes in row-major order, the first of a byte in the high bits, and one scale for
    every ``block_size`` of them. ``quant_type`` is 0 for FP4, 1 for NF4.
    """
    codes = np.array(NF4 if quant_type else (*FP4, *(-x for x in FP4)), np.float32)
    pairs = np.stack((codes.repeat(16), np.tile(codes, 16)), axis=1)
    lookup, wide = xp.asarray(pairs), accumulator(A.dtype)
    B, absmax = B.reshape(-1), absmax.reshape(-1).astype(xp.float32)

    def tile(rows: slice) -> Array:
        first, last = rows.start * K, rows.stop * K
        flat = flattened(xp.take(lookup, B[first // 2 : -(-last // 2)], axis=0))
        flat = flat[first % 2 :][: last - first]
        flat = flat * absmax[xp.arange(first, last) // block_size]
        return flat.reshape(-1, K).astype(wide, copy=False)

    y = tiled(xp, A.astype(wide, copy=False), tile, (N, K), transposed=bool(transB))
    return y.astype(A.dtype, copy=False)


@op("MatMulBlockQuantizedFp8Weight")
def matmul_fp8_weight(
    xp: Namespace,
    A: Array,
    B: Array,
    b_scale: Array,
    a_scale: Array | None = None,
    bias: Array | None = None,
    *,
    block_size: int = 128,
) -> Array:
    """Return ``A @ W.T + bias`` for W = B times a scale per ``block_size`` columns, (N, K).

    With ``a_scale`` A is rounded to float8e4m3fn in its units first.
    """
    x = A.astype(xp.float32)
    if a_scale is not None:
        unit = a_scale.reshape(())
        scaled = xp.clip(x / unit, -E4M3_MAX, E4M3_MAX).astype(ml_dtypes.float8_e4m3fn)
        x = scaled.astype(xp.float32) * unit

    def tile(rows: slice) -> Array:
        return spread(xp, B[rows].astype(xp.float32), b_scale[rows], block_size)

    return tiled(xp, x, tile, B.shape, bias).astype(A.dtype)


@op("MatMulBlockQuantizedFp4Weight")
def matmul_fp4_weight(
    xp: Namespace,
    A: Array,
    B: Array,
    weight_scale: Array,
    weight_scale_2: Array,
    input_scale: Array | None = None,  # noqa: ARG001 - activations keep their type
    bias: Array | None = None,
    *,
    block_size: int = 16,
) -> Array:
    """Return ``A @ W.T + bias`` for W of float4e2m1, two to a byte, of shape (N, K).

    The scales are bytes of float8e4m3fn, one per ``block_size`` columns, and one float for all.
    """
    codes = np.arange(16, dtype=np.uint8).view(ml_dtypes.float4_e2m1fn).astype(np.float32)
    lookup = xp.asarray(np.stack((np.tile(codes, 16), codes.repeat(16)), axis=1))
    scales = weight_scale.view(ml_dtypes.float8_e4m3fn)
    everywhere = weight_scale_2.reshape(()).astype(xp.float32)

    def tile(rows: slice) -> Array:
        factors = scales[rows].astype(xp.float32) * everywhere
        return spread(xp, flattened(xp.take(lookup, B[rows], axis=0)), factors, block_size)

    y = tiled(xp, A.astype(xp.float32), tile, (B.shape[0], 2 * B.shape[1]), bias)
    return y.astype(A.dtype)


def spread(xp: Namespace, weights: Array, scales: Array, block_size: int) -> Array:
    """Return weights (rows, columns) times a scale for every ``block_size`` columns."""
    return weights * xp.repeat(scales, block_size, axis=1)[:, : weights.shape[1]]
