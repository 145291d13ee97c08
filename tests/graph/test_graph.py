"""Laws of a loaded graph: sorted or sortable, complete, each name assigned once."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import tenonnx
from models import BOOL, FLOAT, graph, model, node, value

X = np.array([1, -2, 3, 4], np.float32)
IN, OUT = [value("x", FLOAT, [4])], [value("y", FLOAT, [4])]


def refused(proto: onnx.ModelProto, match: str) -> None:
    with pytest.raises(tenonnx.InvalidGraph, match=match):
        tenonnx.InferenceSession(proto)


def test_nodes_in_any_order_are_sorted() -> None:
    nodes = [node("Neg", "b", "y"), node("Relu", "a", "b"), node("Add", "x x", "a")]
    (y,) = tenonnx.InferenceSession(model(nodes, IN, OUT)).run(None, {"x": X})
    np.testing.assert_array_equal(y, -np.maximum(X + X, 0))


def test_cycle() -> None:
    nodes = [node("Add", "x b", "a"), node("Relu", "a", "b"), node("Neg", "b", "y")]
    refused(model(nodes, IN, OUT), "cycle")


def test_dangling_input() -> None:
    refused(model([node("Add", "x ghost", "y")], IN, OUT), r"Add 'y' .*reads 'ghost'")


def test_dangling_input_in_a_subgraph() -> None:
    branch = graph([node("Add", "x ghost", "t")], [], [value("t")])
    nodes = [node("If", "c", "y", then_branch=branch, else_branch=branch)]
    refused(model(nodes, [*IN, value("c", BOOL, [])], OUT), "reads 'ghost'")


def test_a_body_that_returns_an_outer_value() -> None:
    one = graph([], [], [value("x", FLOAT, [4])])
    two = graph([node("Neg", "x", "e")], [], [value("e", FLOAT, [4])])
    choice = node("If", "c", "y", then_branch=one, else_branch=two)
    said = "then_branch of If 'y' .* returns 'x', a value of the graph around it"
    refused(model([choice], [*IN, value("c", BOOL, [])], OUT), said)


def test_dangling_output() -> None:
    refused(model([node("Relu", "x", "z")], IN, OUT), "nothing produces the graph output 'y'")


def test_name_assigned_twice() -> None:
    nodes = [node("Relu", "x", "y"), node("Neg", "x", "y")]
    refused(model(nodes, IN, OUT), "'y'")


def test_missing_opset_import() -> None:
    proto = model([node("Relu", "x", "y")], IN, OUT, domains={"other": 1})
    del proto.opset_import[0]
    refused(proto, "imports no version of ai.onnx")


def test_operator_nobody_has_is_named_with_who_might() -> None:
    proto = model([node("Fancy", "x", "y", domain="acme", name="f1")], IN, OUT, domains={"acme": 3})
    with pytest.raises(tenonnx.NotSupported) as caught:
        tenonnx.InferenceSession(proto)
    text = str(caught.value)
    assert "Fancy 'f1' (acme, opset 3)" in text
    assert "CPUExecutionProvider: no kernel for acme::Fancy-3" in text
    assert "a plug-in that has the operators of acme" in text


def test_attribute_the_operator_does_not_have() -> None:
    proto = model([node("Relu", "x", "y", slope=0.1)], IN, OUT)
    with pytest.raises(tenonnx.NotSupported, match="has no attribute slope"):
        tenonnx.InferenceSession(proto)


def test_operators_without_a_kernel_run_through_their_schema_body() -> None:
    proto = model(
        [node("MeanVarianceNormalization", "x", "y")],
        [value("x", FLOAT, [2, 3, 2, 2])],
        [value("y")],
    )
    x = np.random.default_rng(0).standard_normal((2, 3, 2, 2)).astype(np.float32)
    (y,) = tenonnx.InferenceSession(proto).run(None, {"x": x})
    mean, std = x.mean((0, 2, 3), keepdims=True), x.std((0, 2, 3), keepdims=True)
    np.testing.assert_allclose(y, (x - mean) / (std + 1e-9), rtol=1e-4, atol=1e-5)
