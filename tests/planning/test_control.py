"""If, Loop and functions with graphs: nested code that shares the outer graph's values."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from control_models import X, body, loop_model, run
from onnx import helper

import tenonnx
from models import BOOL, FLOAT, INT64, graph, model, node, value
from tenonnx.process import interruption


@pytest.mark.parametrize("condition", [True, False])
def test_if_reads_outer_values(condition: bool) -> None:
    then = graph([node("Add", "x x", "t")], [], [value("t")])
    other = graph([node("Mul", "x x", "e")], [], [value("e")])
    proto = model(
        [node("If", "c", "y", then_branch=then, else_branch=other)],
        [value("c", BOOL, []), value("x", FLOAT, [4])],
        [value("y")],
    )
    (y,) = run(proto, c=np.array(condition), x=X)
    np.testing.assert_array_equal(y, X + X if condition else X * X)


def test_if_branches_may_hand_out_outer_values_and_weights() -> None:
    then = graph([node("Identity", "x", "t")], [], [value("t")])
    other = graph([], [], [value("w")], {"w": X * 7})
    proto = model(
        [node("If", "c", "y", then_branch=then, else_branch=other)],
        [value("c", BOOL, []), value("x", FLOAT, [4])],
        [value("y")],
    )
    session = tenonnx.InferenceSession(proto)
    np.testing.assert_array_equal(session.run(None, {"c": np.array(True), "x": X})[0], X)
    np.testing.assert_array_equal(session.run(None, {"c": np.array(False), "x": X})[0], X * 7)


def test_condition_of_several_elements_is_refused() -> None:
    branch = graph([node("Identity", "x", "t")], [], [value("t")])
    proto = model(
        [node("If", "c", "y", then_branch=branch, else_branch=branch)],
        [value("c", BOOL, [2]), value("x", FLOAT, [4])],
        [value("y")],
    )
    with pytest.raises(tenonnx.RuntimeException, match=r"If 'y'.*condition has shape \(2,\)"):
        run(proto, c=np.array([True, False]), x=X)


def test_loop_carries_state_and_collects_scan_outputs() -> None:
    nodes = [node("Add", "a x", "b"), node("Identity", "cond", "go"), node("Relu", "b", "s")]
    inner = body(nodes, [value("b", FLOAT, [4]), value("s", FLOAT, [4])])
    proto = loop_model(inner, "n _ a0", [value("y"), value("ys")])
    y, ys = run(proto, n=np.array(3), a0=X, x=X)
    np.testing.assert_array_equal(y, 4 * X)
    np.testing.assert_array_equal(ys, [np.maximum(k * X, 0) for k in (2, 3, 4)])


def test_loop_stops_by_condition_with_no_trip_count() -> None:
    limit = np.array(10.0, np.float32)
    nodes = [
        node("Add", "a x", "b"),
        node("ReduceMax", "b", "m", keepdims=0),
        node("Less", "m limit", "go"),
    ]
    proto = loop_model(body(nodes, [value("b", FLOAT, [4])]), "_ _ a0", [value("y")])
    proto.graph.initializer.append(onnx.numpy_helper.from_array(limit, "limit"))
    (y,) = run(proto, a0=X, x=X)
    np.testing.assert_array_equal(y, 3 * X)


@pytest.mark.parametrize("feeds", [{"n": 0, "c": True}, {"n": 5, "c": False}])
def test_loop_of_no_iterations(feeds: dict[str, Any]) -> None:
    nodes = [node("Add", "a x", "b"), node("Identity", "cond", "go"), node("Relu", "b", "s")]
    inner = body(nodes, [value("b", FLOAT, [4]), value("s", FLOAT, [4])])
    proto = loop_model(inner, "n c a0", [value("y"), value("ys")])
    given = {"n": np.array(feeds["n"]), "c": np.array(feeds["c"])}
    y, ys = run(proto, a0=X, x=X, **given)
    np.testing.assert_array_equal(y, X)
    assert ys.shape == (0, 4)
    assert ys.dtype == np.float32


@pytest.mark.parametrize("level", [0, 99])
@pytest.mark.parametrize(
    ("shape", "made"),
    [([], (3,)), (None, (3,)), ([1], (3, 1)), (["n"], (3, 1)), ([-1], (3, 1)), ([1, 1], (3, 1))],
)
def test_iteration_numbers_have_the_rank_that_a_body_declares(
    shape: Any, made: tuple[int, ...], level: int
) -> None:
    """As in onnxruntime 1.32, which refuses bodies that declare no shape at all."""
    inner = graph(
        [node("Concat", "i i", "t", axis=0) if len(made) > 1 else node("Identity", "i", "t")],
        [value("i", INT64, shape), value("c", BOOL, [])],
        [value("c", BOOL, []), value("i", INT64, None), value("t", INT64, None)],
    )
    proto = model(
        [node("Loop", "n _", "y z", body=inner)],
        [value("n", INT64, None)],
        [value("y", INT64, None), value("z", INT64, None)],
    )
    options = tenonnx.SessionOptions(graph_optimization_level=level)
    session = tenonnx.InferenceSession(proto, options)
    for count in (np.array(3), np.array([3])):
        y, z = session.run(None, {"n": count})
        assert y.shape == made
        assert z.shape == ((3, 2) if len(made) > 1 else made)
        assert y.ravel().tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("shape", "given", "made"),
    [
        ([], (), (3,)),
        ([1], (1,), (3, 1)),
        (["n"], (1,), (3, 1)),
        (None, (), (3,)),
        (None, (1,), (3, 1)),
    ],
)
def test_conditions_have_the_rank_that_a_body_declares(
    shape: Any, given: tuple[int, ...], made: tuple[int, ...]
) -> None:
    """As in onnxruntime 1.32; without a declaration, that of the first condition."""
    inner = graph(
        [node("Identity", "c", "t")],
        [value("i", INT64, []), value("c", BOOL, shape)],
        [value("c", BOOL, shape), value("t", BOOL, None)],
    )
    proto = model(
        [node("Loop", "n go", "y", body=inner)],
        [value("n", INT64, []), value("go", BOOL, None)],
        [value("y", BOOL, None)],
    )
    (y,) = run(proto, n=np.array(3), go=np.ones(given, bool))
    assert y.shape == made
    assert y.all()


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_if_takes_conditions_of_one_element(shape: tuple[int, ...]) -> None:
    one, two = (graph([], [], [value(n, FLOAT, [])], {n: np.float32(n == "b")}) for n in "ab")
    branch = node("If", "c", "y", then_branch=one, else_branch=two)
    proto = model([branch], [value("c", BOOL, None)], [value("y", FLOAT, [])])
    assert run(proto, c=np.ones(shape, bool)) == [0]
    assert run(proto, c=np.zeros(shape, bool)) == [1]


def test_state_that_swaps_places() -> None:
    inner = graph(
        [node("Identity", "cond", "go")],
        [
            value("i", INT64, []),
            value("cond", BOOL, []),
            value("a", FLOAT, [4]),
            value("b", FLOAT, [4]),
        ],
        [value("go", BOOL, []), value("b", FLOAT, [4]), value("a", FLOAT, [4])],
    )
    proto = model(
        [node("Loop", "n _ p q", "y z", body=inner)],
        [value("n", INT64, []), value("p", FLOAT, [4]), value("q", FLOAT, [4])],
        [value("y"), value("z")],
    )
    y, z = run(proto, n=np.array(3), p=X, q=2 * X)
    np.testing.assert_array_equal(y, 2 * X)
    np.testing.assert_array_equal(z, X)


def test_loops_nest_and_read_the_outermost_values() -> None:
    inner = graph(
        [node("Add", "b x", "b2"), node("Identity", "c2", "go2")],
        [value("j", INT64, []), value("c2", BOOL, []), value("b", FLOAT, [4])],
        [value("go2", BOOL, []), value("b2", FLOAT, [4])],
    )
    nodes = [node("Loop", "n _ a", "b3", body=inner), node("Identity", "cond", "go")]
    proto = loop_model(body(nodes, [value("b3", FLOAT, [4])]), "n _ a0", [value("y")])
    (y,) = run(proto, n=np.array(3), a0=X, x=X)
    np.testing.assert_array_equal(y, 10 * X)


def test_loops_nested_too_deep_are_refused() -> None:
    deepest = graph(
        [node("Identity", "cond", "go"), node("Identity", "a", "b")],
        [value("i", INT64, []), value("cond", BOOL, []), value("a", FLOAT, [4])],
        [value("go", BOOL, []), value("b", FLOAT, [4])],
    )
    for level in range(30):
        deepest = graph(
            [node("Loop", f"n _ a{level}", "b", body=deepest), node("Identity", "cond", "go")],
            [value("i", INT64, []), value("cond", BOOL, []), value(f"a{level}", FLOAT, [4])],
            [value("go", BOOL, []), value("b", FLOAT, [4])],
        )
    proto = loop_model(deepest, "n _ a0", [value("y")])
    with pytest.raises(tenonnx.NotSupported, match="nested deeper"):
        tenonnx.InferenceSession(proto)


def test_function_with_a_branch_is_inlined() -> None:
    then = graph([node("Neg", "p", "t")], [], [value("t")])
    other = graph([node("Relu", "p", "e")], [], [value("e")])
    function = helper.make_function(
        "here",
        "Flip",
        ["p", "q"],
        ["r"],
        [node("If", "q", "r", then_branch=then, else_branch=other)],
        [helper.make_opsetid("", 21)],
    )
    proto = model(
        [node("Flip", "x c", "y", domain="here")],
        [value("x", FLOAT, [4]), value("c", BOOL, [])],
        [value("y")],
        domains={"here": 1},
        functions=[function],
    )
    np.testing.assert_array_equal(run(proto, x=X, c=np.array(True))[0], -X)
    np.testing.assert_array_equal(run(proto, x=X, c=np.array(False))[0], np.maximum(X, 0))


def test_functions_of_another_opset_version_keep_theirs() -> None:
    function = helper.make_function(
        "here",
        "Squash",
        ["p"],
        ["r"],
        [helper.make_node("Softmax", ["p"], ["r"])],
        [helper.make_opsetid("", 11)],
    )
    proto = model(
        [node("Squash", "x", "y", domain="here"), node("Softmax", "x", "z")],
        [value("x", FLOAT, [2, 2, 2])],
        [value("y"), value("z")],
        domains={"here": 1},
        functions=[function],
    )
    x = np.arange(8, dtype=np.float32).reshape(2, 2, 2)
    y, z = run(proto, x=x)
    exp = np.exp(x)
    # Softmax-11 flattens to two dimensions after axis 1; Softmax-13 takes the last axis alone.
    np.testing.assert_allclose(y, exp / exp.sum((1, 2), keepdims=True), rtol=1e-6)
    np.testing.assert_allclose(z, exp / exp.sum(-1, keepdims=True), rtol=1e-6)


def test_branches_with_different_outputs_are_refused() -> None:
    twice = [node("Relu", "x", "t"), node("Neg", "x", "u")]
    then = graph(twice, [], [value("t"), value("u")])
    other = graph([node("Neg", "x", "e")], [], [value("e")])
    nodes = [node("If", "c", "y", then_branch=then, else_branch=other)]
    proto = model(nodes, [value("c", BOOL, []), value("x", FLOAT, [4])], [value("y")])
    with pytest.raises(tenonnx.InvalidGraph, match="then_branch has 2 outputs, the node needs 1"):
        tenonnx.InferenceSession(proto)


def test_loop_body_that_does_not_fit_is_refused() -> None:
    inner = body([node("Identity", "cond", "go")], [])
    proto = loop_model(inner, "n _ a0", [value("y")])
    with pytest.raises(tenonnx.InvalidGraph, match="body makes 0 values, the node needs 1"):
        tenonnx.InferenceSession(proto)


def test_recursive_functions_are_refused() -> None:
    function = helper.make_function(
        "here",
        "Again",
        ["p"],
        ["r"],
        [helper.make_node("Again", ["p"], ["r"], domain="here")],
        [helper.make_opsetid("here", 1)],
    )
    proto = model(
        [node("Again", "x", "y", domain="here")],
        [value("x", FLOAT, [4])],
        [value("y")],
        domains={"here": 1},
        functions=[function],
    )
    with pytest.raises(tenonnx.InvalidGraph, match="Cyclic"):
        tenonnx.InferenceSession(proto)


LOOPS = {
    "Loop": """g (int64 n, float[k] x) => (float[k] y) {
        t = Constant<value = bool {1}>()
        y = Loop(n, t, x) <body = b (int64 i, bool c, float[k] v) => (bool d, float[k] w)
            { d = Identity(c)  w = Tanh(v) }>
    }""",
    "Scan": """g (float[k] x, float[n] z) => (float[k] y) {
        y = Scan<num_scan_inputs = 1, body = b (float[k] v, float i) => (float[k] w)
            { w = Add(v, i) }>(x, z)
    }""",
}


@pytest.mark.parametrize("operator", LOOPS)
def test_a_loop_asks_the_limits_of_its_thread(operator: str) -> None:
    class Third:
        asked = 0

        def check(self) -> None:
            self.asked += 1
            if self.asked > 3:
                raise interruption.Stopped("that is enough")

    text = f'<ir_version: 10, opset_import: ["": 21]> {LOOPS[operator]}'
    session = tenonnx.InferenceSession(onnx.parser.parse_model(text), providers=["cpu"])
    more = {"n": np.array(1000)} if operator == "Loop" else {"z": np.ones(1000, np.float32)}
    with interruption.limited(Third()), pytest.raises(interruption.Stopped, match="enough"):
        session.run(None, {"x": np.ones(3, np.float32), **more})
    session.run(None, {"x": np.ones(3, np.float32), **more})
