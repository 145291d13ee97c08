from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from running import Watch, run
from scipy import special
from test_byte_products import KINDS, TYPES, bytes_of, exact, rounded

from models import node
from tenonnx_cpu.int8.product import BYTE_GEMM
from tenonnx_cpu.int8.qlinear_binary import ADD, MULTIPLY
from tenonnx_cpu.norm.norms import SOFTMAX

# Scales are powers of two, so that nothing but the last rounding rounds.
XS, WS, YS = np.float32(2.0**-3), np.float32(2.0**-5), np.float32(2.0**-1)


def dense(dtype: Any, form: str, depth: int, columns: int) -> dict[str, Any]:
    scale, zero = WS, np.array(9 if form == "offset" else 0, np.int8)
    if form == "columns":
        scale = WS * np.where(np.arange(columns) % 3, 1, 2).astype(np.float32)
        zero = np.zeros(columns, np.int8)
    return {
        "xs": XS, "xz": np.array(5, dtype), "w": bytes_of((depth, columns), np.int8, 1),
        "ws": scale, "wz": zero, "ys": YS, "yz": np.array(-7 if dtype is np.int8 else 117, dtype),
        "b": np.random.default_rng(2).integers(-900, 900, columns, np.int32),
    }  # fmt: skip


@pytest.mark.parametrize("tail", ["", "bias", "codes", "relu", "all"])
@pytest.mark.parametrize("form", ["tensor", "offset", "columns", "turned"])
@pytest.mark.parametrize("dtype", TYPES)
def test_product_with_a_matrix_between_codes(
    dtype: Any, form: str, tail: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Watch(BYTE_GEMM, monkeypatch)
    given, x = dense(dtype, form, 24, 51), bytes_of((2, 7, 24), dtype)
    real = exact(x, given["w"], 5, int(given["wz"].flat[0])) * np.float64(XS) * given["ws"]
    nodes = [node("DequantizeLinear", "x xs xz", "xf")]
    if form == "turned":
        given["w"] = np.ascontiguousarray(given["w"].T)
        nodes += [node("DequantizeLinear", "w ws wz", "wt", axis=0)]
        nodes += [node("Transpose", "wt", "wf", perm=[1, 0])]
    else:
        nodes += [node("DequantizeLinear", "w ws wz", "wf", axis=1)]
    nodes.append(node("MatMul", "xf wf", "c"))
    result = "c"
    if tail in ("bias", "all"):
        given["bs"] = XS * given["ws"]
        given["bz"] = np.zeros(given["bs"].shape, np.int32)
        nodes.append(node("DequantizeLinear", "b bs bz", "bf", axis=0))
        nodes.append(node("Add", f"bf {result}", "a"))
        real, result = real + given["b"] * np.float64(given["bs"]), "a"
    if tail in ("relu", "all"):
        nodes.append(node("Relu", result, "r"))
        real, result = np.maximum(real, 0), "r"
    kinds = {"x": KINDS[dtype]}
    if tail in ("codes", "all"):
        nodes.append(node("QuantizeLinear", f"{result} ys yz", "q"))
        result, kinds["q"] = "q", KINDS[dtype]
    y = run(nodes, {"x": x}, result, given, kinds=kinds, threads=2)
    assert kernel.calls == 1
    assert np.array_equal(y, rounded(real / YS, given["yz"]) if result == "q" else real)


@pytest.mark.parametrize("dtype", TYPES)
def test_product_of_two_codes(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Watch(BYTE_GEMM, monkeypatch)
    a, b = bytes_of((2, 3, 40, 16), dtype), bytes_of((2, 3, 44, 16), dtype, 1)
    given = {"as": XS, "az": np.array(5, dtype), "bs": WS, "bz": np.array(3, dtype)}
    given |= {"ys": YS, "yz": np.array(1, dtype)}
    nodes = [
        node("Transpose", "b", "t", perm=[0, 1, 3, 2]),
        node("DequantizeLinear", "a as az", "af"),
        node("DequantizeLinear", "t bs bz", "bf"),
        node("MatMul", "af bf", "c"),
        node("QuantizeLinear", "c ys yz", "y"),
        node("MatMul", "af af", "s"),
    ]
    kinds = dict.fromkeys("aby", KINDS[dtype])
    y = run(nodes[:-1], {"a": a, "b": b}, "y", given, kinds=kinds)
    real = exact(a, b.swapaxes(-1, -2), 5, 3) * np.float64(XS * WS)
    assert np.array_equal(y, rounded(real / YS, given["yz"]))
    square = bytes_of((3, 36, 36), dtype, 2)
    y = run([nodes[1], nodes[-1]], {"a": square}, "s", given, kinds=kinds)
    assert np.array_equal(y, exact(square, square, 5, 5) * np.float64(XS * XS))
    assert kernel.calls == 2


SHAPES = [
    ((2, 40, 96), (2, 40, 96)),
    ((2, 40, 96), (96,)),
    ((40, 1000), (1, 1000)),
    ((1300,), ()),
    ((96,), (2, 40, 96)),
]


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("kind", ["Add", "Mul"])
@pytest.mark.parametrize("dtype", TYPES)
def test_sums_and_products_of_codes(
    dtype: Any, kind: str, shapes: Any, fused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Watch({"Add": ADD, "Mul": MULTIPLY}[kind], monkeypatch)
    a, b = bytes_of(shapes[0], dtype), bytes_of(shapes[1], dtype, 1)
    given = {"as": XS, "az": np.array(5, dtype), "bs": WS, "bz": np.array(3, dtype)}
    given |= {"ys": np.float32(0.5), "yz": np.array(1, dtype)}
    nodes = [
        node("DequantizeLinear", "a as az", "af"),
        node("DequantizeLinear", "b bs bz", "bf"),
        node(kind, "af bf", "c"),
        node("QuantizeLinear", "c ys yz", "y"),
    ]
    if not fused:
        nodes = [node(f"QLinear{kind}", "a as az b bs bz ys yz", "y", domain="com.microsoft")]
    kinds = dict.fromkeys("aby", KINDS[dtype])
    domains = {"": 21, "com.microsoft": 1}
    y = run(nodes, {"a": a, "b": b}, "y", given, kinds=kinds, domains=domains, threads=4)
    left, right = (a - 5.0) * float(XS), (b - 3.0) * float(WS)
    real = left + right if kind == "Add" else left * right
    assert kernel.calls == 1
    assert np.array_equal(y, rounded(real / 0.5, given["yz"]))


def test_sum_of_shapes_that_only_broadcast(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Watch(ADD, monkeypatch)
    a, b = bytes_of((4, 1, 5), np.uint8), bytes_of((4, 3, 1), np.uint8, 1)
    one = {"s": np.float32(1), "z": np.uint8(0)}
    nodes = [node("QLinearAdd", "a s z b s z s z", "y", domain="com.microsoft")]
    kinds = dict.fromkeys("aby", TensorProto.UINT8)
    domains = {"": 21, "com.microsoft": 1}
    y = run(nodes, {"a": a, "b": b}, "y", one, kinds=kinds, domains=domains)
    assert kernel.calls == 0
    assert np.array_equal(y, np.minimum(a.astype(int) + b, 255))


@pytest.mark.parametrize("opset", [12, 13])
@pytest.mark.parametrize("dtype", TYPES)
def test_softmax_of_codes(dtype: Any, opset: int, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Watch(SOFTMAX, monkeypatch)
    x = bytes_of((3, 7, 40), dtype)
    given = {"xs": XS, "xz": np.array(5, dtype), "ys": np.float32(2.0**-8)}
    given["yz"] = np.array(np.iinfo(dtype).min, dtype)
    softmax = node(
        "QLinearSoftmax", "x xs xz ys yz", "y", domain="com.microsoft", axis=2, opset=opset
    )
    kinds, domains = dict.fromkeys("xy", KINDS[dtype]), {"": 21, "com.microsoft": 1}
    y = run([softmax], {"x": x}, "y", given, kinds=kinds, domains=domains)
    real = special.softmax((x - 5.0) * float(XS), axis=-1) * 2.0**8
    wanted = rounded(real, given["yz"])
    assert kernel.calls == 1
    assert y.dtype == dtype
    assert np.all((y == wanted) | (np.abs(real % 1 - 0.5) < 1e-4))
