from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from running import Watch, run
from test_jit_conv import ALONE, DENSE, Case, places
from windows_oracle import convolve, seen

from models import node
from tenonnx_cpu.int8.conv_weights import CONV, DEPTHWISE
from tenonnx_cpu.int8.pooling import AVERAGE, MAX_POOL
from tenonnx_cpu.int8.qlinear_binary import ADD, MULTIPLY

KINDS = {"x": TensorProto.UINT8, "y": TensorProto.UINT8}
BYTE_KINDS = {np.uint8: TensorProto.UINT8, np.int8: TensorProto.INT8}
CASES = [case for case in (*DENSE, ALONE[1], ALONE[4]) if np.prod(case.weights) < 120_000]


def quantize(x: Any, scale: float, zero: int, dtype: Any) -> Any:
    limits = np.iinfo(dtype)
    return np.clip(np.rint(x / scale) + zero, limits.min, limits.max)


def bytes_of(shape: Any, dtype: Any, seed: int = 0) -> Any:
    limits = np.iinfo(dtype)
    rng = np.random.default_rng(seed)
    return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)


def codes(case: Case, dtype: Any, per_channel: bool) -> dict[str, Any]:
    count = np.prod(case.weights[1:])
    scale = np.full(case.rows if per_channel else 1, 0.01, np.float32)
    if per_channel:
        scale *= np.linspace(0.5, 2, case.rows, dtype=np.float32)
    return {
        "w": bytes_of(case.weights, np.int8, 1),
        "xs": np.float32(0.02),
        "xz": np.array(3 if dtype is np.int8 else 131, dtype),
        "ws": scale if per_channel else scale[0],
        "wz": np.zeros(case.rows if per_channel else (), np.int8),
        "ys": np.float32(0.02 * 0.01 * 74 * 74 * np.sqrt(count) / 50),
        "yz": np.array(-7 if dtype is np.int8 else 117, dtype),
        "b": np.random.default_rng(2).integers(-9000, 9000, case.rows, np.int32),
        "bs": np.float32(0.02) * scale,
    }


def expected(case: Case, x: Any, given: dict[str, Any], least: float = -np.inf) -> Any:
    """The result before it is rounded."""
    wide = (x.astype(np.float64) - float(given["xz"])) * np.float64(given["xs"])
    by_row = np.float64(given["ws"]).reshape(-1, *(1,) * (len(case.weights) - 1))
    y = convolve(wide, given["w"] * by_row, *places(case))
    bias = given["b"] * np.broadcast_to(np.float64(given["bs"]), case.rows)
    return np.maximum(y + bias.reshape(-1, *(1,) * (x.ndim - 2)), least)


def kernel_of(case: Case) -> Any:
    return DEPTHWISE if 1 < case.group == case.x[1] == case.rows else CONV


def check(y: Any, real: Any, given: dict[str, Any]) -> None:
    """Every byte is the rounded result, but for numbers that are all but half way between two."""
    dtype = given["yz"].dtype
    ratio = real / float(given["ys"])
    wanted = quantize(real, float(given["ys"]), int(given["yz"]), dtype)
    differing = y.astype(int) != wanted
    assert y.dtype == dtype
    assert np.abs(y.astype(int) - wanted).max() <= 1
    assert np.all(np.abs(ratio[differing] % 1 - 0.5) < 1e-3)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("per_channel", [False, True])
