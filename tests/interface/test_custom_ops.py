"""Operators from Python functions: the session's own, and the process's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from onnx import helper

import tenonnx
from models import FLOAT, model, node, value
from tenonnx import custom_ops
from tenonnx.operators import OperatorTable

X = np.array([3, 1, 2], np.float32)


@pytest.fixture(autouse=True)
def _global_operators(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    table = OperatorTable()
    monkeypatch.setattr("tenonnx.custom_ops.GLOBAL", table)
    monkeypatch.setattr("tenonnx.plugins.choosing.GLOBAL", table)
    yield
    assert custom_ops.GLOBAL is table


def of_domain(made: Any, version: int = 1, outputs: str = "y") -> Any:
    values = [value(name, FLOAT, None) for name in outputs.split()]
    return model([made], [value("x")], values, domains={"com.example": version})


def call(op: str, inputs: str = "x", outputs: str = "y", **attributes: Any) -> Any:
    return node(op, inputs, outputs, domain="com.example", **attributes)


def test_a_function_is_an_operator_everywhere() -> None:
    @tenonnx.operator("com.example::RunningMax")
    def running_max(x: Any, *, axis: int = 0) -> Any:
        return np.maximum.accumulate(x, axis)

    session = tenonnx.InferenceSession(of_domain(call("RunningMax", axis=0)))
    assert session.run(None, {"x": X})[0].tolist() == [3, 3, 3]
    assert running_max(X).tolist() == [3, 3, 3]
    with pytest.raises(tenonnx.NotSupported, match=r"RunningMax.* has no attribute ax"):
        tenonnx.InferenceSession(of_domain(call("RunningMax", ax=0)))


def test_a_function_is_an_operator_of_one_session() -> None:
    options = tenonnx.SessionOptions()

    @options.operator("com.example::Twice")
    def twice(x: Any) -> Any:
        return x * 2

    proto = of_domain(call("Twice"))
    assert tenonnx.InferenceSession(proto, options).run(None, {"x": X})[0].tolist() == [6, 2, 4]
    with pytest.raises(tenonnx.NotSupported, match=r"com\.example::Twice-1"):
        tenonnx.InferenceSession(proto)
    with pytest.raises(TypeError, match="operators cannot be pickled"):
        options.__getstate__()


def test_versions() -> None:
    options = tenonnx.SessionOptions()
    options.operator("com.example::Op")(lambda x: x + 1)
    options.operator("com.example::Op", since=3)(lambda x: x + 3)
    for version, added in ((1, 1), (2, 1), (3, 3), (7, 3)):
        session = tenonnx.InferenceSession(of_domain(call("Op"), version), options)
        np.testing.assert_array_equal(session.run(None, {"x": X})[0], X + added)


def test_several_outputs_absent_inputs_and_any_number_of_them() -> None:
    options = tenonnx.SessionOptions()

    @options.operator("com.example::MinMax", outputs=2)
    def min_max(x: Any, floor: Any = None) -> tuple[Any, Any]:
        assert floor is None
        return x.min(), x.max()

    @options.operator("com.example::Count")
    def count(*inputs: Any) -> Any:
        return np.float32(len(inputs))

    session = tenonnx.InferenceSession(
        of_domain(call("MinMax", "x", "a b"), outputs="a b"), options
    )
    assert [float(found) for found in session.run(None, {"x": X})] == [1, 3]
    session = tenonnx.InferenceSession(of_domain(call("Count", "x x x")), options)
    assert session.run(None, {"x": X})[0] == 3


def test_a_portable_function_gets_the_namespace() -> None:
    options = tenonnx.SessionOptions()

    @options.operator("com.example::Sorted")
    def ordered(xp: Any, x: Any) -> Any:
        assert xp is np
        return xp.sort(x)

    session = tenonnx.InferenceSession(of_domain(call("Sorted")), options)
    assert session.run(None, {"x": X})[0].tolist() == [1, 2, 3]


def test_a_function_replaces_an_operator_of_onnx() -> None:
    options = tenonnx.SessionOptions()
    options.operator("ai.onnx::Neg", since=13)(lambda x: x * 100)
    proto = model([node("Neg", "x", "y")], [value("x")], [value("y")])
    (y,) = tenonnx.InferenceSession(proto, options).run(None, {"x": X})
    assert y.tolist() == [300, 100, 200]
    (y,) = tenonnx.InferenceSession(proto).run(None, {"x": X})
    assert y.tolist() == [-3, -1, -2]


def test_the_last_one_of_a_name_wins() -> None:
    tenonnx.operator("com.example::Op")(lambda x: x + 1)
    tenonnx.operator("com.example::Op")(lambda x: x + 2)
    session = tenonnx.InferenceSession(of_domain(call("Op")))
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], X + 2)


def test_an_exception_names_the_node() -> None:
    options = tenonnx.SessionOptions()

    @options.operator("com.example::Fails")
    def fails(x: Any) -> Any:
        raise ValueError(f"not with {x.size} elements")

    session = tenonnx.InferenceSession(of_domain(call("Fails", name="culprit")), options)
    with pytest.raises(
        tenonnx.RuntimeException, match=r"Fails 'culprit' \(com.example, opset 1\).*3 elements"
    ):
        session.run(None, {"x": X})


def test_tensors_and_strings_as_attributes() -> None:
    options = tenonnx.SessionOptions()

    @options.operator("com.example::Shift")
    def shift(x: Any, *, by: Any, mode: str) -> Any:
        assert mode == "add"
        return x + by

    made = call("Shift", mode="add")
    made.attribute.append(helper.make_attribute("by", helper.make_tensor("", FLOAT, [1], [5])))
    session = tenonnx.InferenceSession(of_domain(made), options)
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], X + 5)


@pytest.mark.parametrize(
    ("name", "message"),
    [("Op", "named 'domain::Operator'"), ("a::", "'a::"), (abs, "not <built-in")],
)
def test_wrong_names(name: Any, message: str) -> None:
    with pytest.raises(tenonnx.InvalidArgument, match=message):
        tenonnx.operator(name)


def test_a_tuple_for_one_output_is_told() -> None:
    options = tenonnx.SessionOptions()
    options.operator("com.example::Both")(lambda x: (x, x))
    session = tenonnx.InferenceSession(of_domain(call("Both")), options)
    with pytest.raises(tenonnx.RuntimeException, match=r"a tuple of 2 values(.|\n)*outputs=2"):
        session.run(None, {"x": X})


def test_a_function_without_a_signature() -> None:
    with pytest.raises(tenonnx.InvalidArgument, match="wrap it in a function"):
        tenonnx.operator("com.example::Op")(max)


def test_copied_options_do_not_get_what_is_added_later() -> None:
    options = tenonnx.SessionOptions()
    copied = options.copy()
    options.operator("test.later::Twice")(lambda x: 2 * x)
    assert len(options.operators) == 1
    assert not len(copied.operators)
