"""The walk along what an anchor takes with it, and what it says of the nodes that it leaves."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import pytest

from tenonnx.graph.near_misses import NearMisses
from tenonnx.planning.anchors import Part, Walk, clip_bounds, follow
from tenonnx.planning.fusion import MISSES, Scope


def _other(node: ir.Node, walk: Walk[Any]) -> str | ir.Value:
    other = node.inputs[walk.beside(node)]
    assert other is not None
    return "it adds a result" if other.producer() is not None else other


ADDED = Part("added", ("Add",), _other, since=7, many=True)
ACTIVATION = Part("activation", ("Relu", "own::Relu"), lambda node, _: node)
NEEDED = Part("quantizer", ("QuantizeLinear",), lambda node, _: node, needed=True)


def graph(body: str, outputs: str = "float[n] y") -> ir.Graph:
    text = f"""<ir_version: 10, opset_import: ["": 21, "own": 1]>
        test (float[n] x, float[n] z) => ({outputs}) {{ {body} }}"""
    made = ir.from_onnx_text(text).graph
    for node in made:
        node.version = 21
    return made


def walked(made: ir.Graph, *parts: Part) -> tuple[Walk[Scope], list[str]]:
    misses = NearMisses()
    token = MISSES.set(misses)
    nodes = tuple(made)
    scope = Scope(nodes, nodes, frozenset(made.outputs))
    MISSES.reset(token)
    walk = follow(nodes[0], scope, *parts)
    return walk, list(misses.notes())


def taken(walk: Walk[Scope]) -> list[str]:
    return [node.op_type for node in walk.nodes]


def test_parts_are_taken_in_order_and_some_several_times() -> None:
    body = "a = Neg(x) b = Add(a, z) c = Add(z, b) d = own.Relu(c) y = Relu(d)"
    walk, notes = walked(graph(body), ADDED, ACTIVATION)
    assert taken(walk) == ["Neg", "Add", "Add", "Relu"]
    assert [value.name for value in walk.found["added"]] == ["z", "z"]
    assert (walk.value.name, notes) == ("d", [])


def test_a_part_that_is_needed() -> None:
    whole, _ = walked(graph("a = Neg(x) b = Relu(a) y = QuantizeLinear(b, z)"), ACTIVATION, NEEDED)
    assert whole.is_whole
    walk, notes = walked(graph("a = Neg(x) b = Relu(a) y = Abs(b)"), ACTIVATION, NEEDED)
    assert not walk.is_whole
    assert notes == []


@pytest.mark.parametrize(
    ("body", "outputs", "why"),
    [
        ("a = Neg(x) b = Relu(a) y = Add(a, b)", "float[n] y", "'a' is read 2 times"),
        ("a = Neg(x) y = Relu(a)", "float[n] y, float[n] a", "'a' is read by something else, too"),
        ("a = Neg(x) b = Neg(z) y = Add(a, b)", "float[n] y", "it adds a result"),
    ],
)
def test_what_stood_in_the_way(body: str, outputs: str, why: str) -> None:
    walk, notes = walked(graph(body, outputs), ADDED, ACTIVATION)
    assert taken(walk) == ["Neg"]
    (note,) = notes
    assert note.startswith("nearly Neg with its ")
    assert note.endswith(why)


def test_older_operators_are_not_meant() -> None:
    made = graph("a = Neg(x) y = Add(a, z)")
    tuple(made)[1].version = 6
    assert taken(walked(made, ADDED)[0]) == ["Neg"]


@pytest.mark.parametrize(
    ("version", "low", "high", "expected"),
    [(6, 1, 2, (1, 2)), (6, 2, 1, (1, 1)), (13, 1, 2, (1, 2)), (13, 2, 1, (1, 1))],
)
def test_every_result_of_a_clip_upside_down_is_the_greatest(
    version: int, low: float, high: float, expected: tuple[float, float]
) -> None:
    bounds = ", l, h" if version > 6 else ""
    attributes = "" if version > 6 else f"<min: float = {low}.0, max: float = {high}.0>"
    weights = f"<float l = {{{low}}}, float h = {{{high}}}>" if version > 6 else ""
    text = f"""<ir_version: 10, opset_import: ["": {version}]>
        test (float[n] x) => (float[n] y) {weights} {{ y = Clip {attributes} (x{bounds}) }}"""
    (node,) = ir.from_onnx_text(text).graph
    node.version = version
    assert clip_bounds(node) == expected
