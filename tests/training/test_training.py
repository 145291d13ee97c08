"""Gradients: every rule against finite differences, and the graphs that Gradient may name."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tenonnx
from models import node, value
from tenonnx_training.rules import FLAT, GRADIENT_RULES

DOUBLE = TensorProto.DOUBLE
DOMAIN = "ai.onnx.preview.training"
RNG = np.random.default_rng(3)
STEP = 1e-6


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.standard_normal(shape)


A, ROW, COLUMN = normal(2, 3, 4), normal(4), normal(3, 1)
POSITIVE = np.abs(A) + 0.5
AXES = np.array([0, -1])

CASES: dict[str, tuple[str, list[Any], dict[str, Any]]] = {
    "Add": ("Add", [A, COLUMN], {}),
    "Sub": ("Sub", [ROW, A], {}),
    "Mul": ("Mul", [A, COLUMN], {}),
    "Mul scalar": ("Mul", [normal(), A], {}),
    "Mul outer": ("Mul", [COLUMN, ROW], {}),
    "Div": ("Div", [COLUMN, POSITIVE], {}),
    "Pow": ("Pow", [POSITIVE, COLUMN], {}),
    "Pow to an integer": ("Pow", [A, np.array([3])], {}),
    "Where": ("Where", [A > 0, COLUMN, ROW], {}),
    "MatMul": ("MatMul", [A, normal(4, 5)], {}),
    "MatMul batches": ("MatMul", [A, normal(5, 1, 4, 2)], {}),
    "MatMul vector": ("MatMul", [A, ROW], {}),
    "MatMul vectors": ("MatMul", [ROW, normal(4)], {}),
    "MatMul row": ("MatMul", [normal(3), A], {}),
    "Einsum": ("Einsum", [A, normal(4, 5), ROW], {"equation": "bij,jk,j->kb i"}),
    "Expand": ("Expand", [COLUMN, np.array([2, 3, 4])], {}),
    **{
        f"Gemm {a}{b}": (
            "Gemm",
            [normal(2, 3) if a else normal(3, 2), normal(4, 2) if b else normal(2, 4), ROW],
            {"transA": a, "transB": b, "alpha": 0.5, "beta": 2.0},
        )
        for a in (0, 1)
        for b in (0, 1)
    },
    "ReduceSum": ("ReduceSum", [A, AXES], {"keepdims": 0}),
    "ReduceSum of all": ("ReduceSum", [A], {}),
    "ReduceSum of nothing": ("ReduceSum", [A], {"noop_with_empty_axes": 1}),
    "ReduceMean": ("ReduceMean", [A, AXES], {}),
    "ReduceMean of all": ("ReduceMean", [A], {"keepdims": 0}),
    "Softmax": ("Softmax", [A], {"axis": 1}),
    "Transpose": ("Transpose", [A], {"perm": [1, 2, 0]}),
    "Transpose reversed": ("Transpose", [A], {}),
    "Reshape": ("Reshape", [A, np.array([0, -1])], {}),
    "Squeeze": ("Squeeze", [COLUMN, np.array([1])], {}),
    "Unsqueeze": ("Unsqueeze", [COLUMN, np.array([0, 3])], {}),
    "Flatten": ("Flatten", [A], {}),
    "Identity": ("Identity", [A], {}),
    "CastLike": ("CastLike", [A, ROW], {}),
    "Log": ("Log", [POSITIVE], {}),
    "Sqrt": ("Sqrt", [POSITIVE], {}),
    **{op: (op, [A], {}) for op in ("Neg", "Exp", "Relu", "Sigmoid", "Tanh")},
}


def gradient(xs: str, y: str, outputs: str, inputs: str = "", zs: str = "") -> onnx.NodeProto:
    names = (inputs or f"{xs} {zs}").split()
    others = {"zs": zs.split()} if zs else {}
    return helper.make_node(
        "Gradient", names, outputs.split(), domain=DOMAIN, xs=xs.split(), y=y, **others
    )


def session(
    nodes: list[onnx.NodeProto],
    feeds: dict[str, Any],
    outputs: str,
    opset: int = 18,
    options: tenonnx.SessionOptions | None = None,
    **weights: Any,
) -> tenonnx.InferenceSession:
    inputs = [
        value(name, helper.np_dtype_to_tensor_dtype(array.dtype), [None] * array.ndim)
        for name, array in feeds.items()
    ]
    graph = helper.make_graph(
        nodes,
        "test",
        inputs,
        [onnx.ValueInfoProto(name=name) for name in outputs.split()],
        [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(DOMAIN, 1)]
    return tenonnx.InferenceSession(helper.make_model(graph, opset_imports=imports), options)


def run(nodes: list[onnx.NodeProto], feeds: dict[str, Any], outputs: str, **rest: Any) -> Any:
    return session(nodes, feeds, outputs, **rest).run(None, feeds)


def slopes(run: Any, feeds: dict[str, Any], name: str) -> np.ndarray[Any, Any]:
    """The change of the sum of the output, per element of an input, by central differences."""
    found = np.zeros(feeds[name].shape)
    for place in np.ndindex(found.shape):
        sums = []
        for step in (STEP, -STEP):
            moved = {key: array.copy() for key, array in feeds.items()}
            moved[name][place] += step
            sums.append(run(moved).sum())
        found[place] = (sums[0] - sums[1]) / (2 * STEP)
    return found


def test_every_rule_is_tested() -> None:
    assert {op for op, _, _ in CASES.values()} == GRADIENT_RULES.keys()
    assert not GRADIENT_RULES.keys() & FLAT


@pytest.mark.parametrize("name", CASES)
def test_rule(name: str) -> None:
    """First and second derivatives: of a sum with unequal weights, and of what comes out."""
    op, arrays, attributes = CASES[name]
    feeds = {f"x{i}": array for i, array in enumerate(arrays)}
    xs = [x for x, array in feeds.items() if array.dtype == np.float64]
    names = " ".join(xs)
    firsts = " ".join(f"d{x}" for x in xs)
    nodes = [
        node(op, " ".join(feeds), "y", **attributes),
        node("Sin", "s", "w"),
        node("Mul", "y w", "p"),
        gradient(names, "p", firsts),
        *(node("Mul", f"d{x} d{x}", f"q{x}") for x in xs),
        *(gradient(names, f"q{x}", " ".join(f"d{x}{z}" for z in xs)) for x in xs),
    ]
    seconds = " ".join(f"d{x}{z}" for x in xs for z in xs)
    probe = session(nodes[:1], feeds, "y")
    shape = probe.run(None, feeds)[0].shape
    s = np.arange(np.prod(shape), dtype=float).reshape(shape)
    plan = session(nodes, feeds, f"p {firsts} {seconds}", s=s)
    outputs = dict(
        zip(["p", *firsts.split(), *seconds.split()], plan.run(None, feeds), strict=True)
    )
    for x in xs:
        assert outputs[f"d{x}"].shape == feeds[x].shape
        expected = slopes(lambda f: plan.run(["p"], f)[0], feeds, x)
        np.testing.assert_allclose(outputs[f"d{x}"], expected, rtol=1e-5, atol=1e-7)
        for z in xs:
            curve = slopes(lambda f, x=x: plan.run([f"d{x}"], f)[0] ** 2, feeds, z)
            np.testing.assert_allclose(outputs[f"d{x}{z}"], curve, rtol=1e-4, atol=1e-5)


def test_a_power_of_zero_does_not_depend_on_the_exponent() -> None:
    feeds = {"a": np.zeros(2), "b": np.array([1.0, 2.0])}
    da, db = run([node("Pow", "a b", "y"), gradient("a b", "y", "da db")], feeds, "da db")
    np.testing.assert_array_equal(da, [1, 0])
    np.testing.assert_array_equal(db, [0, 0])


SQUARE = [node("Mul", "x x", "h"), node("Mul", "h k", "y")]
FEEDS = {"x": np.array([1.0, -2.0]), "k": np.array(3.0)}


def test_gradient_by_an_intermediate_tensor() -> None:
    (dh,) = run([*SQUARE, gradient("h", "y", "dh", zs="k")], FEEDS, "dh")
    np.testing.assert_array_equal(dh, [3, 3])


def test_gradient_at_other_values_than_the_graphs_own() -> None:
    feeds = {**FEEDS, "at": np.array([5.0, 6.0])}
    nodes = [*SQUARE, gradient("x", "y", "dx", inputs="at k", zs="k")]
    y, dx = run(nodes, feeds, "y dx")
    np.testing.assert_array_equal(y, [3, 12])
    np.testing.assert_array_equal(dx, [30, 36])


def test_gradient_node_before_the_nodes_that_it_differentiates() -> None:
    (dx,) = run([gradient("x", "y", "dx"), *SQUARE], FEEDS, "dx")
    np.testing.assert_array_equal(dx, [6, -12])


def test_skipped_outputs_and_tensors_that_do_not_matter() -> None:
    skipping = gradient("x k n", "y", "dx dk dn")
    skipping.output[0] = ""
    dk, dn = run([*SQUARE, skipping], {**FEEDS, "n": np.ones((2, 2))}, "dk dn")
    assert dk == 5
    np.testing.assert_array_equal(dn, np.zeros((2, 2)))


@pytest.mark.parametrize("level", [0, 99])
def test_lowering_runs_at_every_level(level: int) -> None:
    options = tenonnx.SessionOptions(graph_optimization_level=tenonnx.GraphOptimizationLevel(level))
    made = session([*SQUARE, gradient("x", "y", "dx")], FEEDS, "dx", options=options)
    assert made.transforms[0].name == "lower-gradients"
    assert all(node.domain == "" for node in made.model.graph)
    np.testing.assert_array_equal(made.run(None, FEEDS)[0], [6, -12])


def test_only_nodes_that_are_needed_are_added() -> None:
    options = tenonnx.SessionOptions(graph_optimization_level=tenonnx.GraphOptimizationLevel(0))
    nodes = [node("Pow", "x k", "y"), gradient("x", "y", "dx")]
    made = session(nodes, FEEDS, "dx", options=options)
    assert "Log" not in [n.op_type for n in made.model.graph]


def test_training_in_a_loop() -> None:
    """Gradient descent towards the line through four points."""
    inputs = [value("i", TensorProto.INT64, []), value("on", TensorProto.BOOL, [])]
    inputs.append(value("w", DOUBLE, [2, 1]))
    body = helper.make_graph(
        [
            node("MatMul", "x w", "p"),
            node("Sub", "p t", "e"),
            node("Mul", "e e", "s"),
            node("ReduceMean", "s", "loss", keepdims=0),
            gradient("w", "loss", "g"),
            node("Mul", "g rate", "step"),
            node("Sub", "w step", "better"),
            node("Identity", "on", "go"),
        ],
        "step",
        inputs,
        [value("go", TensorProto.BOOL, []), value("better", DOUBLE, [2, 1])],
    )
    x = np.column_stack([np.arange(4.0), np.ones(4)])
    feeds = {"n": np.array(2000), "w0": np.zeros((2, 1)), "x": x, "t": x @ [[2.0], [-1.0]]}
    (w,) = run([node("Loop", "n _ w0", "y", body=body)], feeds, "y", rate=np.array(0.05))
    np.testing.assert_allclose(w, [[2], [-1]], rtol=1e-6)


REFUSED = {
    "an operator without a rule": ([node("Cos", "x", "y")], "x", "", r"no rule for Cos 'y'"),
    "a part without a rule": (
        [node("Einsum", "x", "y", equation="i->")], "x", "", r"Einsum 'y'.*sums over one alone",
    ),
    "an unknown name": (SQUARE, "z", "", r"names 'z', which its graph lacks"),
    "too few inputs": (SQUARE, "x", "k", r"has 1 inputs for the 2 tensors"),
    "the gradient of itself": (
        [gradient("x", "dx", "y")], "x", "", r"depends on its own result",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    nodes, xs, zs, message = REFUSED[name]
    nodes = [*nodes, gradient(xs, "y", "dx", inputs="x", zs=zs)]
    with pytest.raises((tenonnx.NotSupported, tenonnx.InvalidGraph), match=message):
        session(nodes, FEEDS, "dx")


def test_versions_that_broadcast_by_attribute_are_refused() -> None:
    with pytest.raises(tenonnx.NotSupported, match="no rule for Mul 'y'"):
        session([*SQUARE, gradient("x", "y", "dx")], FEEDS, "dx", opset=6)
