"""MatMulNBits, MatMulFpQ4: products with a blockwise quantized matrix, read as it is stored."""

from __future__ import annotations

from typing import Final

from tenonnx import Array, Namespace, OperatorTable
from tenonnx_array.dtypes import accumulator
from tenonnx_array.packed import check, levels, unpack
from tenonnx_array.packed_products import by_columns, tiled

table = OperatorTable("com.microsoft")
op = table.op

# MatMulFpQ4's types: rows of a block, and bytes before its codes.
FP_Q4: Final = {0: (32, 4), 1: (32, 5), 2: (64, 4)}


@op(
    "MatMulNBits",
    shapes=(
        "A: ... K; B: N blocks blob; scales: N*blocks | N blocks; "
        "zero_points: N*packed|N*blocks | N packed|blocks; g_idx: K|blocks*block_size; bias: N; "
        "blocks = ceil(K / block_size); blob = block_size * bits / 8; "
        "packed = ceil(blocks * bits / 8)"
    ),
)
def matmul_nbits(
    xp: Namespace,
    A: Array,
    B: Array,
    scales: Array,
    zero_points: Array | None = None,
    g_idx: Array | None = None,
    bias: Array | None = None,
    *,
    K: int,
    N: int,
    accuracy_level: int = 0,  # noqa: ARG001 - a license to be less accurate
    bits: int = 4,
    block_size: int,
    weight_prepacked: int = 0,
) -> Array:
    """Return ``A @ W.T + bias`` with ``W = (B - zero_points) * scales`` of shape (N, K).

    B holds blocks along K as (N, blocks, block_size * bits / 8) bytes. Zero points are packed
    likewise, or have A's type; without them the middle of the range is the zero. ``g_idx`` names
    each column's group instead of its block. Sums are in float32, whatever ``accuracy_level``.

    Raises:
        ValueError: The packed weights have another size, or a layout of another device.
    """
    check(bits)
    if weight_prepacked:
        raise ValueError(
            "expected weights in the portable layout (weight_prepacked=0), found "
            f"weight_prepacked={weight_prepacked}"
        )
    blocks = -(-K // block_size)
    if B.size != N * blocks * block_size * bits // 8:
        raise ValueError(
            f"expected {N * blocks * block_size * bits // 8} packed bytes for N={N}, K={K}, "
            f"block_size={block_size} and bits={bits}, found B of shape {B.shape}"
        )
    wide = accumulator(A.dtype)
    B, scales = B.reshape(N, blocks, -1), scales.reshape(N, -1).astype(wide, copy=False)
    offsets = None if zero_points is None else centered(xp, zero_points, N, blocks, bits, wide)

    x = A.astype(wide, copy=False)
    if g_idx is None:
        y = by_columns(xp, x.reshape(-1, K), B, scales, offsets, bits).reshape(*A.shape[:-1], N)
        if bias is not None:
            y += bias.astype(wide, copy=False)
        return y.astype(A.dtype, copy=False)

    def tile(rows: slice) -> Array:
        weights = levels(xp, B[rows], bits).astype(wide, copy=False)
        weights = weights.reshape(weights.shape[0], -1)[:, :K]
        if offsets is not None:
            weights -= offsets[rows][:, g_idx]
        weights *= scales[rows][:, g_idx]
        return weights

    return tiled(xp, x, tile, (N, K), bias).astype(A.dtype, copy=False)


@op("MatMulFpQ4", host=(2,), shapes="B: n; B_shape: 2")
def matmul_fp_q4(
    xp: Namespace,
    A: Array,
    B: Array,
    B_shape: Array,
    *,
    blk_quant_type: int = 1,
) -> Array:
    """Return ``A @ W`` for W (K, N) of 4 bits in onnxruntime's own packing.

    B is, for every column and block of rows, a float32 scale, a byte of zero point in type 1 (else
    it is 8), and the codes: of every 32 rows, the first 16 in the low bits and the others in the
    high ones. onnxruntime 1.31.1 takes type 2 for type 1.

    Raises:
        ValueError: The type is unknown, or B has another size.
    """
    if blk_quant_type not in FP_Q4:
        raise ValueError(f"expected blk_quant_type 0, 1 or 2, found {blk_quant_type}")
    size, head = FP_Q4[blk_quant_type]
    K, N = B_shape.tolist()
    blocks, width = -(-K // size), head + size // 2
    if B.size != N * blocks * width:
        raise ValueError(
            f"expected {N * blocks * width} bytes for B_shape {[K, N]} and "
            f"blk_quant_type={blk_quant_type}, found {B.size}"
        )
    B = B.reshape(N, blocks, width)
    scales = xp.ascontiguousarray(B[..., :4]).view(xp.float32)
    zeros = B[..., 4:head].astype(xp.float32) if head > 4 else xp.float32(8)
    halves = B[..., head:].reshape(N, blocks, -1, 1, 16)
    codes = xp.concatenate((halves & 15, halves >> 4), axis=3).reshape(N, blocks, size)
    weights = ((codes - zeros) * scales).reshape(N, -1)[:, :K]
    return xp.matmul(A, weights.T)


def centered(xp: Namespace, values: Array, rows: int, blocks: int, bits: int, wide: Array) -> Array:
    """Return zero points (rows, blocks) less the middle of their range.

    Raises:
        ValueError: There is another number of bytes of packed ones.
    """
    if values.dtype == xp.uint8:
        if values.size != rows * -(-blocks * bits // 8):
            raise ValueError(
                f"expected zero_points of {rows} times {-(-blocks * bits // 8)} bytes, "
                f"found {values.shape}"
            )
        values = unpack(xp, values.reshape(rows, -1), bits)[:, :blocks]
    return values.reshape(rows, blocks).astype(wide) - wide.type(1 << (bits - 1))
