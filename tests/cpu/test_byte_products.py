from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from running import Watch, captures, require_kernels, run, session

from models import node
from tenonnx_cpu.int8.product import BYTE_GEMM
from tenonnx_cpu.int8.quantizing import BY_RANGE, DEQUANTIZE, QUANTIZE

require_kernels()

CONTRIB = {"": 21, "com.microsoft": 1}
TYPES = (np.uint8, np.int8)
KINDS = {np.uint8: TensorProto.UINT8, np.int8: TensorProto.INT8}
SHAPES = [
    (1, 8, 32),
    (3, 5, 3),
    (2, 16, 16),
    (9, 33, 1),
    (5, 1, 7),
    (20, 64, 31),
    (14, 65, 40),
    (29, 130, 100),
    (70, 16, 31),
    (33, 260, 515),
    (1, 37, 200),
    (4, 66, 4300),
]
"""Rows, depth and columns, whole panels and fours or not, packed or streamed."""


def bytes_of(shape: Any, dtype: Any, seed: int = 0) -> Any:
    limits = np.iinfo(dtype)
    rng = np.random.default_rng(seed)
    return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)


def exact(a: Any, b: Any, a_zero: Any = 0, b_zero: Any = 0) -> Any:
    return (a.astype(np.int64) - a_zero) @ (b.astype(np.int64) - b_zero)


