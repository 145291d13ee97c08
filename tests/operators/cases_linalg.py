"""Matrix products at versions, types and shapes that the backend suite leaves out."""

from __future__ import annotations

from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
from case import Case
from formula import RNG, in64

A = RNG.standard_normal((3, 4)).astype(np.float32)
B = RNG.standard_normal((4, 5)).astype(np.float32)
ROW = RNG.standard_normal(5).astype(np.float32)
FULL = RNG.standard_normal((3, 5)).astype(np.float32)
STACK = RNG.standard_normal((2, 3, 4)).astype(np.float32)
BF16 = ml_dtypes.bfloat16
I32 = RNG.integers(-(2**31), 2**31, (3, 4)).astype(np.int32)
J32 = RNG.integers(-(2**31), 2**31, (4, 5)).astype(np.int32)
U8 = RNG.integers(0, 256, (3, 1000)).astype(np.uint8)
I8 = RNG.integers(-128, 128, (1000, 5)).astype(np.int8)
ROWS = np.array([0, 128, 255], np.uint8)
COLUMNS = np.array([-128, -1, 0, 1, 127], np.int8)


def wrapping(a: Any, b: Any) -> Any:
    wide = [[sum(int(x) * int(y) for x, y in zip(r, c, strict=True)) for c in b.T] for r in a]
    return np.array([[(v + 2**31) % 2**32 - 2**31 for v in row] for row in wide], np.int32)


def by_hand(a: Any, b: Any) -> Any:
    y = np.zeros((*a.shape[:2], b.shape[2]))
    for n, i, j, k in product(*map(range, (*y.shape, a.shape[2]))):
        y[n, i, j] += a[n, i, k] * b[n, k, j]
    return y


def quantized(a: Any, b: Any, scale: float) -> Any:
    return np.clip(np.rint((a.astype(int) - 3) @ (b.astype(int) + 5) * scale) + 7, -128, 127)


def quantized_rows(scale: float) -> Any:
    exact = (U8.astype(int) - ROWS[:, None]) @ (I8.astype(int) - COLUMNS)
    weights = np.outer([1, 2, 4], [1, 2, 3, 4, 5]) * scale
    return np.clip(np.rint(exact * weights) + 100, 0, 255).astype(np.uint8)


def scalars(*values: Any) -> list[Any]:
    return [np.asarray(value) for value in values]


TOKENS, GROUPS = RNG.standard_normal((5, 4)), RNG.standard_normal((3, 4, 6))
BIASES, CHOSEN = RNG.standard_normal((3, 6)), np.array([[0, 2], [2, 2], [1, 0], [0, 0], [2, 1]])


def grouped(x: np.ndarray, w: np.ndarray, groups: np.ndarray, bias: Any = None) -> np.ndarray:
    """Rows times the matrices that are gathered for them."""
    y = np.einsum("mk,mskn->msn", x.astype(np.float64), w.astype(np.float64)[groups])
    return (y if bias is None else y + bias[groups]).astype(x.dtype)


