"""Products of bytes that come out as real numbers."""

from __future__ import annotations

from tenonnx import Array, Namespace, OperatorTable
from tenonnx_array.linalg import by_row, matmul_integer, product
from tenonnx_array.quant import dynamic_quantize_linear, round_to

table = OperatorTable("com.microsoft")
op = table.op


def dequantized_product(
    xp: Namespace,
    a: Array,
    b: Array,
    a_scale: Array,
    b_scale: Array,
    a_zero_point: Array | None,
    b_zero_point: Array | None,
) -> Array:
    """Return ``(a - a_zero_point) @ (b - b_zero_point) * a_scale * b_scale`` as float32."""
    if b_zero_point is not None:
        b_zero_point = by_column(b_zero_point, b)
    y = matmul_integer(xp, a, b, a_zero_point, b_zero_point).astype(xp.float32)
    y *= by_row(a_scale).astype(xp.float32) * by_column(b_scale, b).astype(xp.float32)
    return y


def by_column(values: Array, b: Array) -> Array:
    """Return one value, or one per column of each matrix of a stack b, so that it broadcasts."""
    if values.size == 1:
        return values.reshape(())
    return (
        values if values.ndim < 2 or values.shape[-2] == 1 else values.reshape(*b.shape[:-2], 1, -1)
    )


@op("MatMulIntegerToFloat", shapes="bias: B[-1]")
def matmul_integer_to_float(
    xp: Namespace,
    A: Array,
    B: Array,
    a_scale: Array,
    b_scale: Array,
    a_zero_point: Array | None = None,
    b_zero_point: Array | None = None,
    bias: Array | None = None,
) -> Array:
    """Return the product of two quantized matrices plus a bias, in the scales' type."""
    y = dequantized_product(xp, A, B, a_scale, b_scale, a_zero_point, b_zero_point)
    if bias is not None:
        y += bias.astype(xp.float32, copy=False)
    return y.astype(a_scale.dtype, copy=False)


@op("DynamicQuantizeMatMul", shapes="bias: B[-1]")
def dynamic_quantize_matmul(
    xp: Namespace,
    A: Array,
    B: Array,
    b_scale: Array,
    b_zero_point: Array | None = None,
    bias: Array | None = None,
) -> Array:
    """Return ``A @ B + bias`` with A quantized to uint8 by its own range first."""
    a, a_scale, a_zero_point = dynamic_quantize_linear(xp, A)
    y = dequantized_product(
        xp, a, B, xp.asarray(a_scale), b_scale, xp.asarray(a_zero_point), b_zero_point
    )
    return y if bias is None else y + bias


@op(
    "QGemm",
    shapes=(
        "A: M K if not transA; A: K M if transA; B: K N if not transB; B: N K if transB; "
        "b_scale: | 1 | N; b_zero_point: *b_scale; "
        "a_scale a_zero_point y_scale y_zero_point: | 1; C: | 1|N | 1|M 1|N"
    ),
)
def q_gemm(
    xp: Namespace,
    A: Array,
    a_scale: Array,
    a_zero_point: Array,
    B: Array,
    b_scale: Array,
    b_zero_point: Array,
    C: Array | None = None,
    y_scale: Array | None = None,
    y_zero_point: Array | None = None,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Array:
    """Return ``alpha * A' @ B' + C``, quantized if ``y_scale`` is given, else float32.

    C counts in units of ``alpha * a_scale * b_scale``.
    """
    a, b = A.T if transA else A, B.T if transB else B
    y = matmul_integer(xp, a, b, a_zero_point.reshape(()), by_column(b_zero_point, b))
    if C is not None:
        y = y + C
    scale = by_column(b_scale, b) * (a_scale.reshape(()) * xp.float32(alpha))
    if y_scale is None:
        return y.astype(xp.float32) * scale
    y = y.astype(xp.float32) * (scale / y_scale.reshape(()))
    kind = A.dtype if y_zero_point is None else y_zero_point.dtype
    return round_to(xp, y, None if y_zero_point is None else y_zero_point.reshape(()), kind)


@op("MatMulInteger16")
def matmul_integer_16(xp: Namespace, A: Array, B: Array) -> Array:
    """Return the product of 16-bit integers in 32 bits, unsigned if both are; sums wrap."""
    unsigned = A.dtype == xp.uint16 and B.dtype == xp.uint16
    kind = xp.uint32 if unsigned else xp.int32
    return product(xp, A.astype(xp.int64), B.astype(xp.int64)).astype(kind)
