"""Declared shapes of models, and their effect; the answers are onnxruntime 1.32's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import tenonnx
from models import BOOL, FLOAT, INT64, graph, model, node, value

LEAST = -(2**63)


def session(proto: Any, level: int = 99) -> tenonnx.InferenceSession:
    options = tenonnx.SessionOptions(graph_optimization_level=level)
    return tenonnx.InferenceSession(proto, options, providers=["cpu"])


def ramp(*shape: int) -> np.ndarray[Any, Any]:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


@pytest.mark.parametrize("size", [-1, -2, LEAST])
def test_sizes_below_zero_are_unknown(size: int) -> None:
    proto = model([node("Neg", "x", "y")], [value("x", FLOAT, [size, 3])], [value("y")])
    proto.graph.output[0].CopyFrom(value("y", FLOAT, [size, 3]))
    made = session(proto)
    assert made.get_inputs()[0].shape == [None, 3]
    assert made.get_outputs()[0].shape == [None, 3]
    for rows in (0, 1, 5):
        np.testing.assert_array_equal(made.run(None, {"x": ramp(rows, 3)})[0], -ramp(rows, 3))
    with pytest.raises(tenonnx.InvalidArgument):
        made.run(None, {"x": ramp(2, 4)})


def test_a_size_of_zero_is_zero() -> None:
    proto = model([node("Neg", "x", "y")], [value("x", FLOAT, [0, 3])], [value("y")])
    with pytest.raises(tenonnx.InvalidArgument):
        session(proto).run(None, {"x": ramp(2, 3)})


def test_dimensions_without_a_name_are_unknown() -> None:
    proto = model([node("Neg", "x", "y")], [value("x", FLOAT, ["", ""])], [value("y")])
    made = session(proto)
    assert made.get_inputs()[0].shape == [None, None]
    assert made.run(None, {"x": ramp(2, 3)})[0].shape == (2, 3)


@pytest.mark.parametrize("level", [0, 99])
@pytest.mark.parametrize("size", [-1, ""])
def test_nothing_believes_sizes_that_are_unknown(size: int | str, level: int) -> None:
    """Two sizes of -1 are not one, and Shape of them is no constant."""
    info = [value("a", FLOAT, [size, size]), value("b", FLOAT, [size])]
    nodes = [
        node("Transpose", "x", "a", perm=[1, 0]),
        node("Shape", "a", "s"),
        node("ReduceSum", "a", "b", keepdims=0),
        node("Reshape", "x s", "y"),
        node("Expand", "b s", "z"),
    ]
    proto = model(nodes, [value("x", FLOAT, [size, size])], [value("y"), value("z")])
    proto.graph.value_info.extend(info)
    y, z = session(proto, level).run(None, {"x": ramp(2, 3)})
    np.testing.assert_array_equal(y, ramp(3, 2))
    np.testing.assert_array_equal(z, np.full((3, 2), 15, np.float32))


def test_bodies_may_declare_sizes_below_zero() -> None:
    state = [value("i", INT64, []), value("c", BOOL, []), value("a", FLOAT, [-1])]
    results = [value("c", BOOL, []), value("b", FLOAT, [-1]), value("s", FLOAT, [-1, 2])]
    body = graph([node("Neg", "a", "b"), node("Identity", "w", "s")], state, results)
    made = session(
        model(
            [node("Loop", "n _ x", "y z", body=body)],
            [value("n", INT64, []), value("x", FLOAT, [-1])],
            [value("y", FLOAT, [-1]), value("z", FLOAT, None)],
            {"w": ramp(4, 2)},
        )
    )
    y, z = made.run(None, {"n": np.array(3), "x": ramp(5)})
    assert (y.shape, z.shape) == ((5,), (3, 4, 2))
    assert made.run(None, {"n": np.array(0), "x": ramp(5)})[1].shape[::2] == (0, 2)


@pytest.mark.parametrize("shape", [(), (1,), (2,), (2, 3)])
def test_an_input_of_rank_0_takes_any_rank(shape: tuple[int, ...]) -> None:
    proto = model([node("Neg", "x", "y")], [value("x", FLOAT, [])], [value("y", FLOAT, [])])
    made = session(proto)
    assert made.get_inputs()[0].shape == []
    given = ramp(*shape) + 1
    answer = made.run(None, {"x": given})[0]
    assert answer.shape == shape
    np.testing.assert_array_equal(answer, -given)


@pytest.mark.parametrize("level", [0, 99])
def test_nothing_believes_rank_0_of_an_input(level: int) -> None:
    """onnxruntime makes a constant of Shape and answers []: here it is what the input has."""
    nodes = [node("ReduceSum", "x", "y", keepdims=0), node("Shape", "x", "s")]
    proto = model(nodes, [value("x", FLOAT, [])], [value("y"), value("s", INT64)])
    y, s = session(proto, level).run(None, {"x": ramp(2, 3)})
    assert y == 15
    assert s.tolist() == [2, 3]


def optional(name: str, inner: Any) -> Any:
    return helper.make_value_info(name, helper.make_optional_type_proto(inner))


TENSOR = helper.make_tensor_type_proto(TensorProto.FLOAT, [2])
SEQUENCE = helper.make_sequence_type_proto(TENSOR)
DECLARED = {
    "tensor": value("x", FLOAT, [2]),
    "sequence": helper.make_value_info("x", SEQUENCE),
    "optional tensor": optional("x", TENSOR),
    "optional sequence": optional("x", SEQUENCE),
}


@pytest.mark.parametrize("declared", DECLARED)
def test_what_a_model_asks_for_may_be_none(declared: str) -> None:
    proto = model([node("OptionalHasElement", "x", "y")], [DECLARED[declared]], [value("y", BOOL)])
    made = session(proto)
    there: Any = [ramp(2)] if "sequence" in declared else ramp(2)
    for given, answer in ((there, True), (None, False), (there, True)):
        assert made.run(None, {"x": given})[0] == answer
    if "optional" not in declared:
        with pytest.raises(tenonnx.InvalidArgument):
            made.run(None, {})


def test_what_a_model_asks_for_may_be_read_in_a_branch() -> None:
    there = graph([node("Add", "x x", "a")], [], [value("a")])
    absent = graph([node("Neg", "w", "b")], [], [value("b")], {"w": ramp(1) + 7})
    nodes = [
        node("OptionalHasElement", "x", "h"),
        node("If", "h", "y", then_branch=there, else_branch=absent),
    ]
    made = session(model(nodes, [value("x", FLOAT, None)], [value("y")]))
    for _ in range(4):  # recorded, and replayed
        assert made.run(None, {"x": ramp(2)})[0].tolist() == [0, 2]
        assert made.run(None, {"x": None})[0].tolist() == [-7]


def test_none_for_any_other_input_is_refused() -> None:
    proto = model([node("Neg", "x", "y")], [value("x", FLOAT, [2])], [value("y")])
    with pytest.raises(tenonnx.InvalidArgument, match="got None"):
        session(proto).run(None, {"x": None})


def test_optionals_of_sequences_have_no_shape() -> None:
    proto = model(
        [node("Identity", "x", "y")], [DECLARED["optional sequence"]], [optional("y", SEQUENCE)]
    )
    made = session(proto)
    assert [arg.shape for arg in (*made.get_inputs(), *made.get_outputs())] == [[], []]
