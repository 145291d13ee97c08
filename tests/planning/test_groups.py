"""Groups that providers claim: convex, in order, compiled as segments of their own."""

# ruff: noqa: ARG005 - signatures are those of the interface

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator

import tenonnx
from models import FLOAT, model, node, value
from tenonnx import EPFail, Provider, Step
from tenonnx.planning.units import Units
from tenonnx.segments.grouping import chains

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Add": np.add,
    "Mul": np.multiply,
    "Neg": np.negative,
    "Abs": np.abs,
}

Claim = Callable[[Sequence[ir.Node]], Any]


def opened(
    proto: onnx.ModelProto, claim: Claim | None, least: int = 1
) -> tuple[tenonnx.InferenceSession, list[list[str]]]:
    """Return a session on a claiming provider before the CPU, and the segments that it got."""
    segments: list[list[str]] = []

    class Claiming(Provider):
        name = "ClaimingExecutionProvider"
        min_group_nodes = least

        def supports(self, node: ir.Node) -> Any:
            return node.op_type in FUNCTIONS or "it has four operators"

        def compile(self, segment: Any) -> list[Step]:
            segments.append([each.outputs[0].name for each in segment.nodes])
            return [
                Step(FUNCTIONS[each.op_type], each.inputs, each.outputs, (each,))
                for each in segment.nodes
            ]

    if claim is not None:
        chosen = claim
        Claiming.claim = lambda self, nodes: chosen(nodes)  # type: ignore[method-assign]

    class Plugin:
        @tenonnx.hookimpl
        def register_providers(self, register: Any) -> None:
            register(Claiming)

    plugins = tenonnx.PluginSet()
    plugins.register(Plugin())
    options = tenonnx.SessionOptions(plugins=plugins, graph_optimization_level=0)
    return tenonnx.InferenceSession(proto, options, providers=[Claiming.name, "cpu"]), segments


def interleaved() -> onnx.ModelProto:
    """Two branches, one of which the provider runs; in their middle it does not."""
    nodes = [
        node("Neg", "x", "a"),
        node("Exp", "x", "p"),
        node("Abs", "a", "b"),
        node("Sin", "p", "q"),
        node("Mul", "b a", "c"),
        node("Cos", "c", "d"),
        node("Add", "d c", "e"),
        node("Add", "e q", "y"),
    ]
    return model(nodes, [value("x", FLOAT, [4])], [value("y", FLOAT, [4])])


X = np.array([-1, 0, 0.5, 2], np.float32)


def expected(proto: onnx.ModelProto) -> Any:
    return ReferenceEvaluator(proto).run(None, {"x": X})[0]


def test_without_claims_consecutive_nodes_are_segments() -> None:
    session, segments = opened(interleaved(), None)
    assert segments == [["a"], ["b"], ["c"], ["e", "y"]]
    np.testing.assert_allclose(session.run(None, {"x": X})[0], expected(interleaved()), rtol=1e-6)


def test_all_nodes_as_one_group_are_as_few_segments_as_can_be() -> None:
    session, segments = opened(interleaved(), lambda nodes: [nodes])
    assert segments == [["a", "b", "c"], ["e", "y"]]  # Cos waits for c, and e for Cos
    np.testing.assert_allclose(session.run(None, {"x": X})[0], expected(interleaved()), rtol=1e-6)
    assert session.placement.counts() == {"ClaimingExecutionProvider": 5, "CPUExecutionProvider": 3}


def test_small_groups_and_unclaimed_nodes_go_to_the_next_provider() -> None:
    session, segments = opened(interleaved(), lambda nodes: [nodes[:3]], least=2)
    assert segments == [["a", "b", "c"]]
    reasons = {each.node.outputs[0].name: each.reasons for each in session.placement}
    why = {name: next(iter(each.values()), "") for name, each in reasons.items()}
    assert why["e"] == why["y"] == "it claims no group with this node"
    assert why["p"] == "it has four operators"
    session, segments = opened(interleaved(), lambda nodes: [nodes], least=3)
    assert segments == [["a", "b", "c"]]
    (declined,) = {tuple(e.reasons.values()) for e in session.placement if e.node.op_type == "Add"}
    assert declined == ("its group of 2 is smaller than 3 nodes",)


