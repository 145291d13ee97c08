"""Matrix products: MatMul, Gemm, their integer and quantized forms, Einsum; and Det.

Operands are multiplied where they lie: a transposed or strided view goes to BLAS as it is.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from tenonnx.operators import Array, Namespace, OperatorTable
from tenonnx_array.dtypes import SMALL_FLOATS, accumulator
from tenonnx_array.integer_products import summed_terms, through_floats
from tenonnx_array.products import CHAIN_TERMS
from tenonnx_array.products import matmul as multiply

table = OperatorTable()
op = table.op

# So many products of two zero-centred bytes still sum exactly in float32.
EXACT_IN_FLOAT32 = 2**24 // (255 * 255)

# Products of bytes that are one sum of BLAS's; more are added up as integers.
EXACT_COLUMNS = min(CHAIN_TERMS, EXACT_IN_FLOAT32)


def product(xp: Namespace, a: Array, b: Array) -> Array:
    """Return ``numpy.matmul(a, b)``; a stack of rows times one matrix is a single product.

    Raises:
        ValueError: The shapes do not fit.
    """
    if not _fit(a.shape, b.shape):
        raise ValueError(
            "expected the last axis of the first matrix to be as long as the last but one of the "
            f"second, and stacks to broadcast, found shapes {a.shape} and {b.shape}"
        )
    if b.ndim == 2 and a.ndim > 2:
        rows, inner = math.prod(a.shape[:-1]), a.shape[-1]
        return multiply(xp, a.reshape(rows, inner), b).reshape(*a.shape[:-1], b.shape[-1])
    return multiply(xp, a, b)


def _fit(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """Return whether arrays of two shapes can be multiplied; one axis is a row, or a column."""
    if not a or not b or a[-1] != b[-2:][0]:
        return False
    stacks = zip(reversed(a[:-2]), reversed(b[:-2]), strict=False)
    return all(own == other or 1 in (own, other) for own, other in stacks)


@op("MatMul")
def matmul(xp: Namespace, A: Array, B: Array) -> Array:
    """Return A @ B in their dtype; floats of 16 bits are summed in float32."""
    if A.dtype in SMALL_FLOATS:
        wide = accumulator(A.dtype)
        return product(xp, A.astype(wide), B.astype(wide)).astype(A.dtype)
    return through_floats(xp, (A, B), A.shape[-1] if A.ndim else 1, functools.partial(product, xp))


@op(
    "Gemm",
    since=7,
    shapes=(
        "A: M K if not transA; A: K M if transA; B: K N if not transB; B: N K if transB; "
        "C: | 1|N | 1|M 1|N"
    ),
)
def gemm(
    xp: Namespace,
    A: Array,
    B: Array,
    C: Array | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Array:
    """Return ``alpha * A' @ B' + beta * C`` of shape (M, N); C broadcasts to it."""
    dtype, wide = A.dtype, accumulator(A.dtype)
    A, B = A.astype(wide, copy=False), B.astype(wide, copy=False)
    Y = product(xp, A.T if transA else A, B.T if transB else B)
    if alpha != 1:
        Y = (Y * alpha).astype(wide, copy=False)
    if C is not None and beta != 0:
        C = C.astype(wide, copy=False)
        Y += C if beta == 1 else (C * beta).astype(wide, copy=False)
    return Y.astype(dtype, copy=False)


@op("Gemm", like=[gemm])
def gemm_1(
    xp: Namespace,
    A: Array,
    B: Array,
    C: Array,
    *,
    transA: int = 0,
    transB: int = 0,
    broadcast: int = 0,
    **factors: float,
) -> Array:
    """Return Gemm; C has the result's shape unless ``broadcast`` is set."""
    shape = (A.shape[1 if transA else 0], B.shape[0 if transB else 1])
    if not broadcast and C.shape != shape:
        raise ValueError(f"expected C of shape {shape}, found {C.shape}; broadcast is not set")
    return gemm(xp, A, B, C, transA=transA, transB=transB, **factors)


@op(
    "GroupedMatMul",
    since=29,
    host=(2,),
    shapes="input: M K; weights: G K N; group_indices: M S; bias: G N",
)
def grouped_matmul(
    xp: Namespace,
    input: Array,  # noqa: A002 - the specification's name
    weights: Array,
    group_indices: Array,
    bias: Array | None = None,
) -> Array:
    """Return ``input[m] @ weights[g] + bias[g]`` for each group g of row m: (M, S, N).

    Args:
        xp: The array namespace.
        input: Rows (M, K).
        weights: A matrix of each group (G, K, N).
        group_indices: Groups of each row (M, S).
        bias: A row of each group (G, N).

    Raises:
        ValueError: A group is not one of G.
    """
    groups, (count, _, width) = np.asarray(group_indices), weights.shape
    if groups.size and not 0 <= groups.min() <= groups.max() < count:
        raise ValueError(
            f"expected group_indices from 0 to {count - 1}, found {groups.min()} to {groups.max()}"
        )
    wide = accumulator(input.dtype)
    y = xp.empty((*groups.shape, width), input.dtype)
    for group in np.unique(groups).tolist():
        rows, places = map(xp.asarray, np.nonzero(groups == group))
        own = product(xp, input[rows].astype(wide), weights[group].astype(wide, copy=False))
        if bias is not None:
            own += bias[group].astype(wide, copy=False)
        y[rows, places] = own.astype(input.dtype, copy=False)
    return y


