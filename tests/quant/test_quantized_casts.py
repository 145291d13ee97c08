"""Constant integers behind Cast and Mul: read as they are stored, gathered before they are cast."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import tenonnx
from models import FLOAT, INT64, model, node, value

ROWS, COLUMNS = 40, 24
RANDOM = np.random.default_rng(3)
Q = {
    "int8": RANDOM.integers(-128, 128, (ROWS, COLUMNS)).astype(np.int8),
    "uint8": RANDOM.integers(0, 256, (ROWS, COLUMNS)).astype(np.uint8),
}
SCALES = {
    "scalar": np.float32(0.02),
    "one": np.float32([[0.02]]),
    "by row": RANDOM.random((ROWS, 1), np.float32) / 50,
    "by column": RANDOM.random((1, COLUMNS), np.float32) / 50,
    "by last axis": RANDOM.random(COLUMNS, np.float32) / 50,
    "by element": RANDOM.random((ROWS, COLUMNS), np.float32) / 50,
}
X = RANDOM.standard_normal((5, ROWS), np.float32)


def zeros_like(scale: Any, kind: str) -> Any:
    low, high = (-9, 9) if kind == "int8" else (100, 150)
    return RANDOM.integers(low, high, np.shape(scale)).astype(kind)


def real(kind: str, scale: Any, zeros: str, weights: dict[str, Any]) -> list[onnx.NodeProto]:
    """Return nodes that make ``w``; add their constants to the weights."""
    weights |= {"q": Q[kind], "s": np.asarray(scale)}
    nodes, shifted = [node("Cast", "q", "f", to=FLOAT)], "f"
    if zeros:
        z = weights["z"] = np.asarray(zeros_like(scale, kind))
        if zeros == "float":
            weights["z"], name = z.astype(np.float32), "z"
        else:
            nodes.append(node("Cast", "z", "zf", to=FLOAT))
            name = "zf"
        nodes.append(node("Sub", f"f {name}", "shifted"))
        shifted = "shifted"
    return [*nodes, node("Mul", f"s {shifted}" if zeros else f"{shifted} s", "w")]


def both(proto: onnx.ModelProto, feeds: dict[str, Any]) -> tuple[Any, Any, list[str]]:
    """Return the answers with and without transforms, and the operators that run."""
    plain = tenonnx.SessionOptions()
    plain.graph_optimization_level = tenonnx.GraphOptimizationLevel.ORT_DISABLE_ALL
    source = proto.SerializeToString()
    session = tenonnx.InferenceSession(source)
    wanted = tenonnx.InferenceSession(source, plain).run(None, feeds)
    return session.run(None, feeds), wanted, [n.op_type for n in session.model.graph]


@pytest.mark.parametrize("zeros", ["", "float", "cast"])
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("kind", Q)
def test_products(kind: str, scale: str, zeros: str) -> None:
    weights: dict[str, Any] = {"b": np.ones(ROWS, np.float32)}
    nodes = real(kind, SCALES[scale], zeros, weights)
    nodes += [
        node("MatMul", "x w", "y"),
        node("Gemm", "y w b", "g", transB=1),
        node("Transpose", "w", "t", perm=[1, 0]),
        node("MatMul", "y t", "u"),
    ]
    outputs = [value(name, FLOAT, None) for name in "ygu"]
    proto = model(nodes, [value("x", FLOAT, [None, ROWS])], outputs, weights)
    found, wanted, operators = both(proto, {"x": X})
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-4)
    if scale == "by element":
        assert "DequantizeMatMul" not in operators
    else:
        assert operators.count("DequantizeMatMul") == 3
        assert not {"Cast", "Mul", "DequantizeLinear"} & {*operators}


@pytest.mark.parametrize("indices", [3, [0, -1, 7], [[2, 2], [39, -40]], np.zeros((0, 2))])
@pytest.mark.parametrize("axis", [0, 1, -2])
@pytest.mark.parametrize("zeros", ["", "float", "cast"])
@pytest.mark.parametrize("scale", SCALES)
def test_rows(scale: str, zeros: str, axis: int, indices: Any) -> None:
    weights: dict[str, Any] = {}
    nodes = real("int8", SCALES[scale], zeros, weights)
    nodes.append(node("Gather", "w i", "y", axis=axis))
    at = np.asarray(indices, np.int64) % COLUMNS if axis == 1 else np.asarray(indices, np.int64)
    proto = model(nodes, [value("i", INT64, [None] * at.ndim)], [value("y", FLOAT, None)], weights)
    found, wanted, operators = both(proto, {"i": at})
    np.testing.assert_array_equal(found[0], wanted[0])
    assert found[0].dtype == np.float32
    before = axis == 1 and scale == "by row"
    assert ("Cast" in operators) == (scale != "by element" and not before)


def test_a_table_that_a_product_reads_too_is_read_in_place() -> None:
    weights: dict[str, Any] = {}
    nodes = real("int8", SCALES["by row"], "", weights)
    nodes += [
        node("Gather", "w i", "e"),
        node("Transpose", "w", "t", perm=[1, 0]),
        node("MatMul", "e t", "y"),
    ]
    proto = model(nodes, [value("i", INT64, ["n"])], [value("y", FLOAT, None)], weights)
    found, wanted, operators = both(proto, {"i": np.array([0, 5, 39])})
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-5, atol=1e-5)
    assert sorted(operators) == ["Cast", "DequantizeMatMul", "Gather", "Gather", "Mul"]


def test_rows_of_a_dequantized_table() -> None:
    """Any DequantizeLinear of constants; not where rows are quantized again: codes are moved."""
    weights = {
        "q": Q["uint8"],
        "s": SCALES["by last axis"],
        "z": zeros_like(np.zeros(COLUMNS), "uint8"),
    }
    nodes = [node("DequantizeLinear", "q s z", "w", axis=-1), node("Gather", "w i", "y")]
    inputs, outputs = [value("i", INT64, ["n"])], [value("y", FLOAT, None)]
    found, wanted, operators = both(model(nodes, inputs, outputs, weights), {"i": np.array([4, 0])})
    np.testing.assert_array_equal(found[0], wanted[0])
    assert "DequantizeLinear" not in operators
    weights |= {"s": np.float32(0.5), "z": np.uint8(3)}
    nodes = [
        node("DequantizeLinear", "q s z", "w"), node("Gather", "w i", "r"),
        node("QuantizeLinear", "r s z", "c"), node("DequantizeLinear", "c s z", "y"),
    ]  # fmt: skip
    found, wanted, operators = both(model(nodes, inputs, outputs, weights), {"i": np.array([4, 0])})
    np.testing.assert_array_equal(found[0], wanted[0])
    assert operators == ["Gather", "DequantizeLinear"]


@pytest.mark.parametrize("zero", [0.5, 128.0, np.nan, np.inf])
def test_zero_points_that_are_no_such_integers_stay(zero: float) -> None:
    weights = {"q": Q["int8"], "s": np.float32(0.1), "z": np.float32(zero)}
    nodes = [
        node("Cast", "q", "f", to=FLOAT), node("Sub", "f z", "d"), node("Mul", "d s", "w"),
        node("MatMul", "x w", "y"),
    ]  # fmt: skip
    proto = model(nodes, [value("x", FLOAT, [None, ROWS])], [value("y", FLOAT, None)], weights)
    found, wanted, operators = both(proto, {"x": X})
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-4, atol=1e-3)
    assert operators == ["MatMul"], "folded, as any constant"


def test_real_numbers_that_something_else_reads_stay() -> None:
    for more in ([node("Relu", "w", "z")], []):
        weights: dict[str, Any] = {}
        nodes = [*real("int8", SCALES["scalar"], "", weights), node("MatMul", "x w", "y"), *more]
        outputs = [value(name, FLOAT, None) for name in ("y", "z" if more else "w")]
        proto = model(nodes, [value("x", FLOAT, [None, ROWS])], outputs, weights)
        found, wanted, operators = both(proto, {"x": X})
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-4)
        assert "DequantizeMatMul" not in operators


def test_a_table_is_never_copied() -> None:
    """Neither are the integers made real as a whole, nor is there another copy of them."""
    rows = 20_000
    table = RANDOM.integers(-128, 128, (rows, 64)).astype(np.int8)
    nodes = [
        node("Cast", "q", "f", to=FLOAT), node("Mul", "f s", "w"), node("Gather", "w i", "y"),
    ]  # fmt: skip
    weights = {"q": table, "s": np.full((rows, 1), 0.5, np.float32)}
    proto = model(nodes, [value("i", INT64, ["n"])], [value("y", FLOAT, None)], weights)
    options = tenonnx.SessionOptions(weights=tenonnx.WeightRegistry())
    source = proto.SerializeToString()
    session = tenonnx.InferenceSession(source, options)
    (found,) = session.run(None, {"i": np.array([7, rows - 1])})
    np.testing.assert_array_equal(found, table[[7, -1]] * np.float32(0.5))
    assert options.weights is not None
    assert options.weights.report().derived + options.weights.report().private < len(source) + 4096