CASES = [
    *(
        Case(
            "GroupedMatMul",
            29,
            [TOKENS.astype(dtype), GROUPS.astype(dtype), CHOSEN.astype(kind), *bias],
            grouped,
            name=f"{np.dtype(dtype)}{len(bias)}",
            rtol=rtol,
            atol=rtol,
        )
        for dtype, rtol in [(np.float32, 1e-5), (np.float64, 1e-12), (np.float16, 4e-3)]
        for kind in (np.int32, np.int64)
        for bias in ([], [BIASES.astype(dtype)])
        if kind == np.int64 or not bias
    ),
    Case("MatMul", 1, [A, B], in64(np.matmul)),
    Case("MatMul", 1, [STACK, STACK.swapaxes(1, 2)], in64(by_hand), name="stack"),
    Case("MatMul", 1, [STACK, B], in64(np.matmul), name="stack-matrix"),
    Case("MatMul", 1, [STACK[..., :0], B[:0]], np.zeros((2, 3, 5), np.float32), name="empty"),
    Case("MatMul", 1, [A[0], B], in64(np.matmul), name="vector"),
    Case("MatMul", 1, [A[0], B[:, 0]], in64(np.matmul), name="vectors"),
    Case("MatMul", 9, [I32, J32], wrapping),
    Case("MatMul", 13, [A.astype(BF16), B.astype(BF16)], in64(np.matmul), rtol=2**-8),
    Case("MatMul", 13, [A.astype(np.float16), B.astype(np.float16)], in64(np.matmul), rtol=2**-10),
    Case("Gemm", 1, [A, B, FULL], in64(lambda a, b, c: a @ b + c)),
    Case("Gemm", 1, [A, B, ROW], in64(lambda a, b, c: a @ b + c), {"broadcast": 1}, name="row"),
    Case(
        "Gemm",
        7,
        [A.T, B.T, FULL[:, :1]],
        in64(lambda a, b, c: 0.5 * a.T @ b.T - 2 * c),
        {"alpha": 0.5, "beta": -2.0, "transA": 1, "transB": 1},
    ),
    Case("Gemm", 9, [I32, J32, J32[0]], lambda a, b, c: wrapping(a, b) + c),
    Case("Gemm", 9, [I32 % 9, J32 % 7], lambda a, b: (a @ b) // 2, {"alpha": 0.5}, name="half"),
    Case("Gemm", 11, [A, B], in64(np.matmul)),
    Case("Gemm", 13, [A, B, ROW * np.inf], in64(lambda a, b, _: a @ b), {"beta": 0.0}),
    Case("Gemm", 13, [A.astype(BF16), B.astype(BF16)], in64(np.matmul), rtol=2**-8, name="bf16"),
    Case(
        "MatMulInteger",
        10,
        [U8, I8, ROWS, COLUMNS],
        lambda a, b, p, q: wrapping(a - p[:, None].astype(int), b - q.astype(int)),
        name="rows-columns",
    ),
    Case("MatMulInteger", 10, [U8[:, :9], I8[:9]], lambda a, b: wrapping(a, b), name="short"),
    Case("MatMulInteger", 10, [U8[0], I8], lambda a, b: wrapping(a[None], b)[0], name="vector"),
    Case(
        "QLinearMatMul",
        10,
        [
            *(I8[:4].T, *scalars(np.float32(0.25), np.int8(3))),
            *(I8[4:8], *scalars(np.float32(0.5), np.int8(-5))),
            *scalars(np.float32(32), np.int8(7)),
        ],
        quantized(I8[:4].T, I8[4:8], 0.25 * 0.5 / 32).astype(np.int8),
    ),
    Case(
        "QLinearMatMul",
        10,
        [
            *(U8, np.float32([1, 2, 4]), ROWS),
            *(I8, np.float32([1, 2, 3, 4, 5]), COLUMNS),
            *scalars(np.float32(2**16), np.uint8(100)),
        ],
        quantized_rows(2.0**-16),
        name="rows-columns",
    ),
    Case(
        "QLinearMatMul",
        21,
        [
            *(np.eye(2).astype(ml_dtypes.float8_e4m3fn), *scalars(np.float32(2))),
            np.zeros((), ml_dtypes.float8_e4m3fn),
            *(np.float32([[1, 300], [2, 3]]).astype(ml_dtypes.float8_e4m3fn),),
            *scalars(np.float32(1), np.zeros((), ml_dtypes.float8_e4m3fn)),
            *scalars(np.float32(1), np.zeros((), ml_dtypes.float8_e4m3fn)),
        ],
        np.float32([[2, 448], [4, 6]]).astype(ml_dtypes.float8_e4m3fn),
        name="float8",
    ),
    Case("Einsum", 12, [A, B], in64(np.matmul), {"equation": "ij,jk"}),
    Case(
        "Einsum",
        12,
        [STACK, STACK],
        in64(lambda a, b: by_hand(a, b.swapaxes(1, 2))),
        {"equation": "bid , bjd -> bij"},
        name="scores",
    ),
    Case(
        "Einsum",
        12,
        [A, B, ROW],
        in64(lambda a, b, c: a @ b @ c),
        {"equation": "ij,jk,k->i"},
        name="chain",
    ),
    Case("Einsum", 12, [U8], lambda a: np.uint8(a.sum() % 256), {"equation": "ij->"}, name="wrap"),
    Case("Einsum", 12, [I8], I8.T, {"equation": "ab->ba"}, name="transpose"),
    Case("Det", 11, [np.float64([[1, 2], [3, 4]])], np.float64(-2)),
    Case("Det", 11, [np.zeros((2, 0, 0), np.float32)], np.ones(2, np.float32), name="empty"),
    Case("Det", 22, [np.float32([[[2, 1], [1, 2]]] * 2).astype(BF16)], np.array([3, 3], BF16)),
]
