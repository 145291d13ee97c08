"""Operators of plug-ins that hold graphs: a kernel gets each as a function."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import tenonnx
from hooks import Operators, options_with
from models import BOOL, FLOAT, INT64, graph, model, node, value

X = np.array([1, -2, 3, 4], np.float32)
table = tenonnx.OperatorTable("com.example")


@table.op("Repeat", host=(0,))
def repeat(
    xp: tenonnx.Namespace, times: Any, x: Any, *, body: tenonnx.Body, until: float = 1e9
) -> Any:
    for _ in range(int(times)):
        (x,) = body(x)
        if xp.abs(x).max() > until:
            break
    return x


@table.op("Names")
def names(xp: tenonnx.Namespace, x: Any, *, body: tenonnx.Body) -> Any:
    found = [*body.graph.inputs, *body.graph.outputs]
    assert body(x)[0].shape == x.shape
    return xp.array([f"{v.name}:{v.dtype.name}:{v.shape}" for v in found if v.dtype], object)


def body_of(*nodes: Any, output: str = "b", weights: Any = None) -> Any:
    return graph(list(nodes), [value("a", FLOAT, [4])], [value(output, FLOAT, [4])], weights)


def repeat_model(body: Any, op: str = "Repeat", kind: int = FLOAT, **weights: Any) -> Any:
    nodes = [
        node("Neg", "x", "outer"),
        node(op, "n outer" if op == "Repeat" else "x", "y", domain="com.example", body=body),
    ]
    inputs = [value("n", INT64, []), value("x", FLOAT, [4])]
    return model(nodes, inputs, [value("y", kind)], weights, domains={"com.example": 1})


def session_of(proto: Any) -> tenonnx.InferenceSession:
    return tenonnx.InferenceSession(proto, options_with(table, hooks=Operators))


@pytest.mark.parametrize("times", [0, 1, 5])
def test_a_kernel_calls_its_body(times: int) -> None:
    body = body_of(
        node("Add", "a outer", "s"), node("Mul", "s w", "b"), weights={"w": np.float32([0.5])}
    )
    session = session_of(repeat_model(body))
    (y,) = session.run(None, {"n": np.array(times), "x": X})
    expected = -X
    for _ in range(times):
        expected = (expected - X) * np.float32(0.5)
    np.testing.assert_array_equal(y, expected)


def test_a_body_tells_its_inputs_and_outputs() -> None:
    session = session_of(repeat_model(body_of(node("Relu", "a", "b")), "Names", 8))
    (y,) = session.run(None, {"n": np.array(1), "x": X})
    assert y.tolist() == ["a:float32:(4,)", "b:float32:(4,)"]


def test_a_weight_in_a_body_is_where_it_was() -> None:
    big = np.arange(1 << 20, dtype=np.float32)
    body = body_of(
        node("Gather", "big i", "g"),
        node("Add", "a g", "b"),
        weights={"big": big, "i": np.array([3])},
    )
    before = tenonnx.default_registry().report().private
    session = session_of(repeat_model(body))
    (y,) = session.run(None, {"n": np.array(2), "x": X})
    np.testing.assert_array_equal(y, -X + 6)
    assert session.registry.report().private - before < big.nbytes


def test_bodies_hold_control_flow_and_stand_in_it() -> None:
    then = graph([node("Add", "a a", "t")], [], [value("t")])
    other = graph([node("Identity", "outer", "e")], [], [value("e")])
    inner = body_of(
        node("ReduceMax", "a", "m", keepdims=0),
        node("Greater", "m zero", "c"),
        node("If", "c", "b", then_branch=then, else_branch=other),
        weights={"zero": np.float32(0)},
    )
    nodes = [
        node("Neg", "x", "outer"),
        node("Repeat", "i s", "r", domain="com.example", body=inner),
    ]
    state = [value("i", INT64, []), value("go", BOOL, []), value("s", FLOAT, [4])]
    loop = graph(
        [*nodes, node("Identity", "go", "on")], state, [value("on", BOOL), value("r", FLOAT, [4])]
    )
    proto = model(
        [node("Loop", "n _ x", "y", body=loop)],
        [value("n", INT64, []), value("x", FLOAT, [4])],
        [value("y", FLOAT, [4])],
        domains={"com.example": 1},
    )
    (y,) = session_of(proto).run(None, {"n": np.array(3), "x": X})
    expected = X
    for times in range(3):
        for _ in range(times):
            expected = expected + expected if expected.max() > 0 else -X
    np.testing.assert_array_equal(y, expected)


def test_an_error_in_a_body_names_its_node() -> None:
    body = body_of(node("Expand", "a outer_shape", "b", name="culprit"))
    proto = repeat_model(body, outer_shape=np.array([3, 3]))
    with pytest.raises(tenonnx.RuntimeException, match="Expand 'culprit'"):
        session_of(proto).run(None, {"n": np.array(1), "x": X})


def test_a_run_in_a_body_can_be_terminated() -> None:
    session = session_of(repeat_model(body_of(node("Relu", "a", "b"))))
    options = tenonnx.RunOptions()
    threading.Timer(0.2, lambda: setattr(options, "terminate", True)).start()
    with pytest.raises(tenonnx.Fail, match="terminate"):
        session.run(None, {"n": np.array(10**9), "x": X}, options)


def test_a_missing_body_is_an_error() -> None:
    proto = repeat_model(body_of(node("Relu", "a", "b")))
    del proto.graph.node[1].attribute[:]
    with pytest.raises(tenonnx.TenonnxError, match="body"):
        session_of(proto)