@op(
    "MatMulInteger",
    since=10,
    shapes="a_zero_point: | 1 | A[-2] | ... A[-2] 1; b_zero_point: | 1 | B[-1] | ... 1 B[-1]",
)
def matmul_integer(
    xp: Namespace,
    A: Array,
    B: Array,
    a_zero_point: Array | None = None,
    b_zero_point: Array | None = None,
) -> Array:
    """Return ``(A - a_zero_point) @ (B - b_zero_point)`` as int32, which may wrap."""
    inner = A.shape[-1]
    if xp is np and inner > EXACT_IN_FLOAT32 and min(A.ndim, B.ndim) >= 2:
        return _in_chunks(A, B, a_zero_point, b_zero_point)
    # The products go through BLAS in a float type whose sums are exact: 100 times integer loops.
    wide = xp.float32 if inner <= EXACT_IN_FLOAT32 else xp.float64
    A, B = A.astype(wide), B.astype(wide)
    if a_zero_point is not None:
        A -= by_row(a_zero_point).astype(wide)
    if b_zero_point is not None:
        B -= b_zero_point.astype(wide)
    return exact_to_int32(xp, xp.asarray(product(xp, A, B)))


def _in_chunks(A: Array, B: Array, a_zero: Array | None, b_zero: Array | None) -> Array:
    """Return MatMulInteger of numpy's, the sum of products of ``EXACT_COLUMNS`` columns of A."""
    scratch = np.empty((*B.shape[:-2], EXACT_COLUMNS, B.shape[-1]), np.float32)
    total = np.int32(0)
    for start in range(0, A.shape[-1], EXACT_COLUMNS):
        a = A[..., start : start + EXACT_COLUMNS].astype(np.float32)
        b = scratch[..., : a.shape[-1], :]
        b[...] = B[..., start : start + EXACT_COLUMNS, :]
        if a_zero is not None:
            a -= by_row(a_zero).astype(np.float32)
        if b_zero is not None and b_zero.any():
            b -= b_zero.astype(np.float32)
        total += product(np, a, b).astype(np.int32)
    return total


def exact_to_int32(xp: Namespace, sums: Array) -> Array:
    """Return sums of products of bytes as int32; those in float64 may need more bits, and wrap."""
    return (sums if sums.dtype == xp.float32 else sums.astype(xp.int64)).astype(xp.int32)


@op(
    "QLinearMatMul",
    since=10,
    shapes=(
        "a_scale a_zero_point: | 1 | a[-2] | ... a[-2] 1; "
        "b_scale b_zero_point: | 1 | b[-1] | ... 1 b[-1]; "
        "y_scale y_zero_point: | 1 | a[-2] | ... a[-2] 1"
    ),
)
def qlinear_matmul(
    xp: Namespace,
    a: Array,
    a_scale: Array,
    a_zero_point: Array,
    b: Array,
    b_scale: Array,
    b_zero_point: Array,
    y_scale: Array,
    y_zero_point: Array,
) -> Array:
    """Return the product of two quantized matrices, quantized as ``y_scale`` and zero point say.

    Scales and zero points are scalars, one value per row (a) or column (b) of a 2-D matrix, or
    shaped to broadcast.
    """
    if a.dtype in SMALL_FLOATS:
        wide = xp.float32
        A = a.astype(wide) - by_row(a_zero_point).astype(wide)
        y = product(xp, A, b.astype(wide) - b_zero_point.astype(wide))
    else:
        # In float32, as onnxruntime: halves in float32 round to even.
        y = matmul_integer(xp, a, b, a_zero_point, b_zero_point).astype(xp.float32)
    scales = (by_row(a_scale), b_scale, y_scale)
    a_scale, b_scale, y_scale = (scale.astype(xp.float32) for scale in scales)
    from tenonnx_array.quant import round_to

    return round_to(xp, y * (a_scale * b_scale / y_scale), y_zero_point, y_zero_point.dtype)


def by_row(value: Array) -> Array:
    """Return a per-tensor scalar, or a vector of one value per row as a column."""
    if value.size == 1:
        return value.reshape(())
    return value[:, None] if value.ndim == 1 else value


@op("Einsum", since=12)
def einsum(xp: Namespace, *Inputs: Array, equation: str) -> Array:
    """Return the sum of products that the equation names; small floats are summed in float32."""
    dtype, wide = Inputs[0].dtype, accumulator(Inputs[0].dtype)
    operands = [x.astype(wide, copy=False) for x in Inputs]
    # Without optimize no operand ever reaches BLAS; with it a lone operand pays for the planning.
    several = len(operands) > 1
    sums = functools.partial(xp.einsum, equation, optimize=several)
    if several and dtype.kind in "iu":
        return through_floats(xp, operands, summed_terms(equation, operands), sums)
    return sums(*operands).astype(dtype, copy=False)


@op("Det", since=11, shapes="X: ... M M")
def det(xp: Namespace, X: Array) -> Array:
    """Return the determinants of ``(*, M, M)`` matrices, shape ``(*)``."""
    return xp.linalg.det(X.astype(accumulator(X.dtype), copy=False)).astype(X.dtype, copy=False)
