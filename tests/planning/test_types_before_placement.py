"""Providers see types and shapes of every value before they are asked for nodes."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import tenonnx
from models import FLOAT, INT64, model, node, value
from tenonnx import Provider

Seen = dict[str, tuple[Any, Any]]


def residual_model() -> onnx.ModelProto:
    """A small convolutional network without value_info."""
    weights = {
        "w": np.ones((8, 3, 3, 3), np.float32),
        "scale": np.ones(8, np.float32),
        "zero": np.zeros(8, np.float32),
        "dense": np.ones((8, 5), np.float32),
        "axes": np.array([2, 3], np.int64),
    }
    nodes = [
        node("Conv", "x w", "c", pads=[1, 1, 1, 1]),
        node("BatchNormalization", "c scale zero zero scale", "n"),
        node("Relu", "n", "r"),
        node("ReduceMean", "r axes", "m", keepdims=0),
        node("MatMul", "m dense", "d"),
        node("ArgMax", "d", "k", axis=1, keepdims=0),
        node("Cast", "k", "f", to=FLOAT),
        node("Unsqueeze", "f one", "y"),
    ]
    weights["one"] = np.array([1], np.int64)
    return model(
        nodes,
        [value("x", FLOAT, ["batch", 3, 16, 16])],
        [value("y", FLOAT, ["batch", 1])],
        weights,
    )


def seen_by(proto: onnx.ModelProto, needs: bool) -> Seen:
    """Return what a provider sees of each value, while it declines all nodes."""
    seen: Seen = {}

    class Looking(Provider):
        name = "LookingExecutionProvider"
        needs_types = needs

        def supports(self, node: ir.Node) -> Literal[True] | str:
            for each in node.outputs:
                seen[each.name or ""] = (each.dtype, each.shape and tuple(map(str, each.shape)))
            return "it looks"

        def compile(self, segment: Any) -> Any:
            raise AssertionError(segment)

    class Plugin:
        @tenonnx.hookimpl
        def register_providers(self, register: Any) -> None:
            register(Looking)

    plugins = tenonnx.PluginSet()
    plugins.register(Plugin())
    options = tenonnx.SessionOptions(plugins=plugins, graph_optimization_level=0)
    tenonnx.InferenceSession(proto, options, providers=[Looking.name, "cpu"])
    return seen


def test_a_model_without_value_info_is_seen_as_one_with_it() -> None:
    proto = residual_model()
    told = onnx.shape_inference.infer_shapes(proto, data_prop=True)
    assert len(told.graph.value_info) == 7
    seen = seen_by(proto, True)
    assert seen == seen_by(told, True)
    assert seen["c"] == (ir.DataType.FLOAT, ("batch", "8", "16", "16"))
    assert seen["d"] == (ir.DataType.FLOAT, ("batch", "5"))
    assert seen["k"] == (ir.DataType.INT64, ("batch",))
    assert all(dtype and shape for dtype, shape in seen.values())


def test_who_does_not_need_them_waits_for_no_inference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx.shape_inference, "infer_shapes", None)
    assert seen_by(residual_model(), False)["c"] == (None, None)


def test_equal_names_are_equal_sizes() -> None:
    proto = model(
        [node("Add", "a b", "s"), node("Concat", "s a", "c", axis=0)],
        [value("a", FLOAT, ["n", 4]), value("b", FLOAT, ["n", 4])],
        [value("c", FLOAT, [None, 4])],
    )
    seen = seen_by(proto, True)
    assert seen["s"][1] == ("n", "4")
    assert seen["c"][1][1] == "4"
    assert seen["c"][1][0] != "n"


def test_bodies_are_typed_too() -> None:
    body = onnx.helper.make_graph([node("Neg", "x", "t")], "then", [], [value("t", FLOAT, None)])
    other = onnx.helper.make_graph([node("Abs", "x", "e")], "else", [], [value("e", FLOAT, None)])
    proto = model(
        [
            node("ReduceSum", "x", "s", keepdims=0),
            node("Cast", "s", "c", to=onnx.TensorProto.BOOL),
            node("If", "c", "y", then_branch=body, else_branch=other),
            node("Shape", "y", "z"),
        ],
        [value("x", FLOAT, ["n", 4])],
        [value("z", INT64, [2])],
    )
    seen = seen_by(proto, True)
    assert seen["t"] == seen["e"] == (ir.DataType.FLOAT, ("n", "4"))
