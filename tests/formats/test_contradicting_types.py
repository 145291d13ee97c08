"""Types that are none, or contradict the operators: refused at load, and said once."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import onnx
import pytest
from malformed_nodes import SIZES, V, branch, malformed

import tenonnx
from models import FLOAT, model, node, value
from tenonnx.graph.element_types import OF_ONE_TYPE, WITH_ZERO_POINTS


def test_inputs_of_types_that_there_are_not() -> None:
    proto = model([node("Neg", "x", "y")], [value("x")], [value("y")])
    kind = proto.graph.input[0].type
    for tensor in (kind.tensor_type, kind.sequence_type.elem_type.tensor_type):
        tensor.elem_type = onnx.TensorProto.UNDEFINED
        with pytest.raises(tenonnx.InvalidGraph, match="'x' is of tensors without an element type"):
            tenonnx.InferenceSession(proto)
    kind.map_type.key_type = 127
    with pytest.raises(tenonnx.InvalidGraph, match="127 is no element type"):
        tenonnx.InferenceSession(proto)


@pytest.mark.parametrize("op", ["Add", "Max", "Concat", "Where"])
def test_inputs_of_several_types_where_one_is_wanted_are_named(op: str) -> None:
    names = "c x k" if op == "Where" else "x k"
    more = {"axis": 0} if op == "Concat" else {}
    wrong = model(
        [node(op, names, "y", **more)],
        [value("x", FLOAT, [2]), value("c", onnx.TensorProto.BOOL, [2])],
        [value("y", FLOAT, None)],
        {"k": SIZES},
    )
    with pytest.raises(tenonnx.InvalidGraph, match=f"{op}.*x is float and k is int64"):
        tenonnx.InferenceSession(wrong)


@pytest.mark.parametrize("op", sorted(OF_ONE_TYPE))
def test_schemas_say_that_operands_have_one_type(op: str) -> None:
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.name == op and not schema.domain:
            formal = schema.inputs[op == "Where" :]
            assert all(given.is_homogeneous for given in formal)
            assert len({given.type_str for given in formal}) == 1, schema.since_version


@pytest.mark.parametrize("op", sorted(WITH_ZERO_POINTS))
def test_schemas_say_that_zero_points_have_the_type_of_their_codes(op: str) -> None:
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.name == op and not schema.domain:
            for operands in WITH_ZERO_POINTS[op]:
                (_,) = {given.type_str for given in list(schema.inputs)[operands]}


def test_zero_points_of_another_type_are_refused() -> None:
    nodes = [node("DequantizeLinear", "q v z", "d"), node("Add", "x d", "y")]
    proto = malformed(*nodes)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array([200, 9], np.uint8), "z"))
    with pytest.raises(tenonnx.InvalidGraph, match=r"DequantizeLinear.*q is int8 and z is uint8"):
        tenonnx.InferenceSession(proto)


HALF, DOUBLE = onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE
TO_HALF = node("Cast", "x", "h", to=HALF)
ONE = {"one": np.array([1])}


CONTRADICTIONS = {
    "of a Cast": ([TO_HALF, node("Cast", "h", "y", to=FLOAT)], FLOAT, ("h", FLOAT)),
    "behind it": (
        [TO_HALF, node("Relu", "h", "r"), node("Cast", "r", "y", to=FLOAT)], FLOAT, ("r", FLOAT),
    ),
    "of the output": ([node("Relu", "x", "y")], HALF, None),
    "of a Shape": ([node("Shape", "x", "y")], FLOAT, None),
    "of a comparison": ([node("Greater", "x x", "y")], FLOAT, None),
    "of a second output": (
        [node("TopK", "x one", "v i"), node("Relu", "v", "y")], FLOAT, ("i", onnx.TensorProto.INT32)
    ),
    "that only schemas say": (
        [node("EyeLike", "s", "y", dtype=FLOAT), node("Expand", "x one", "s")], DOUBLE, None
    ),
    "of an If": ([node("If", "c", "y", then_branch=branch(HALF, HALF),
                       else_branch=branch(HALF, HALF))], FLOAT, None),
    "of a branch": ([node("If", "c", "y", then_branch=branch(HALF, FLOAT),
                          else_branch=branch(HALF, HALF))], HALF, None),
    "of two branches": ([node("If", "c", "y", then_branch=branch(HALF, HALF),
                              else_branch=branch(DOUBLE, DOUBLE))], HALF, None),
    "of operands": ([TO_HALF, node("Relu", "h", "r"), node("Add", "r x", "y")], FLOAT, None),
}  # fmt: skip
"""Nodes, the type of the output, and that of a value in between; onnxruntime refuses all."""


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_types_that_contradict_what_operators_make(name: str) -> None:
    nodes, declared, noted = CONTRADICTIONS[name]
    proto = model(
        nodes,
        [value("x", FLOAT, [2]), value("c", onnx.TensorProto.BOOL, [])],
        [value("y", declared, None)],
        ONE,
    )
    if noted:
        proto.graph.value_info.append(value(*noted, [2]))
    for level in (0, 99):
        options = tenonnx.SessionOptions()
        options.graph_optimization_level = tenonnx.GraphOptimizationLevel(level)
        with pytest.raises(tenonnx.InvalidGraph, match=r"the model declares|of one type"):
            tenonnx.InferenceSession(proto, options)


def test_what_a_file_says_of_values_that_there_are_not() -> None:
    noted = model([node("Neg", "x", "y")], [value("x", FLOAT, [2])], [value("y", FLOAT, None)], {})
    noted.graph.value_info.append(value("z", HALF, [2]))
    noted.graph.value_info.append(value("x", HALF, [2]))
    (y,) = tenonnx.InferenceSession(noted).run(None, {"x": V})
    np.testing.assert_array_equal(y, -V)


def test_nothing_is_said_twice(capfd: pytest.CaptureFixture[str]) -> None:
    broken = model([node("Neg", "nowhere", "y")], [], [value("y", FLOAT, None)], {})
    code = "import sys, tenonnx; tenonnx.InferenceSession(sys.stdin.buffer.read())"
    run = subprocess.run(
        [sys.executable, "-c", code], input=broken.SerializeToString(), capture_output=True
    )
    said = run.stderr.decode()
    assert "MalformedGraph" in said
    assert "cannot be found in any scope" not in said
    assert not capfd.readouterr().err
