"""Quantized models whose scales are no steps upwards: as node after node."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from running import floats, require_kernels, session

import tenonnx
from models import node

require_kernels()

UNOPTIMIZED = tenonnx.GraphOptimizationLevel.ORT_DISABLE_ALL
IN = [node("QuantizeLinear", "x s z", "q"), node("DequantizeLinear", "q s z", "d")]
OUT = [node("QuantizeLinear", "m t z", "r"), node("DequantizeLinear", "r t z", "y")]
MODELS = {
    "product": [node("DequantizeLinear", "w u", "v"), node("MatMul", "d v", "m")],
    "limited product": [
        node("DequantizeLinear", "w u", "v"), node("MatMul", "d v", "p"), node("Relu", "p", "m"),
    ],
    "convolution": [node("DequantizeLinear", "f u", "v"), node("Conv", "d v", "p"),
                    node("Relu", "p", "m")],
    "sum": [node("Add", "d d", "p"), node("Relu", "p", "m")],
    "table": [node("HardSwish", "d", "m")],
    "concatenation": [node("Concat", "d d", "m", axis=1)],
    "pooling": [node("MaxPool", "d", "m", kernel_shape=[2])],
    "mean": [node("GlobalAveragePool", "d", "m")],
}  # fmt: skip
SCALES = [np.inf, -np.inf, np.nan, -0.25, -0.0, 0.0, 1e-45, 1e-25, 1e20, 1e38, 0.25]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("place", ["s", "t", "u", "su"])
@pytest.mark.parametrize("name", MODELS)
def test_as_node_after_node(name: str, place: str, scale: float) -> None:
    scales = dict.fromkeys("stu", np.float32(0.125)) | dict.fromkeys(place, np.float32(scale))
    weights: dict[str, Any] = {
        **scales,
        "z": np.uint8(120),
        "w": np.random.default_rng(1).integers(-99, 99, (32, 24)).astype(np.int8),
        "f": np.random.default_rng(1).integers(-99, 99, (24, 16, 3)).astype(np.int8),
    }
    x = floats(2, 16, 32)
    if scale == 0.25:  # halves to even, of sums that differ in their last place
        x = np.rint(x * 8) / np.float32(8)
    feeds = {"x": x}
    read = {n for each in [*IN, *MODELS[name], *OUT] for n in each.input}
    weights = {key: array for key, array in weights.items() if key in read}
    given = [*IN, *MODELS[name], *OUT], feeds, "y", weights
    plain = session(*given, level=UNOPTIMIZED).run(None, feeds)[0]
    made = session(*given)
    for _ in range(2):
        np.testing.assert_array_equal(made.run(None, feeds)[0], plain)


LINEAR = {
    "QLinearConv": "x s z f u k t z",
    "QLinearMatMul": "x s z w u k t z",
    "QLinearAdd": "x s z x u z t z",
    "QLinearMul": "x s z x u z t z",
    "QLinearGlobalAveragePool": "x s z t z",
    "QLinearSigmoid": "x s z t z",
    "QLinearLeakyRelu": "x s z t z",
    "QLinearConcat": "t z x s z x u z",
}
"""Of an operator its inputs: x times s and a constant times u become y in units of t."""


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("place", ["s", "t", "u", "su"])
@pytest.mark.parametrize("name", LINEAR)
def test_as_by_numpy(name: str, place: str, scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    scales = dict.fromkeys("stu", np.float32(0.125)) | dict.fromkeys(place, np.float32(scale))
    weights: dict[str, Any] = {
        **scales,
        "z": np.uint8(120),
        "k": np.int8(0),
        "w": rng.integers(-99, 99, (32, 24)).astype(np.int8),
        "f": rng.integers(-99, 99, (24, 16, 3)).astype(np.int8),
    }
    weights = {key: array for key, array in weights.items() if key in LINEAR[name].split()}
    contrib = {} if name in ("QLinearConv", "QLinearMatMul") else {"domain": "com.microsoft"}
    attributes: dict[str, Any] = {"axis": 1} if name == "QLinearConcat" else {}
    if name == "QLinearGlobalAveragePool":
        attributes["channels_last"] = 0
    nodes = [node(name, LINEAR[name], "y", **contrib, **attributes)]
    feeds = {"x": rng.integers(0, 255, (2, 16, 32)).astype(np.uint8)}
    results = {}
    for mode in ("0", "1"):
        monkeypatch.setenv("TENONNX_JIT", mode)
        made = session(
            nodes, feeds, "y", weights, kinds={"x": 2, "y": 2}, domains={"com.microsoft": 1}
        )
        results[mode] = [made.run(None, feeds)[0] for _ in range(2)]
    for y in results["1"]:
        np.testing.assert_array_equal(y, results["0"][0])
