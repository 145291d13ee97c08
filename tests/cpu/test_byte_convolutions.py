from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from running import Watch, run
from test_byte_products import KINDS, TYPES, bytes_of, rounded
from test_jit_conv import ALONE, Case, places
from windows_oracle import convolve

from models import node
from tenonnx_cpu.int8.conv_weights import CONV, DEPTHWISE

SLIDING = [
    case for case in ALONE if case.strides[-1] < 3 and case.dilations[-1] == 1
] + [
    Case((1, 70, 7, 7), 70, (3, 3), pads=(1, 1, 1, 1), group=70),
    Case((1, 5, 1, 3), 5, (3, 3), pads=(1, 1, 1, 1), group=5),
    Case((1, 3, 9, 70), 6, (3, 3), strides=(2, 2), pads=(0, 0, 1, 1), group=3),
    Case((1, 3, 9, 20), 3, (3, 3), pads=(1, 1, 1, 1), dilations=(2, 1), group=3),
]  # fmt: skip
DENSE = [
    Case((1, 16, 9, 11), 33, (1, 1)),
    Case((2, 5, 9, 14), 7, (3, 3), strides=(2, 1), pads=(1, 1, 0, 2), dilations=(1, 2)),
    Case((1, 30, 40), 8, (3,), (1,), (1, 1), (1,)),
    Case((1, 21, 5, 5), 300, (1, 1), strides=(2, 2)),
    Case((2, 6, 9, 8), 4, (3, 3), pads=(1, 0, 1, 2), group=2),
]
XZ = {np.uint8: 131, np.int8: 3}


def integers(case: Case, x_type: Any, w_type: Any) -> tuple[dict[str, Any], Any]:
    """What ConvInteger takes, and its result."""
    w_zero = 0 if w_type is np.int8 else 121
    given = {
        "x": bytes_of(case.x, x_type), "w": bytes_of(case.weights, w_type, 1),
        "xz": np.array(XZ[x_type], x_type), "wz": np.array(w_zero, w_type),
    }  # fmt: skip
    sums = convolve(given["x"] - float(XZ[x_type]), given["w"] - float(w_zero), *places(case))
    return given, sums


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("w_type", TYPES)
@pytest.mark.parametrize("x_type", TYPES)
@pytest.mark.parametrize("case", SLIDING + DENSE, ids=str)
def test_sums_of_windows(
    case: Case, x_type: Any, w_type: Any, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Watch(DEPTHWISE if case.group == case.x[1] > 1 else CONV, monkeypatch)
    given, sums = integers(case, x_type, w_type)
    x = given.pop("x")
    kinds = {"x": KINDS[x_type], "y": TensorProto.INT32}
    nodes = [node("ConvInteger", "x w xz wz", "y", **case.attributes)]
    y = run(nodes, {"x": x}, "y", given, kinds=kinds, threads=threads)
    assert kernel.calls == 1
    assert np.array_equal(y, sums)


@pytest.mark.parametrize("end", ["min", "max"])
@pytest.mark.parametrize("w_type", TYPES)
@pytest.mark.parametrize("case", [SLIDING[0], DENSE[0]], ids=str)
def test_zero_points_as_far_from_weights_as_can_be(case: Case, w_type: Any, end: str) -> None:
    given, _ = integers(case, np.uint8, w_type)
    x, ends = given.pop("x"), np.iinfo(w_type)
    given["wz"] = np.array(getattr(ends, end), w_type)
    given["w"].ravel()[:2] = ends.min, ends.max
    kinds = {"x": TensorProto.UINT8, "y": TensorProto.INT32}
    nodes = [node("ConvInteger", "x w xz wz", "y", **case.attributes)]
    y = run(nodes, {"x": x}, "y", given, kinds=kinds)
    sums = convolve(x - float(given["xz"]), given["w"] - float(given["wz"]), *places(case))
    assert np.array_equal(y, sums)


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("w_type", TYPES)
@pytest.mark.parametrize("case", [SLIDING[0], SLIDING[2], *DENSE], ids=str)
def test_sums_as_real_numbers(
    case: Case, w_type: Any, per_channel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Watch(DEPTHWISE if case.group == case.x[1] > 1 else CONV, monkeypatch)
    given, sums = integers(case, np.uint8, w_type)
    x = given.pop("x")
    tall = (case.rows, *(1,) * (x.ndim - 2))
    rng = np.random.default_rng(0)
    given |= {"as": np.float32(0.03), "low": np.float32(-2), "high": np.float32(6)}
    given["ws"] = rng.uniform(1e-4, 1e-3, tall if per_channel else ()).astype(np.float32)
    given["b"] = rng.standard_normal((1, *tall), np.float32)
    nodes = [
        node("Mul", "as ws", "s"),
        node("ConvInteger", "x w xz wz", "i", **case.attributes),
        node("Cast", "i", "f", to=TensorProto.FLOAT),
        node("Mul", "f s", "m"),
        node("Add", "m b", "c"),
        node("Clip", "c low high", "y"),
    ]
    kinds = {"x": TensorProto.UINT8}
    y = run(nodes, {"x": x}, "y", given, kinds=kinds, threads=2)
    real = sums * (np.float64(given["as"]) * given["ws"]) + given["b"]
    assert kernel.calls == 1
    assert np.allclose(y, np.clip(real, -2, 6), rtol=1e-6, atol=1e-6)
    assert y.dtype == np.float32


@pytest.mark.parametrize("w_type", TYPES)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("case", [*SLIDING, DENSE[0], DENSE[1]], ids=str)
def test_windows_between_codes(
    case: Case, dtype: Any, w_type: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Watch(DEPTHWISE if case.group == case.x[1] > 1 else CONV, monkeypatch)
    given, sums = integers(case, dtype, w_type)
    x = given.pop("x")
    # Scales are powers of two, so that nothing but the last rounding rounds.
    given |= {
        "xs": np.float32(2.0**-5), "ws": np.float32(2.0**-6), "bs": np.float32(2.0**-11),
        "ys": np.float32(2.0**-3), "yz": np.array(-7 if dtype is np.int8 else 117, dtype),
        "b": np.random.default_rng(2).integers(-9000, 9000, case.rows, np.int32),
        "low": np.float32(0), "high": np.float32(6),
    }  # fmt: skip
    kinds = dict.fromkeys("xy", KINDS[dtype])
    bias = given["b"].reshape(-1, *(1,) * (x.ndim - 2))
    real = (sums + bias) * 2.0**-11
    nodes = [node("QLinearConv", "x xs xz w ws wz ys yz b", "y", **case.attributes)]
    y = run(nodes, {"x": x}, "y", given, kinds=kinds)
    assert np.array_equal(y, rounded(real * 8, given["yz"]))
    nodes = [
        node("DequantizeLinear", "x xs xz", "xf"),
        node("DequantizeLinear", "w ws wz", "wf"),
        node("DequantizeLinear", "b bs", "bf"),
        node("Conv", "xf wf bf", "c", **case.attributes),
        node("Clip", "c low high", "r"),
        node("QuantizeLinear", "r ys yz", "y"),
    ]
    y = run(nodes, {"x": x}, "y", given, kinds=kinds, threads=4)
    assert np.array_equal(y, rounded(np.clip(real, 0, 6) * 8, given["yz"]))
    assert kernel.calls == 2