@pytest.mark.parametrize("b_type", TYPES)
@pytest.mark.parametrize("a_type", TYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_sums_are_exact(
    shape: Any, a_type: Any, b_type: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Watch(BYTE_GEMM, monkeypatch)
    rows, depth, columns = shape
    a, b = bytes_of((rows, depth), a_type), bytes_of((depth, columns), b_type, 1)
    given = {"az": np.array(7, a_type), "bz": bytes_of(columns, b_type, 2)}
    kinds = {"a": KINDS[a_type], "b": KINDS[b_type], "y": TensorProto.INT32}
    nodes = [node("MatMulInteger", "a b az bz", "y")]
    for weights, feeds in ((given | {"b": b}, {"a": a}), (given, {"a": a, "b": b})):
        y = run(nodes, feeds, "y", weights, kinds=kinds, threads=4)
        assert np.array_equal(y, exact(a, b, 7, given["bz"].astype(int)))
    assert kernel.calls == 2


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    "shapes", [((2, 3, 17, 40), (2, 3, 40, 36)), ((3, 5, 8), (2, 1, 8, 33)), ((4, 9, 7), (4, 7, 5))]
)
def test_sums_of_stacks(shapes: Any, turned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Watch(BYTE_GEMM, monkeypatch)
    a, b = bytes_of(shapes[0], np.int8), bytes_of(shapes[1], np.uint8, 1)
    kinds = {"a": TensorProto.INT8, "b": TensorProto.UINT8, "y": TensorProto.INT32}
    given = {"az": np.int8(-9), "bz": np.uint8(130)}
    nodes = [node("MatMulInteger", "a b az bz", "y")]
    feed = b
    if turned:
        order = [*range(b.ndim - 2), b.ndim - 1, b.ndim - 2]
        nodes = [node("Transpose", "t", "b", perm=order), *nodes]
        feed = np.ascontiguousarray(b.swapaxes(-1, -2))
        kinds["t"] = kinds["b"]
    y = run(nodes, {"a": a, "t" if turned else "b": feed}, "y", given, kinds=kinds, threads=2)
    assert kernel.calls == 1
    assert np.array_equal(y, exact(a, b, -9, 130))


def test_extreme_bytes_do_not_saturate(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Watch(BYTE_GEMM, monkeypatch)
    a, b = np.full((20, 4096), 255, np.uint8), np.full((4096, 64), -128, np.int8)
    b[:, ::2] = 127
    kinds = {"a": TensorProto.UINT8, "y": TensorProto.INT32}
    y = run([node("MatMulInteger", "a b", "y")], {"a": a}, "y", {"b": b}, kinds=kinds)
    assert kernel.calls == 1
    assert np.array_equal(y, exact(a, b))


def test_a_zero_point_per_row_is_left_to_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Watch(BYTE_GEMM, monkeypatch)
    a, b = bytes_of((4, 8), np.uint8), bytes_of((8, 40), np.uint8, 1)
    given = {"b": b, "az": np.array([1, 2, 3, 4], np.uint8)}
    kinds = {"a": TensorProto.UINT8, "y": TensorProto.INT32}
    y = run([node("MatMulInteger", "a b az", "y")], {"a": a}, "y", given, kinds=kinds)
    assert kernel.calls == 0
    assert np.array_equal(y, exact(a, b, np.array([[1], [2], [3], [4]])))


def rounded(real: Any, zero: Any) -> Any:
    limits = np.iinfo(zero.dtype)
    return np.clip(np.rint(real) + int(zero), limits.min, limits.max).astype(zero.dtype)


@pytest.mark.parametrize("columns", [20, 77])
@pytest.mark.parametrize("per_column", [False, True])
@pytest.mark.parametrize("dtype", TYPES)
def test_products_as_bytes(
    dtype: Any, per_column: bool, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Watch(BYTE_GEMM, monkeypatch)
    a, b = bytes_of((31, 50), dtype), bytes_of((50, columns), np.int8, 1)
    # Powers of two, so that nothing but the last rounding rounds.
    scale = np.full(columns, 2.0**-6, np.float32) if per_column else np.array(2.0**-6, np.float32)
    if per_column:
        scale[::3] *= 2
    given = {
        "as": np.float32(0.25), "az": np.array(5, dtype), "b": b, "bs": scale,
        "bz": np.zeros(columns if per_column else (), np.int8),
        "ys": np.float32(2.0**-2 * 16), "yz": np.array(11, dtype),
        "c": np.random.default_rng(2).integers(-9000, 9000, columns, np.int32),
    }  # fmt: skip
    kinds = dict.fromkeys("ay", KINDS[dtype])
    nodes = [node("QLinearMatMul", "a as az b bs bz ys yz", "y")]
    real = exact(a, b, 5) * np.float64(scale) / 16
    y = run(nodes, {"a": a}, "y", given, kinds=kinds)
    assert np.array_equal(y, rounded(real, given["yz"]))
    gemm = node("QGemm", "a as az b bs bz c ys yz", "y", domain="com.microsoft", transB=1)
    turned = given | {"b": np.ascontiguousarray(b.T)}
    y = run([gemm], {"a": a}, "y", turned, kinds=kinds, domains=CONTRIB)
    added = (exact(a, b, 5) + given["c"]) * np.float64(scale) / 16
    assert np.array_equal(y, rounded(added, given["yz"]))
    gemm = node("QGemm", "a as az b bs bz c", "y", domain="com.microsoft", alpha=2.0)
    y = run([gemm], {"a": a}, "y", given, kinds={"a": KINDS[dtype]}, domains=CONTRIB)
    assert np.array_equal(y, (added * 16 * 0.25 * 2).astype(np.float32))
    assert kernel.calls == 3


@pytest.mark.parametrize("with_bias", [False, True])
def test_products_as_real_numbers(with_bias: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Watch(BYTE_GEMM, monkeypatch)
    a, b = bytes_of((9, 40), np.uint8), bytes_of((40, 70), np.uint8, 1)
    rng = np.random.default_rng(0)
    given = {
        "as": np.float32(0.037), "az": np.uint8(99), "b": b, "bz": bytes_of(70, np.uint8, 3),
        "bs": rng.uniform(0.01, 0.02, 70).astype(np.float32),
        "c": rng.standard_normal(70, np.float32),
    }  # fmt: skip
    inputs = "a b as bs az bz" + (" c" if with_bias else "")
    nodes = [node("MatMulIntegerToFloat", inputs, "y", domain="com.microsoft")]
    kinds = {"a": TensorProto.UINT8}
    y = run(nodes, {"a": a}, "y", given, kinds=kinds, domains=CONTRIB)
    sums = exact(a, b, 99, given["bz"].astype(int)).astype(np.float32)
    wanted = sums * (given["as"] * given["bs"]) + (given["c"] if with_bias else np.float32(0))
    assert np.array_equal(y, wanted)
    nodes = [
        node("MatMulInteger", "a b az bz", "i"),
        node("Cast", "i", "f", to=TensorProto.FLOAT),
        node("Mul", "as bs", "s"),
        node("Mul", "s f", "y" if not with_bias else "m"),
        *([node("Add", "c m", "y")] if with_bias else []),
    ]
    y = run(nodes, {"a": a}, "y", given, kinds=kinds)
    assert np.array_equal(y, wanted)
    assert kernel.calls == 2


def codes_of(x: Any) -> Any:
    """Compute DynamicQuantizeLinear by the specification, in float32."""
    low, high = min(np.float32(0), x.min()), max(np.float32(0), x.max())
    scale = (high - low) / np.float32(255) or np.float32(1)
    zero = np.clip(np.rint(-low / scale), 0, 255).astype(np.uint8)
    return np.clip(np.rint(x / scale) + zero, 0, 255).astype(np.uint8), scale, zero


@pytest.mark.parametrize("size", [3, 65, 70_001])
@pytest.mark.parametrize("shift", [-9.0, 0.0, 9.0])
def test_dynamic_codes(size: int, shift: float, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Watch(BY_RANGE, monkeypatch)
    x = np.random.default_rng(0).standard_normal(size, np.float32) + np.float32(shift)
    kinds = {"y": TensorProto.UINT8, "z": TensorProto.UINT8}
    made = run([node("DynamicQuantizeLinear", "x", "y s z")], {"x": x}, "y s z", kinds=kinds)
    assert kernel.calls == 1
    for found, wanted in zip(made, codes_of(x), strict=True):
        assert np.array_equal(found, wanted)
        assert found.dtype == wanted.dtype


def test_dynamic_codes_of_zeros() -> None:
    kinds = {"y": TensorProto.UINT8, "z": TensorProto.UINT8}
    nodes = [node("DynamicQuantizeLinear", "x", "y s z")]
    y, scale, zero = run(nodes, {"x": np.zeros(100, np.float32)}, "y s z", kinds=kinds)
    assert not y.any()
    assert (scale, zero) == (1, 0)


def test_dynamic_codes_of_an_infinite_range_are_numpys() -> None:
    kinds = {"y": TensorProto.UINT8, "z": TensorProto.UINT8}
    nodes = [node("DynamicQuantizeLinear", "x", "y s z")]
    x = np.linspace(0, 3, 100, dtype=np.float32)
    one = session(nodes, {"x": x}, "y s z", kinds=kinds)
    for end in (3, 4, 5, np.inf, 6):
        x[-1] = end
        with np.errstate(invalid="ignore"):
            found, wanted = one.run(None, {"x": x}), codes_of(x)
        assert found[1] == wanted[1]
        assert np.isinf(end) or np.array_equal(found[0], wanted[0])


def test_product_with_dynamic_codes(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Watch(BYTE_GEMM, monkeypatch)
    x, b = (
        np.random.default_rng(0).standard_normal((17, 48), np.float32),
        bytes_of((48, 70), np.int8),
    )
    given = {"b": b, "bs": np.float32(0.01), "bz": np.int8(3), "c": np.ones(70, np.float32)}
    nodes = [node("DynamicQuantizeMatMul", "x b bs bz c", "y", domain="com.microsoft")]
    y = run(nodes, {"x": x}, "y", given, domains=CONTRIB)
    codes, scale, zero = codes_of(x)
    sums = exact(codes, b, int(zero), 3).astype(np.float32)
    assert kernel.calls == 1
    assert np.array_equal(y, sums * (scale * given["bs"]) + given["c"])


@pytest.mark.parametrize("dtype", TYPES)
def test_codes_and_back(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    there, back = Watch(QUANTIZE, monkeypatch), Watch(DEQUANTIZE, monkeypatch)
    x = np.random.default_rng(0).standard_normal((3, 257, 61), np.float32) * 40
    x[0, 0, :5] = np.inf, -np.inf, 1e30, 0.15, 0.25
    given = {"s": np.float32(0.1), "z": np.array(3, dtype)}
    nodes = [node("QuantizeLinear", "x s z", "y"), node("DequantizeLinear", "y s z", "w")]
    y, w = run(nodes, {"x": x}, "y w", given, kinds={"y": KINDS[dtype]}, threads=4)
    assert np.array_equal(y, rounded(x / given["s"], given["z"]))
    assert np.array_equal(w, (y.astype(np.float32) - np.float32(3)) * given["s"])
    assert (there.calls, back.calls) == (1, 1)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("shape", [(2, 24, 30, 41), (1, 9, 300, 200), (13, 70, 1, 2)], ids=str)
def test_codes_of_slices(
    shape: tuple[int, ...], channels_last: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that are apart are read where they are."""
    there = Watch(QUANTIZE, monkeypatch)
    x = np.random.default_rng(1).standard_normal(shape, np.float32)
    if channels_last:
        x = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    given = {"s": np.float32(0.02), "z": np.array(100, np.uint8)}
    x = x[:, 2:7]
    y = run([node("QuantizeLinear", "x s z", "y")], {"x": x}, "y", given, kinds={"y": 2}, threads=3)
    assert np.array_equal(y, rounded(x / given["s"], given["z"]))
    assert there.calls == 1


def test_bytes_times_constant_scales_are_captured() -> None:
    random = np.random.default_rng(1)
    a = random.integers(0, 99, (5, 16), np.uint8)
    b = random.integers(-99, 99, (16, 80), np.int8)
    weights = {"b": b, "r": np.float32(0.5), "s": np.full(80, 0.25, np.float32)}
    made = node("MatMulIntegerToFloat", "a b r s", "y", domain="com.microsoft")
    domains = {"com.microsoft": 1}
    one = session([made], {"a": a}, "y", weights, domains=domains, kinds={"a": TensorProto.UINT8})
    for _ in range(3):
        (y,) = one.run(None, {"a": a})
        np.testing.assert_array_equal(y, (a.astype(np.int64) @ b * 0.125).astype(np.float32))
    assert captures(one) == [1]