def test_groups_that_wait_for_each_other() -> None:
    nodes = [
        node("Neg", "x", "a"),
        node("Abs", "x", "b"),
        node("Add", "b a", "c"),
        node("Mul", "a b", "d"),
        node("Add", "c d", "y"),
    ]
    proto = model(nodes, [value("x", FLOAT, [4])], [value("y", FLOAT, [4])])
    session, segments = opened(proto, lambda n: [[n[0], n[2]], [n[1], n[3]]])
    assert segments in ([["b"], ["a", "c"], ["d"]], [["a"], ["b", "d"], ["c"]])
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], expected(proto))


@pytest.mark.parametrize(
    ("claim", "said"),
    [
        (
            lambda nodes: {}["x"],
            "failed when asked for groups of nodes: KeyError: 'x' (test_groups",
        ),
        (lambda nodes: [["MatMul"]], "claims 'MatMul'; expected groups of nodes"),
        (lambda nodes: 3, "failed when asked for groups of nodes: TypeError"),
    ],
)
def test_a_broken_claim(claim: Claim, said: str) -> None:
    with pytest.raises(EPFail) as caught:
        opened(interleaved(), claim)
    assert said in str(caught.value)


def test_chains() -> None:
    nodes = [
        node("MatMul", "x w", "a"),
        node("Add", "a b", "c"),
        node("Relu", "c", "d"),
        node("MatMul", "d w", "e"),
        node("Relu", "e", "f"),
        node("MatMul", "f w", "g"),
        node("Add", "g e2", "h"),
        node("Add", "h g", "y"),
    ]
    inputs = [value(name, FLOAT, [4, 4]) for name in ("x", "w", "b", "e2")]
    read = ir.from_proto(model(nodes, inputs, [value("y", FLOAT, [4, 4])])).graph
    found = [
        [each.outputs[0].name for each in group] for group in chains(read, "MatMul", "Add", "Relu")
    ]
    assert found == [["a", "c", "d"], ["e", "f"], ["g"]]
    pairs = chains(read, lambda each: each.op_type == "Add", "Add", least=2)
    assert [[each.outputs[0].name for each in group] for group in pairs] == [["h", "y"]]


@given(st.data())
def test_units_stay_an_order_in_which_the_graph_can_run(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 14))
    values = [ir.Value(name="x")]
    nodes = []
    for number in range(count):
        read = data.draw(st.lists(st.sampled_from(values), min_size=1, max_size=2))
        made = ir.Node("", "Sum", read, name=str(number))
        nodes.append(made)
        values.append(made.outputs[0])
    units, free = Units(nodes), set(nodes)
    parts = []
    for group in data.draw(st.lists(st.sets(st.sampled_from(nodes)), max_size=4)):
        for part in units.convex(each for each in group if each in free):
            units.join(part, None)  # type: ignore[arg-type]  # whose is not looked at
            parts.append(part)
            free.difference_update(part)
    units.number()
    order = [each for unit in units for each in unit.nodes]
    assert sorted(map(id, order)) == sorted(map(id, nodes))
    place = {each: number for number, each in enumerate(order)}
    for each in nodes:
        assert all(place[v.producer()] < place[each] for v in each.inputs if v and v.producer())  # type: ignore[index]
    for part in parts:
        assert units.unit(part[0]).nodes == part


def test_one_convex_part_is_enough_where_nothing_comes_back() -> None:
    x = ir.Value(name="x")
    first = ir.Node("", "Neg", [x])
    other = ir.Node("", "Exp", [x])
    second = ir.Node("", "Abs", [first.outputs[0]])
    last = ir.Node("", "Add", [second.outputs[0], other.outputs[0]])
    units = Units([first, other, second, last])
    assert units.convex([first, second, last]) == [[first, second, last]]
