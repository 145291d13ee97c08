"""Attributes of other kinds than their operators have: the runtime names them at load."""

from __future__ import annotations

import contextlib
from typing import Any

import onnx
import pytest
from malformed_nodes import W, malformed
from onnx import numpy_helper

import tenonnx
from models import FLOAT, model, node, value


def constant(name: str, kind: int, **fields: Any) -> onnx.NodeProto:
    made = node("Constant", "", "c")
    made.attribute.add(name=name, type=kind, **fields)
    return made


WRONG_KINDS = {
    "no tensor": (constant("value", onnx.AttributeProto.FLOAT, f=1.0), "Constant"),
    "graphs": (constant("value", onnx.AttributeProto.GRAPHS), "Constant"),
    "of no kind": (constant("value", onnx.AttributeProto.UNDEFINED), "Constant"),
    "a Loop of nothing": (node("Loop", "_ _ x", "c"), "Loop"),
    "a Loop of a number": (node("Loop", "_ _ x", "c", body=3), "Loop"),
    "a Scan of nothing": (node("Scan", "x x", "c s", num_scan_inputs=1), "Scan"),
}


@pytest.mark.parametrize(("wrong", "op"), WRONG_KINDS.values(), ids=WRONG_KINDS)
def test_no_transform_stumbles_over_attributes_of_other_kinds(wrong: Any, op: str) -> None:
    proto = malformed(wrong, node("Add", "x c", "y"))
    with pytest.raises(tenonnx.TenonnxError, match=rf"^{op} 'c'"):
        tenonnx.InferenceSession(proto, providers=["cpu"]).run(None, {"x": W})


@pytest.mark.parametrize("kind", onnx.AttributeProto.AttributeType.values())
@pytest.mark.parametrize("place", ["a node", "a default"])
def test_an_attribute_of_another_kind_in_a_function(place: str, kind: int) -> None:
    changed = constant("value", onnx.AttributeProto.TENSOR, t=numpy_helper.from_array(W))
    changed.attribute[0].type = kind
    plain = constant("value", onnx.AttributeProto.TENSOR, t=numpy_helper.from_array(W))
    body = [changed if place == "a node" else plain, node("Add", "a c", "b")]
    imports = [onnx.helper.make_opsetid("", 21)]
    function = onnx.helper.make_function("own", "F", ["a"], ["b"], body, imports)
    if place == "a default":
        function.attribute_proto.append(changed.attribute[0])
    proto = malformed(node("F", "x", "y", domain="own"))
    proto.functions.append(function)
    proto.opset_import.append(onnx.helper.make_opsetid("own", 1))
    wrong = place == "a node" and kind != onnx.AttributeProto.TENSOR
    for source in (proto, proto.SerializeToString()):
        with (
            pytest.raises(tenonnx.TenonnxError)
            if wrong
            else contextlib.suppress(tenonnx.TenonnxError)
        ):
            tenonnx.InferenceSession(source, providers=["cpu"]).run(None, {"x": W})


def referring(name: str) -> onnx.NodeProto:
    made = node("Transpose", "x", "c")
    made.attribute.add(name="perm", type=onnx.AttributeProto.INTS, ref_attr_name=name)
    return made


STRING, GRAPH = onnx.AttributeProto.STRING, onnx.AttributeProto.GRAPH
NAMED = {
    "a number as tensor": (
        constant("value", onnx.AttributeProto.FLOAT, f=1.0),
        r"Constant 'c' .*: its attribute value is FLOAT, it needs TENSOR",
    ),
    "a graph as number": (
        constant("value_float", GRAPH),
        r"Constant 'c' .*: its attribute value_float is GRAPH, it needs FLOAT",
    ),
    "a value of no kind": (
        constant("sparse_value", onnx.AttributeProto.UNDEFINED),
        r"Constant 'c' .*: its attribute sparse_value is of no type, it needs SPARSE_TENSOR",
    ),
    "one axis as all": (
        node("Transpose", "x", "c", perm=1),
        r"Transpose 'c' .*: its attribute perm is INT, it needs INTS",
    ),
    "a function's": (referring("order"), r"Transpose 'c' .*perm refers to order, an attribute of"),
}


@pytest.mark.parametrize(("wrong", "message"), NAMED.values(), ids=NAMED)
def test_an_attribute_of_another_kind_is_named(wrong: onnx.NodeProto, message: str) -> None:
    proto = malformed(wrong, node("Add", "x c", "y"))
    with pytest.raises(tenonnx.TenonnxError, match=message):
        tenonnx.InferenceSession(proto, providers=["cpu"]).run(None, {"x": W})


def test_a_constant_that_is_no_text() -> None:
    text = constant("value_string", STRING, s=b"\xff")
    proto = malformed(text, node("Cast", "c", "t", to=FLOAT), node("Add", "x t", "y"))
    with pytest.raises(tenonnx.TenonnxError, match=r"UTF-8, and b'\\xff' is not"):
        tenonnx.InferenceSession(proto, providers=["cpu"]).run(None, {"x": W})


@pytest.mark.parametrize("text", [b"abc", b"Foo"])
def test_names_that_are_no_text(text: bytes) -> None:
    proto = model(
        [node("Foo", "x", "y", domain="abc")], [value("x")], [value("y")], domains={"abc": 1}
    )
    if text == b"Foo":
        proto.graph.node[0].domain = ""
    content = proto.SerializeToString().replace(text, text[:1] + b"\xff" + text[2:])
    with pytest.raises(tenonnx.NotSupported, match="no provider that runs it"):
        tenonnx.InferenceSession(content)