def test_convolution_between_codes(
    case: Case, dtype: Any, per_channel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Watch(kernel_of(case), monkeypatch)
    given = codes(case, dtype, per_channel)
    x = bytes_of(case.x, dtype)
    nodes = [
        node("DequantizeLinear", "x xs xz", "xf"),
        node("DequantizeLinear", "w ws wz", "wf", axis=0),
        node("DequantizeLinear", "b bs", "bf", axis=0),
        node("Conv", "xf wf bf", "c", **case.attributes),
        node("Relu", "c", "r"),
        node("QuantizeLinear", "r ys yz", "y"),
    ]
    kinds = dict.fromkeys("xy", BYTE_KINDS[dtype])
    threads = 4 if per_channel else 1
    y = run(nodes, {"x": x}, "y", given, threads=threads, kinds=kinds)
    assert kernel.calls == 1
    check(y, expected(case, x, given, 0.0), given)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_qlinear_conv(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Watch(kernel_of(case), monkeypatch)
    given = codes(case, np.uint8, True)
    x = bytes_of(case.x, np.uint8)
    nodes = [node("QLinearConv", "x xs xz w ws wz ys yz b", "y", **case.attributes)]
    y = run(nodes, {"x": x}, "y", given, kinds=KINDS)
    assert kernel.calls == 1
    check(y, expected(case, x, given), given)


def test_extreme_bytes_do_not_saturate_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Watch(CONV, monkeypatch)
    case = Case((1, 1030, 5, 7), 17, (1, 1))
    given = codes(case, np.uint8, False)
    given["w"] = np.full(case.weights, -128, np.int8)
    given["w"][::2] = 127
    given["xz"], given["ys"] = np.uint8(0), np.float32(500)
    x = np.full(case.x, 255, np.uint8)
    nodes = [node("QLinearConv", "x xs xz w ws wz ys yz b", "y")]
    y = run(nodes, {"x": x}, "y", given, kinds=KINDS)
    assert kernel.calls == 1
    check(y, expected(case, x, given), given)


def test_image_that_two_read_is_dequantized_for_neither(monkeypatch: pytest.MonkeyPatch) -> None:
    conv, add = Watch(CONV, monkeypatch), Watch(ADD, monkeypatch)
    case = Case((1, 8, 9, 9), 8, (3, 3), pads=(1, 1, 1, 1))
    given = codes(case, np.uint8, True)
    x = bytes_of(case.x, np.uint8)
    nodes = [
        node("DequantizeLinear", "x xs xz", "xf"),
        node("DequantizeLinear", "w ws wz", "wf", axis=0),
        node("DequantizeLinear", "b bs", "bf", axis=0),
        node("Conv", "xf wf bf", "c", **case.attributes),
        node("QuantizeLinear", "c ys yz", "q"),
        node("DequantizeLinear", "q ys yz", "qf"),
        node("Add", "qf xf", "s"),
        node("QuantizeLinear", "s ss yz", "y"),
    ]
    given["ss"] = np.float32(float(given["ys"]) * 1.1)
    y = run(nodes, {"x": x}, "y", given, kinds=KINDS)
    assert (conv.calls, add.calls) == (1, 1)
    first = quantize(expected(case, x, given), float(given["ys"]), 117, np.uint8)
    total = (first - 117) * float(given["ys"]) + (x - 131.0) * float(given["xs"])
    wanted = quantize(total, float(given["ss"]), 117, np.uint8)
    assert np.mean(y == wanted) > 0.995
    assert np.abs(y.astype(int) - wanted).max() <= 1


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("shape", [(1, 3, 5, 7), (2, 64, 33, 21)])
def test_sum(dtype: Any, shape: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Watch(ADD, monkeypatch)
    a, b = bytes_of(shape, dtype), bytes_of(shape, dtype, 1)
    given = {
        "as": np.float32(0.037), "az": np.array(5, dtype),
        "bs": np.float32(0.011), "bz": np.array(9, dtype),
        "ys": np.float32(0.041), "yz": np.array(77, dtype),
    }  # fmt: skip
    nodes = [
        node("DequantizeLinear", "a as az", "af"),
        node("DequantizeLinear", "b bs bz", "bf"),
        node("Add", "af bf", "s"),
        node("QuantizeLinear", "s ys yz", "y"),
    ]
    kinds = dict.fromkeys("aby", BYTE_KINDS[dtype])
    y = run(nodes, {"a": a, "b": b}, "y", given, kinds=kinds, threads=4)
    assert kernel.calls == 1
    real = (a - 5.0) * np.float64(given["as"]) + (b - 9.0) * np.float64(given["bs"])
    check(y, real, given)


@pytest.mark.parametrize("shape", [(1, 30, 5, 7), (2, 64, 33, 21)])
def test_factors_of_channels(shape: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Watch(MULTIPLY, monkeypatch)
    a, b = bytes_of((*shape[:2], 1, 1), np.uint8), bytes_of(shape, np.uint8, 1)
    given = {
        "as": np.float32(0.037), "az": np.uint8(5), "bs": np.float32(0.011), "bz": np.uint8(9),
        "ys": np.float32(0.041), "yz": np.uint8(77),
    }  # fmt: skip
    nodes = [
        node("DequantizeLinear", "a as az", "af"),
        node("DequantizeLinear", "b bs bz", "bf"),
        node("Mul", "af bf", "m"),
        node("QuantizeLinear", "m ys yz", "y"),
    ]
    kinds = dict.fromkeys("aby", BYTE_KINDS[np.uint8])
    y = run(nodes, {"a": a, "b": b}, "y", given, kinds=kinds, threads=4)
    assert kernel.calls == 1
    real = (a - 5.0) * np.float64(given["as"]) * ((b - 9.0) * np.float64(given["bs"]))
    check(y, real, given)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_maximum(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Watch(MAX_POOL, monkeypatch)
    x = bytes_of((2, 5, 33, 41), dtype)
    given = {"s": np.float32(0.1), "z": np.array(3, dtype)}
    nodes = [
        node("DequantizeLinear", "x s z", "xf"),
        node("MaxPool", "xf", "m", kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1)),
        node("QuantizeLinear", "m s z", "y"),
    ]
    y = run(nodes, {"x": x}, "y", given, kinds=dict.fromkeys("xy", BYTE_KINDS[dtype]), threads=4)
    assert kernel.calls == 1
    windows = seen(x, (3, 3), (2, 2), (1, 1), (1, 1, 1, 1), -np.inf)
    assert np.array_equal(y, windows.max(axis=(-2, -1)))


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_mean(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Watch(AVERAGE, monkeypatch)
    x = bytes_of((2, 130, 7, 7), dtype)
    given = {
        "s": np.float32(0.1), "z": np.array(3, dtype),
        "ys": np.float32(0.015), "yz": np.array(60, dtype),
    }  # fmt: skip
    nodes = [
        node("DequantizeLinear", "x s z", "xf"),
        node("GlobalAveragePool", "xf", "m"),
        node("QuantizeLinear", "m ys yz", "y"),
    ]
    y = run(nodes, {"x": x}, "y", given, kinds=dict.fromkeys("xy", BYTE_KINDS[dtype]))
    assert kernel.calls == 1
    real = (x - 3.0).mean(axis=(2, 3), keepdims=True) * np.float64(given["s"])
    check(y, real, given)
