"""Graphs whose parts do not belong together."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper

from models import BOOL, FLOAT, INT64, graph, model, node, value

X = np.ones(2, np.float32)


def loop_of_two_bodies() -> onnx.ModelProto:
    body = graph(
        [node("Neg", "a", "b"), node("Identity", "on", "go")],
        [value("i", INT64, []), value("on", BOOL, []), value("a")],
        [value("go", BOOL, []), value("b")],
    )
    made = node("Loop", "n _ x", "y", body=body)
    made.attribute.append(helper.make_attribute("other", onnx.GraphProto(name="empty")))
    weights = {"n": np.array(2)}
    return model([made], [value("x")], [value("y")], weights)


def loop_of_growing_values() -> onnx.ModelProto:
    body = graph(
        [node("Concat", "a a", "b", axis=0), node("Identity", "on", "go")],
        [value("i", INT64, []), value("on", BOOL, []), value("a")],
        [value("go", BOOL, []), value("b"), value("b")],
    )
    made = node("Loop", "n _ x", "z y", body=body)
    return model([made], [value("x")], [value("y")], {"n": np.array(2)})


def scan_of_no_type() -> onnx.ModelProto:
    body = graph([node("Neg", "a", "b")], [value("a", shape=[])], [value("b", shape=[])])
    body.output[0].type.tensor_type.elem_type = onnx.TensorProto.UNDEFINED
    made = node("Scan", "x", "y", body=body, num_scan_inputs=1)
    return model([made], [value("x")], [value("y")])


def scan_of_no_number(kind: int) -> onnx.ModelProto:
    body = graph([node("Neg", "a", "b")], [value("a", shape=[])], [value("b", shape=[])])
    made = node("Scan", "x", "y", body=body)
    made.attribute.add(name="num_scan_inputs", type=kind)
    return model([made], [value("x")], [value("y")])


def scan_of_no_axes() -> onnx.ModelProto:
    body = graph([node("Neg", "a", "b")], [value("a", shape=[])], [value("b", shape=[])])
    made = node("Scan", "x", "y", body=body, num_scan_inputs=1)
    made.attribute.add(name="scan_input_axes", type=onnx.AttributeProto.INTS)
    return model([made], [value("x")], [value("y")])


def if_of_nothing() -> onnx.ModelProto:
    then, otherwise = (graph([node(op, "x", "b")], [], [value("b")]) for op in ("Neg", "Abs"))
    made = helper.make_node("If", [], ["y"], then_branch=then, else_branch=otherwise)
    return model([made], [value("x")], [value("y")])


def function_of_no_text() -> onnx.ModelProto:
    imports = [helper.make_opsetid("", 21)]
    body = helper.make_function("f", "Named", ["a"], ["b"], [node("Neg", "a", "b")], imports)
    call = node("Named", "x", "y", domain="f")
    made = model([call], [value("x")], [value("y")], functions=[body], domains={"f": 1})
    return onnx.ModelProto.FromString(made.SerializeToString().replace(b"Named", b"Name\x80"))


def function_of_what_nothing_makes() -> onnx.ModelProto:
    imports = [helper.make_opsetid("", 21)]
    body = helper.make_function("f", "F", ["a"], ["b"], [node("Add", "a c", "b")], imports)
    call = node("F", "x", "y", domain="f")
    return model([call], [value("x")], [value("y")], functions=[body], domains={"f": 1})


def zero_points_of_another_type() -> onnx.ModelProto:
    """Arguments that kernels took for signed."""
    nodes = [
        node("QuantizeLinear", "x s z", "q"),
        node("DequantizeLinear", "q s z", "d"),
        node("DequantizeLinear", "w ws wz", "e", axis=1),
        node("MatMul", "d e", "m"),
        node("QuantizeLinear", "m s z", "r"),
        node("DequantizeLinear", "r s z", "y"),
    ]
    weights = {
        "s": np.array(0.1, np.float32), "z": np.array(3, np.uint8),
        "w": np.arange(4, dtype=np.int8).reshape(2, 2), "ws": X, "wz": np.array([200, 9], np.uint8),
    }  # fmt: skip
    return model(nodes, [value("x", FLOAT, ["n"])], [value("y", FLOAT, None)], weights)


GRAPHS: dict[str, tuple[onnx.ModelProto, dict[str, Any]]] = {
    "a Loop of two bodies": (loop_of_two_bodies(), {"x": X}),
    "a Scan of no type": (scan_of_no_type(), {"x": X[:0]}),
    "a Scan of no number": (scan_of_no_number(onnx.AttributeProto.UNDEFINED), {"x": X}),
    "a Scan of a text": (scan_of_no_number(onnx.AttributeProto.STRING), {"x": X}),
    "an If of nothing": (if_of_nothing(), {"x": X}),
    "a Scan of no axes": (scan_of_no_axes(), {"x": X}),
    "a function whose name is no text": (function_of_no_text(), {"x": X}),
    "a Loop of growing values": (loop_of_growing_values(), {"x": X}),
    "a function that reads what nothing makes": (function_of_what_nothing_makes(), {"x": X}),
    "zero points of another type": (zero_points_of_another_type(), {"x": X}),
}
