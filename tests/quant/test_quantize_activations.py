"""Static and dynamic int8: against ONNX's reference evaluator and the formulas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

import tenonnx
from models import FLOAT, model, node, value
from tenonnx_quant import (
    DynamicScheme,
    Selection,
    StaticScheme,
    quantize_dynamic,
    quantize_static,
)

RANDOM = np.random.default_rng(0)
DIGITS = Path(__file__).parents[2] / "examples" / "digits"
FLOAT_RIGHT = 449
"""Of the 450 held-out digits, by the float model."""


def normal(*shape: int) -> Any:
    return RANDOM.standard_normal(shape, dtype=np.float32)


X = normal(4, 3, 8, 8)
NODES = [
    node("Conv", "x k b", "c", name="conv", pads=[1, 1, 1, 1]),
    node("Relu", "c", "r"),
    node("MaxPool", "r", "m", kernel_shape=[2, 2], strides=[2, 2]),
    node("Conv", "m l", "d", name="again", pads=[1, 1, 1, 1]),
    node("Add", "d m", "s", name="sum"),
    node("Flatten", "s", "f"),
    node("Gemm", "f w g", "y", name="gemm", transB=1),
]
WEIGHTS = {
    "k": normal(6, 3, 3, 3), "b": normal(6), "l": normal(6, 6, 3, 3) / 4,
    "w": normal(5, 96) / 8, "g": normal(5),
}  # fmt: skip


def saved(path: Path) -> Path:
    inputs, outputs = [value("x", FLOAT, ["n", 3, 8, 8])], [value("y", FLOAT, ["n", 5])]
    onnx.save(model(NODES, inputs, outputs, WEIGHTS), path)
    return path


def run(path: Path, feeds: dict[str, Any], *, plain: bool = False) -> Any:
    options = tenonnx.SessionOptions()
    if plain:
        options.graph_optimization_level = tenonnx.GraphOptimizationLevel.ORT_DISABLE_ALL
    return tenonnx.InferenceSession(path, options).run(None, feeds)[0]


def relative(found: Any, expected: Any) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize(("symmetric", "signed"), [(False, True), (False, False), (True, True)])
def test_static_models_do_what_the_reference_does(
    tmp_path: Path, per_channel: bool, symmetric: bool, signed: bool
) -> None:
    path, target = saved(tmp_path / "float.onnx"), tmp_path / "out.onnx"
    scheme = StaticScheme(per_channel=per_channel, symmetric=symmetric, signed=signed)
    report = quantize_static(path, target, scheme, data=[{"x": X[:2]}, {"x": X[2:]}])
    onnx.checker.check_model(target, full_check=True)
    assert report.quantized == 6
    (expected,) = ReferenceEvaluator(onnx.load(target)).run(None, {"x": X})
    for plain in (True, False):
        found = run(target, {"x": X}, plain=plain)
        # A sum in another order may round to the next step.
        assert relative(found, expected) < 5e-3
    assert 0 < relative(found, run(path, {"x": X})) < 0.05


def test_scales_are_those_of_the_ranges(tmp_path: Path) -> None:
    path, target = saved(tmp_path / "float.onnx"), tmp_path / "out.onnx"
    quantize_static(path, target, data=[{"x": X[:2]}, {"x": X[2:]}])
    graph = onnx.load(target).graph
    stored = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    low, high = float(X.min()), float(X.max())
    np.testing.assert_allclose(stored["x.scale"], (high - low) / 255, rtol=1e-6)
    assert stored["x.zero_point"] == np.rint(-128 - low / ((high - low) / 255))
    k = WEIGHTS["k"]
    np.testing.assert_allclose(stored["k.scale"], np.abs(k).max((1, 2, 3)) / 127, rtol=1e-6)
    q = np.rint(k / stored["k.scale"].reshape(-1, 1, 1, 1))
    np.testing.assert_array_equal(stored["k.quantized"], q)
    step = stored["x.scale"].astype(np.float64) * stored["k.scale"]
    np.testing.assert_allclose(stored["conv.bias.scale"], step, rtol=1e-6)
    np.testing.assert_array_equal(stored["conv.bias.quantized"], np.rint(WEIGHTS["b"] / step))
    # What a pool passes on keeps its scale, and a Relu's own range has no negative numbers.
    assert "m.scale" not in stored
    assert stored["r.zero_point"] == -128
    assert [n.op_type for n in graph.node].count("QuantizeLinear") == 6


def test_activations_are_quantized_once_and_outputs_not_at_all(tmp_path: Path) -> None:
    path, target = tmp_path / "float.onnx", tmp_path / "out.onnx"
    nodes = [
        node("MatMul", "x q", "a"), node("MatMul", "x k", "b"),
        node("Transpose", "b", "t", perm=[1, 0]), node("MatMul", "a t", "c"),
        node("Softmax", "c", "y"),
    ]  # fmt: skip
    inputs, weights = [value("x", FLOAT, ["n", 16])], {"q": normal(16, 8), "k": normal(16, 8)}
    onnx.save(
        model(nodes, inputs, [value("y", FLOAT, ["n", "n"]), value("a", FLOAT, ["n", 8])], weights),
        path,
    )
    quantize_static(path, target, data=[{"x": X.reshape(-1, 16)}])
    made = [n for n in onnx.load(target).graph.node if n.op_type == "QuantizeLinear"]
    assert sorted(n.input[0] for n in made) == ["a", "t", "x"]


@pytest.mark.parametrize("method", ["percentile", "entropy"])
def test_outliers_are_cut(tmp_path: Path, method: Any) -> None:
    path, target = tmp_path / "float.onnx", tmp_path / "out.onnx"
    inputs, weights = [value("x", FLOAT, ["n", 64])], {"w": normal(64, 8)}
    onnx.save(model([node("MatMul", "x w", "y")], inputs, [value("y")], weights), path)
    x = normal(4096, 64)
    x[0, 0] = 100
    quantize_static(path, target, StaticScheme(method, 99.99), data=lambda: iter([{"x": x}]))
    (scale,) = [
        numpy_helper.to_array(t) for t in onnx.load(target).graph.initializer if t.name == "x.scale"
    ]
    assert scale * 255 < 40
    assert relative(run(target, {"x": x[1:]}), run(path, {"x": x[1:]})) < 0.08


@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize("form", ["integer", "qdq"])
def test_dynamic_models_do_what_the_reference_does(
    tmp_path: Path, form: Any, per_channel: bool
) -> None:
    path, target = saved(tmp_path / "float.onnx"), tmp_path / "out.onnx"
    scheme = DynamicScheme(per_channel, form, Selection(("Conv", "Gemm")))
    report = quantize_dynamic(path, target, scheme, data=[{"x": X}])
    onnx.checker.check_model(target, full_check=True)
    assert report.quantized == 3
    operators = [n.op_type for n in onnx.load(target).graph.node]
    assert operators.count("DynamicQuantizeLinear") == 3
    assert ("ConvInteger" in operators) == (form == "integer")
    (expected,) = ReferenceEvaluator(onnx.load(target)).run(None, {"x": X})
    for plain in (True, False):
        found = run(target, {"x": X}, plain=plain)
        assert relative(found, expected) < 5e-3
    assert 0 < relative(found, run(path, {"x": X})) < 0.05
    assert report.accuracy[0].snr > 30


def test_dynamic_products_share_what_they_read(tmp_path: Path) -> None:
    path, target = tmp_path / "float.onnx", tmp_path / "out.onnx"
    nodes = [
        node("MatMul", "x w", "a"), node("MatMul", "x v", "b"), node("Gather", "t i", "e"),
        node("Transpose", "t", "u", perm=[1, 0]), node("MatMul", "x u", "c"),
    ]  # fmt: skip
    inputs = [value("x", FLOAT, ["n", 16]), value("i", onnx.TensorProto.INT64, ["m"])]
    weights = {"w": normal(16, 8), "v": normal(16, 8), "t": normal(9, 16)}
    onnx.save(model(nodes, inputs, [value(n) for n in "abce"], weights), path)
    quantize_dynamic(path, target)
    graph = onnx.load(target).graph
    assert [n.op_type for n in graph.node].count("DynamicQuantizeLinear") == 1
    assert [n.op_type for n in graph.node].count("MatMulInteger") == 2
    assert "t" in {t.name for t in graph.initializer}


@pytest.mark.parametrize("how", ["static", "dynamic"])
def test_digits_stay_legible(tmp_path: Path, how: str) -> None:
    data = np.load(DIGITS / "heldout.npz")
    images = data["images"][:, None].astype(np.float32) / 16
    target = tmp_path / "digits.onnx"
    if how == "static":
        report = quantize_static(DIGITS / "digits.onnx", target, data=[{"image": images[:64]}])
    else:
        scheme = DynamicScheme(selection=Selection(("Conv", "Gemm")))
        report = quantize_dynamic(DIGITS / "digits.onnx", target, scheme)
    assert report.bytes_after < report.bytes_before * 0.3
    right = (run(target, {"image": images}).argmax(1) == data["labels"]).sum()
    assert right >= FLOAT_RIGHT - 1


def test_what_is_refused(tmp_path: Path) -> None:
    path, target = saved(tmp_path / "float.onnx"), tmp_path / "out.onnx"
    with pytest.raises(tenonnx.InvalidArgument, match="there is none"):
        quantize_static(path, target)
    with pytest.raises(tenonnx.InvalidArgument, match="is not finite"):
        quantize_static(path, target, data=[{"x": X * np.inf}])
    with pytest.raises(tenonnx.InvalidArgument, match="nothing to quantize"):
        quantize_static(
            path, target, StaticScheme(selection=Selection(("MatMul",))), data=[{"x": X}]
        )
    with pytest.raises(tenonnx.InvalidArgument, match="no product to quantize"):
        quantize_dynamic(path, target, DynamicScheme(selection=Selection(("MatMul",))))
    with pytest.raises(tenonnx.InvalidArgument, match="minmax, percentile or entropy"):
        quantize_static(path, target, StaticScheme("median"), data=[{"x": X}])  # type: ignore[arg-type]  # what is refused
    with pytest.raises(tenonnx.InvalidArgument, match="between 50 and 100"):
        StaticScheme(percentile=0.99)
    assert not target.exists()
