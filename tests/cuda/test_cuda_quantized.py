"""The CUDA kernels of quantized matrices, compiled for the host, against formulas in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_calls import BFLOAT16, EPSILON, FLOATS, chosen, close, draw, needs_compiler

from tenonnx_cuda.quantized import nbits


def packed(values: Any, bits: int) -> Any:
    """Elements as they are stored, the first in the low bits."""
    each = 8 // bits
    flat = values.astype(np.int64).reshape(-1) & ((1 << bits) - 1)
    flat = np.concatenate([flat, np.zeros(-flat.size % each, np.int64)]).reshape(-1, each)
    return (flat << (np.arange(each) * bits)).sum(1).astype(np.uint8)


@needs_compiler
@pytest.mark.parametrize(
    ("dtype", "bits", "zeros"),
    [
        (np.float32, 4, "packed"),
        (np.float32, 4, None),
        (np.float32, 8, "packed"),
        (np.float32, 2, "float"),
        (np.float16, 4, "packed"),
        (BFLOAT16, 4, "float"),
    ],
    ids=str,
)
@pytest.mark.parametrize(
    ("count", "capability"), [(3, (7, 5)), (20, (7, 5)), (20, (8, 0))], ids=str
)
def test_matmul_nbits(
    dtype: Any, bits: int, zeros: str | None, count: int, capability: tuple[int, int]
) -> None:
    check_matmul_nbits(dtype, bits, zeros, count, N=21, K=96, capability=capability)


@needs_compiler
@pytest.mark.parametrize(
    ("dtype", "bits", "count"),
    [(np.float32, 4, 1), (np.float16, 8, 2), (BFLOAT16, 2, 17)],
    ids=str,
)
def test_rows_that_are_longer_than_what_is_staged(dtype: Any, bits: int, count: int) -> None:
    check_matmul_nbits(dtype, bits, "packed", count, N=18, K=512 // bits * 40 + 64)


@needs_compiler
@pytest.mark.parametrize(("dtype", "count"), [(np.float16, 70), (np.float32, 23)], ids=str)
def test_blocks_share_rows_of_x(dtype: Any, count: int) -> None:
    check_matmul_nbits(dtype, 4, None, count, N=18, K=160)


@needs_compiler
@pytest.mark.parametrize("size", [64, 512, 1024])
@pytest.mark.parametrize("zeros", ["packed", None])
def test_scales_of_long_blocks(size: int, zeros: str | None) -> None:
    check_matmul_nbits(np.float16, 4, zeros, 1, N=18, K=1024, size=size)


def check_matmul_nbits(
    dtype: Any,
    bits: int,
    zeros: str | None,
    count: int,
    *,
    N: int,
    K: int,
    size: int = 32,
    **device: Any,
) -> None:
    generator = np.random.default_rng(bits)
    levels = generator.integers(0, 1 << bits, (N, K))
    scales = generator.uniform(0.5, 1.5, (N, K // size)).astype(dtype)
    middle = np.full((N, K // size), 1 << (bits - 1))
    zero = middle if zeros is None else generator.integers(0, 1 << bits, (N, K // size))
    stored = None
    if zeros == "packed":
        stored = np.stack([packed(row, bits) for row in zero])
    elif zeros == "float":
        stored = zero.astype(dtype)
    spread = [np.repeat(a.astype(np.float64), size, 1) for a in (zero, scales)]
    x = draw(0, 2, count, K, dtype=dtype)[:1]
    expected = x.astype(np.float64) @ ((levels - spread[0]) * spread[1]).T
    run = chosen("MatMulNBits", 1, domain="com.microsoft", K=K, N=N, bits=bits, block_size=size,
                 **device)  # fmt: skip
    y = run(x, packed(levels, bits).reshape(N, K // size, -1), scales, stored)
    close(y, expected, dtype)


@needs_compiler
@pytest.mark.parametrize(("dtype", "bits", "count"), [
    (np.float32, 4, 1), (np.float16, 4, 37), (np.float16, 8, 3), (BFLOAT16, 2, 9),
    (BFLOAT16, 8, 40),
], ids=str)  # fmt: skip
def test_columns_in_slices(dtype: Any, bits: int, count: int) -> None:
    """A matrix [K, N] that is longer than its warps take at once, and ends within a block."""
    generator = np.random.default_rng(bits)
    K, N, size = 1056, 256 // bits + 32, 32
    levels = generator.integers(0, 1 << bits, (K, N))
    scales = generator.uniform(0.5, 1.5, (K // size, N)).astype(dtype)
    zero = generator.integers(0, 1 << bits, (K // size, N))
    W = (levels - np.repeat(zero, size, 0)) * np.repeat(scales.astype(np.float64), size, 0)
    run = chosen("DequantizeMatMul", 1, domain="ai.tenonnx", bits=bits, signed=0, rows=K,
                 columns=N, axis=0, block_size=size, transposed=0)  # fmt: skip
    x = draw(0, count, K, dtype=dtype)
    y = run(x, packed(levels, bits), scales, packed(zero, bits))
    close(y, x.astype(np.float64) @ W, dtype)


@needs_compiler
def test_an_infinite_float32_is_infinite_in_parts() -> None:
    x = np.zeros((1, 32), np.float32)
    x[0, 3] = np.inf
    run = chosen("MatMulNBits", 1, domain="com.microsoft", K=32, N=2, bits=4, block_size=32)
    levels = np.full((2, 32), 8)
    levels[:, 3] = 9, 7
    y = run(x, packed(levels, 4).reshape(2, 1, 16), np.ones((2, 1), np.float32))
    np.testing.assert_array_equal(y, [[np.inf, -np.inf]])


@needs_compiler
@pytest.mark.parametrize(("axis", "size"), [(-1, 0), (0, 0), (1, 0), (0, 16), (1, 16)])
@pytest.mark.parametrize("transposed", [0, 1])
@pytest.mark.parametrize(
    ("bits", "signed", "capability"), [(4, 1, (7, 5)), (8, 0, (7, 5)), (4, 1, (8, 0))], ids=str
)
def test_dequantize_matmul(
    axis: int, size: int, transposed: int, bits: int, signed: int, capability: tuple[int, int]
) -> None:
    generator = np.random.default_rng(0)
    R, C = 64, 96
    low = -(1 << (bits - 1)) if signed else 0
    levels = generator.integers(low, low + (1 << bits), (R, C))
    shape = {(-1, 0): (), (0, 0): (R,), (1, 0): (C,), (0, 16): (4, C), (1, 16): (R, 6)}[axis, size]
    scales = generator.uniform(0.5, 1.5, shape).astype(np.float32)
    zero = generator.integers(low, low + (1 << bits), shape)

    def spread(a: Any) -> Any:
        if size:
            return np.repeat(a, size, axis)
        return a[:, None] if axis == 0 else a

    W = (levels - spread(zero)) * spread(scales.astype(np.float64))
    W = W.T if transposed else W
    run = chosen(
        "DequantizeMatMul", 1, domain="ai.tenonnx", bits=bits, signed=signed, rows=R, columns=C,
        axis=axis, block_size=size, transposed=transposed, capability=capability,
    )  # fmt: skip
    for count in (1, 2, 50):
        x = draw(count, count, W.shape[0])
        y = run(x, packed(levels, bits), scales, packed(zero, bits))
        close(y, x.astype(np.float64) @ W, np.float32)
    tiles, nbits.FLOAT_TILE_BYTES = nbits.FLOAT_TILE_BYTES, 16 * C * 4  # type: ignore[misc]  # to see several
    try:
        y = run(draw(9, 50, W.shape[0]), packed(levels, bits), scales, packed(zero, bits))
    finally:
        nbits.FLOAT_TILE_BYTES = tiles  # type: ignore[misc]  # as it was
    close(y, draw(9, 50, W.shape[0]).astype(np.float64) @ W, np.float32)


@needs_compiler
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_parts_of_sums_are_not_rounded(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """128 tiles, each of which would lose the same to 16 bits."""
    rows, columns = 2048, 8
    monkeypatch.setattr(nbits, "FLOAT_TILE_BYTES", 16 * columns * np.dtype(dtype).itemsize)
    run = chosen(
        "DequantizeMatMul", 1, domain="ai.tenonnx", bits=8, signed=1, rows=rows, columns=columns,
        axis=-1, block_size=0, transposed=0, capability=(7, 5),
    )  # fmt: skip
    x, levels = np.full((50, rows), 0.0375, dtype), np.ones((rows, columns), np.int8)
    y = run(x, levels.view(np.uint8).reshape(-1), np.ones((), np.float32))
    expected = x.astype(np.float64) @ levels
    np.testing.assert_allclose(y.astype(np.float64), expected, rtol=float(EPSILON[y.dtype]))
