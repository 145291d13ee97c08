"""NaN, infinities and large numbers become the same integers, whatever computes them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tenonnx
from models import FLOAT, model, node, value

NAN, INF = float("nan"), float("inf")
LARGE = [3e9, -3e9, 1e20, -1e20, 3.4e38, -3.4e38, 2**31, -(2**31), 2**31 - 128, 65504, -65504]
ODD = np.array([NAN, INF, -INF, -NAN, *LARGE, 0, 1.25, -3.75], np.float32)
"""Numbers that integers have no place for, and some that they have."""

KINDS: dict[str, tuple[int, Any, int, int]] = {
    "uint8": (2, np.uint8, 0, 255),
    "int8": (3, np.int8, -128, 127),
    "uint16": (4, np.uint16, 0, 65535),
    "int16": (5, np.int16, -32768, 32767),
    "uint4": (21, ml_dtypes.uint4, 0, 15),
    "int4": (22, ml_dtypes.int4, -8, 7),
}


@pytest.fixture(params=["0", "1"], autouse=True)
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With numpy alone, and with kernels."""
    monkeypatch.setenv("TENONNX_JIT", request.param)


def ran(nodes: Any, x: Any, outputs: Any, weights: Any, kind: int = FLOAT, **options: Any) -> Any:
    given = [value("x", kind, [None] * x.ndim)]
    results = [value(name, dtype, None) for name, dtype in outputs.items()]
    proto = model(nodes, given, results, weights, **options)
    made = tenonnx.InferenceSession(proto.SerializeToString())
    first, second = (made.run(None, {"x": x}) for _ in range(2))  # the second may be a replay
    for one, other in zip(first, second, strict=True):
        assert one.tobytes() == other.tobytes()
    return second


def rounded(x: Any, scale: Any, zero: int, low: int, high: int) -> Any:
    """By the specification; NaN is the least."""
    with np.errstate(all="ignore"):
        exact = np.rint(x.astype(np.float64) / scale) + zero
    return np.clip(np.where(np.isnan(exact), low, exact), low, high)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("zero", [0, 3])
@pytest.mark.parametrize("count", [1, 40])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("per", ["tensor", "axis", "block"])
def test_quantize(name: str, zero: int, count: int, dtype: Any, per: str) -> None:
    kind, integer, low, high = KINDS[name]
    with np.errstate(over="ignore"):
        x = np.tile(ODD.astype(dtype), (2, count))
    shape = {"tensor": (), "axis": (2,), "block": (2, x.shape[1] // 18)}[per]
    attributes = {"tensor": {}, "axis": {"axis": 0}, "block": {"axis": 1, "block_size": 18}}[per]
    weights = {"s": np.full(shape, 0.5, dtype), "z": np.full(shape, zero, integer)}
    quantize = node("QuantizeLinear", "x s z", "y", **attributes)
    [y] = ran([quantize], x, {"y": kind}, weights, 1 if dtype is np.float32 else 10)
    assert y.dtype == integer
    assert np.array_equal(y.astype(np.float64), rounded(x, 0.5, zero, low, high))


@pytest.mark.parametrize("name", ["uint8", "int8"])
def test_quantized_and_back(name: str) -> None:
    """Alone, and of an operator whose bytes are looked up: the logarithm of -1 is NaN, too."""
    kind, integer, low, high = KINDS[name]
    x = np.tile(ODD, 30)
    weights = {"s": np.float32(0.5), "z": integer(3)}
    nodes = [
        node("QuantizeLinear", "x s z", "q"),
        node("DequantizeLinear", "q s z", "d"),
        node("Log", "d", "l"),
        node("QuantizeLinear", "l s z", "y"),
    ]
    d, y = ran(nodes, x, {"d": FLOAT, "y": kind}, weights)
    wanted = (rounded(x, 0.5, 3, low, high) - 3) * 0.5
    assert np.array_equal(d, wanted)
    with np.errstate(all="ignore"):
        logarithm = np.log(wanted.astype(np.float32))
    assert np.array_equal(y, rounded(logarithm, 0.5, 3, low, high))


@pytest.mark.parametrize("name", ["uint8", "int8", "uint16", "int16"])
def test_microsofts(name: str) -> None:
    kind, integer, low, high = KINDS[name]
    x = np.tile(ODD, 30)
    nodes = [node("QuantizeLinear", "x s z", "y", domain="com.microsoft")]
    weights = {"s": np.float32(0.5), "z": integer(3)}
    [y] = ran(nodes, x, {"y": kind}, weights, domains={"com.microsoft": 1})
    assert np.array_equal(y, rounded(x, 0.5, 3, low, high))


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_float8_has_a_nan(name: str) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name))
    kind = {"float8_e4m3fn": 17, "float8_e5m2": 19}[name]
    x = np.tile(ODD, 30)
    weights = {"s": np.float32(0.5), "z": np.zeros((), dtype)}
    [y] = ran([node("QuantizeLinear", "x s z", "y")], x, {"y": kind}, weights)
    most = float(ml_dtypes.finfo(dtype).max)
    wanted = np.clip(2 * x.astype(np.float64), -most, most)
    assert np.array_equal(np.isnan(y.astype(np.float32)), np.isnan(x))
    assert np.allclose(y.astype(np.float64), wanted, rtol=0.125, atol=0, equal_nan=True)


DYNAMIC: dict[str, tuple[list[float], float, int]] = {
    "nan first": ([NAN, 2, -1], 3 / 255, 85),
    "nan last": ([2, -1, NAN], 3 / 255, 85),
    "nan alone": ([NAN, NAN, NAN], 1, 0),
    "infinite": ([INF, 2, -1], INF, 0),
    "negative infinity": ([2, -INF, NAN], INF, 255),
    "both infinities": ([INF, -INF, NAN], INF, 255),
    "too wide": ([3.4e38, -3.4e38, 1], INF, 0),
    "wide": ([3.4e38, 1, 0], 3.4e38 / 255, 0),
    "zeros": ([0, 0, -0.0], 1, 0),
    "too narrow": ([-1e-44, 0, 0], 0, 255),
}
"""Of a name the numbers, the scale and the zero point; onnxruntime's but for ``nan alone``."""


@pytest.mark.parametrize("name", DYNAMIC)
@pytest.mark.parametrize("count", [1, 101])
def test_dynamic(name: str, count: int) -> None:
    numbers, scale, zero = DYNAMIC[name]
    x = np.tile(np.array(numbers, np.float32), count)
    nodes = [node("DynamicQuantizeLinear", "x", "y s z")]
    y, s, z = ran(nodes, x, {"y": 2, "s": FLOAT, "z": 2}, {})
    assert s == np.float32(scale)
    assert z == zero
    assert np.array_equal(y, rounded(x, np.float32(scale), zero, 0, 255))


def test_dynamic_product() -> None:
    """A row with NaN is what it is with 0, but for the least byte, which NaN is."""
    x = np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)
    x[1, 5] = NAN
    w = np.random.default_rng(1).integers(-128, 127, (64, 32)).astype(np.int8)
    nodes = [node("DynamicQuantizeMatMul", "x w s", "y", domain="com.microsoft")]
    weights = {"w": w, "s": np.float32(0.01)}
    [y] = ran(nodes, x, {"y": FLOAT}, weights, domains={"com.microsoft": 1})
    low, high = np.float32(np.nanmin(x)), np.float32(np.nanmax(x))
    step = (high - low) / np.float32(255)
    zero = int(np.rint(-low / step))
    numbers = (rounded(x, step, zero, 0, 255) - zero) * step
    assert np.allclose(y, numbers @ w * 0.01, rtol=1e-5, atol=1e-4)
