from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from running import Watch, run, session
from test_byte_products import KINDS, TYPES, bytes_of, rounded
from test_jit_conv import ALONE, Case, places
from windows_oracle import convolve

import tenonnx
from models import model, node, value
from tenonnx_cpu.int8.conv_weights import CONV, DEPTHWISE

SLIDING = [
    *ALONE,
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
    """Inputs of ConvInteger, and its result."""
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
    kernel = Watch(DEPTHWISE if case.group == case.x[1] == case.rows > 1 else CONV, monkeypatch)
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
    kernel = Watch(DEPTHWISE if case.group == case.x[1] == case.rows > 1 else CONV, monkeypatch)
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


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize(
    ("x_scale", "w_scale", "y_scale"), [(0.1, 0.1, 0.2), (0.05, 0.02, 0.04), (1, 0.05, 8)]
)
def test_what_is_half_in_float32_is_rounded_as_onnxruntime_does(
    x_scale: float,
    w_scale: float,
    y_scale: float,
    compiled: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (1, 16, 16, 16), np.uint8)
    given = {
        "xs": np.float32(x_scale), "ws": np.float32(w_scale), "ys": np.float32(y_scale),
        "xz": np.uint8(120), "wz": np.int8(0), "yz": np.uint8(100),
        "w": rng.integers(-9, 9, (16, 16, 1, 1), np.int8),
        "b": rng.integers(-99, 99, 16, np.int32),
    }  # fmt: skip
    results = [value("y", TensorProto.UINT8, None)]
    nodes = [node("QLinearConv", "x xs xz w ws wz ys yz b", "y")]
    content = model(
        nodes, [value("x", TensorProto.UINT8, x.shape)], results, given, opset=21
    ).SerializeToString()
    reference = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    if not compiled:
        monkeypatch.setenv("TENONNX_JIT", "0")
    y, wanted = (
        made.run(None, {"x": x})[0] for made in (tenonnx.InferenceSession(content), reference)
    )
    assert np.array_equal(y, wanted)


@pytest.mark.parametrize("w_type", TYPES)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("case", [*SLIDING, DENSE[0], DENSE[1]], ids=str)
def test_windows_between_codes(
    case: Case, dtype: Any, w_type: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Watch(DEPTHWISE if case.group == case.x[1] == case.rows > 1 else CONV, monkeypatch)
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


def test_ranges_that_change_from_run_to_run() -> None:
    """Step are captured, and zero points and scales are read in each run."""
    case = Case((1, 8, 9, 11), 24, (3, 3), pads=(1, 1, 1, 1))
    given = {
        "w": bytes_of(case.weights, np.uint8, 1), "wz": np.array(121, np.uint8),
        "ws": np.float32(0.01),
        "b": np.random.default_rng(0).standard_normal((24, 1, 1), np.float32),
    }  # fmt: skip
    nodes = [
        node("DynamicQuantizeLinear", "x", "q s z"),
        node("ConvInteger", "q w z wz", "i", **case.attributes),
        node("Cast", "i", "f", to=TensorProto.FLOAT),
        node("Mul", "s ws", "unit"),
        node("Mul", "f unit", "m"),
        node("Add", "m b", "y"),
    ]
    kinds = {"q": TensorProto.UINT8, "z": TensorProto.UINT8}
    x = np.random.default_rng(3).standard_normal(case.x, np.float32)
    opened = session(nodes, {"x": x}, "q s z y", given, kinds=kinds, threads=2)
    for low, high in ((-1, 1), (-3, 1), (0, 2), (-1, 5), (-2, 0), (-9, 9)):
        q, s, z, y = opened.run(None, {"x": np.clip(3 * x, low, high)})
        sums = convolve(q - float(z), given["w"] - 121.0, *places(case))
        np.testing.assert_allclose(y, sums * (s * 0.01) + given["b"], rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("dtype", TYPES)
def test_images_between_convolutions_of_bytes(dtype: Any) -> None:
    """They have their channels last, wherever they are added, joined, pooled and read apart."""
    one, zero = np.float32(2.0**-4), np.array(2, dtype)
    rng = np.random.default_rng(4)
    given: dict[str, Any] = {"s": one, "z": zero, "ws": np.float32(2.0**-7)}
    nodes = [node("QuantizeLinear", "x s z", "q0"), node("DequantizeLinear", "q0 s z", "d0")]

    def code(value: str, name: str) -> None:
        nodes.append(node("QuantizeLinear", f"{value} s z", f"q{name}"))
        nodes.append(node("DequantizeLinear", f"q{name} s z", f"d{name}"))

    def conv(source: str, name: str, *shape: int, **attributes: Any) -> None:
        given[f"w{name}"] = rng.integers(-40, 40, shape, np.int8)
        nodes.append(node("DequantizeLinear", f"w{name} ws", f"v{name}"))
        nodes.append(node("Conv", f"{source} v{name}", f"c{name}", **attributes))
        code(f"c{name}", name)

    conv("d0", "1", 20, 3, 3, 3, pads=(1, 1, 1, 1))
    conv("d1", "2", 20, 1, 3, 3, group=20, pads=(1, 1, 1, 1))
    nodes += [node("Add", "d1 d2", "a")]
    code("a", "3")
    nodes += [node("Concat", "d3 d1", "j", axis=1)]
    code("j", "4")
    conv("d4", "5", 36, 40, 1, 1)
    nodes += [node("MaxPool", "d5", "p", kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1))]
    code("p", "6")
    nodes += [node("Slice", "q6 from to one", "part"), node("DequantizeLinear", "part s z", "dp")]
    given |= {"from": np.array([4]), "to": np.array([16]), "one": np.array([1])}
    conv("dp", "7", 6, 12, 3, 3)
    kinds = dict.fromkeys(("q7", "q5"), KINDS[dtype])
    x = np.random.default_rng(5).standard_normal((2, 3, 15, 13), np.float32)
    found, wanted = (
        session(nodes, {"x": x}, "q7 q5", given, kinds=kinds, level=level, threads=2)
        for level in (None, tenonnx.GraphOptimizationLevel.ORT_DISABLE_ALL)
    )
    for seed in range(4):
        feeds = {"x": x + np.float32(seed)}
        for got, plain in zip(found.run(None, feeds), wanted.run(None, feeds), strict=True):
            np.testing.assert_array_equal(got, plain)
            assert np.unique(got).size > 20
