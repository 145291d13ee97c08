"""Calls of model-local functions become the nodes of their bodies."""

from __future__ import annotations

import itertools
import time
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import tenonnx
from clocks import collector_off
from tenonnx.errors import InvalidGraph, NotSupported
from tenonnx.graph.functions import inline_functions

CALLS = """
    <ir_version: 10, opset_import: ["": 21, "f": 1]>
    test (float[n] x) => (float[n] y) {{ {calls} }}
    <domain: "f", opset_import: ["": 21]> Twice (a) => (c) {{ b = Neg(a)  c = Sub(a, b) }}
    <domain: "f", opset_import: ["": 21, "f": 1]> Choose (a) => (c) {{
        zero = Constant <value = float {{0}}> ()
        s = ReduceSum <keepdims = 0> (a)
        positive = Greater(s, zero)
        c = If (positive) <
            then_branch = yes () => (t) {{ b = f.Twice(a)  t = f.Twice(b) }},
            else_branch = no () => (e) {{ e = Neg(a) }}
        >
    }}
"""


def calling(function: str, times: int) -> ir.Model:
    names = ["x", *(f"b_{number}" for number in range(times - 1)), "y"]
    calls = " ".join(f"{y} = f.{function}({x})" for x, y in itertools.pairwise(names))
    return ir.from_onnx_text(CALLS.format(calls=calls))


def names_of(model: ir.Model) -> list[str | None]:
    nodes = list(model.graph.all_nodes())
    return [each.name for node in nodes for each in (node, *node.outputs)]


def test_bodies_of_one_function_have_names_of_their_own() -> None:
    model = calling("Choose", 4)
    inline_functions(model)
    names = names_of(model)
    assert not model.functions
    assert None not in names
    assert len(names) == len(set(names))


def test_calls_in_branches_of_functions_compute_what_they_say() -> None:
    session = tenonnx.InferenceSession(ir.to_proto(calling("Choose", 3)), providers=["cpu"])
    x = np.array([-3, 1], np.float32)
    (y,) = session.run(None, {"x": x})
    assert y.tolist() == (-4 * 4 * x).tolist()


def seconds(calls: int) -> Any:
    model = calling("Twice", calls)
    with collector_off():
        start = time.thread_time()
        inline_functions(model)
        return time.thread_time() - start


def test_time_grows_with_the_calls_and_not_with_their_square() -> None:
    # Eight times the calls; the square would be 64 times the work.
    assert min(seconds(4000) for _ in range(2)) < 24 * min(seconds(500) for _ in range(3))


def opening_seconds(text: str, count: int) -> float:
    outputs = ", ".join(f"float[n] y{number}" for number in range(count))
    nodes = " ".join(text.format(y=f"y{number}") for number in range(count))
    model = ir.from_onnx_text(
        f"""<ir_version: 10, opset_import: ["": 21, "f": 1]>
        test (float[n] x) => ({outputs}) <float[1] c = {{1}}> {{ {nodes} }}
        <domain: "f", opset_import: ["": 21]> Minus (a) => (b) {{ b = Neg(a) }}"""
    )
    with collector_off():
        start = time.thread_time()
        session = tenonnx.InferenceSession(model, providers=["cpu"])
        spent = time.thread_time() - start
    assert [arg.name for arg in session.get_outputs()] == [f"y{n}" for n in range(count)]
    (last,) = session.run(["y3"], {"x": np.ones(1, np.float32)})
    assert last.tolist() == [-1]
    return spent


@pytest.mark.parametrize("text", ["{y} = f.Minus(x)", "{y} = Neg(c)"])
def test_time_grows_with_the_outputs_and_not_with_their_square(text: str) -> None:
    # Eight times the outputs, each of a call or of a constant.
    few, many = (min(opening_seconds(text, count) for _ in range(3)) for count in (400, 3200))
    assert many < 16 * few


def taking_graphs(text: str, **parameters: str) -> onnx.FunctionProto:
    """Return a function whose ``If`` with output a takes then_branch from parameter ``a_then``."""
    function = onnx.parser.parse_function(text)
    for node in function.node:
        for key, parameter in parameters.items():
            output, _, name = key.partition("_")
            if output == node.output[0]:
                node.attribute.add(
                    name=name, type=onnx.AttributeProto.GRAPH, ref_attr_name=parameter
                )
    function.attribute.extend(dict.fromkeys(parameters.values()))
    return function


FUNCTIONS = [
    taking_graphs(
        '<domain: "f", opset_import: ["": 21]> When (c, x) => (y) { r = If (c)  y = Add (r, x) }',
        r_then_branch="yes",
        r_else_branch="no",
    ),
    taking_graphs(
        '<domain: "f", opset_import: ["": 21, "f": 1]> Twice (c, x) => (z) '
        "{ a = f.When (c, x)  n = Not (c)  b = f.When (n, a)  z = Sub (b, x) }",
        a_yes="yes",
        a_no="no",
        b_yes="no",
        b_no="yes",
    ),
]
GIVEN = """
    yes = t () => (float[1] k) { one = Constant <value_float = 1.0> ()  k = Mul (outer, one) },
    no = e () => (float[1] j) { j = Neg (x) }
"""
"""Graphs that read values of the graph around the call."""


def giving(body: str) -> onnx.ModelProto:
    made = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21, "f": 1]> '
        f"g (bool c, float[1] x) => (float[1] y) {{ outer = Exp (x)  {body} }}"
    )
    made.functions.extend(FUNCTIONS)
    return made


@pytest.mark.parametrize("condition", [True, False])
@pytest.mark.parametrize(
    ("body", "yes", "no"),
    [
        (f"y = f.When <{GIVEN}> (c, x)", lambda x: np.exp(x) + x, lambda x: 0 * x),
        (f"y = f.Twice <{GIVEN}> (c, x)", lambda x: 2 * np.exp(x), lambda x: -2 * x),
        (
            f"a = f.When <{GIVEN}> (c, x)  y = f.When <{GIVEN}> (c, a)",
            lambda x: 2 * np.exp(x) + x,
            lambda x: -x,
        ),
    ],
    ids=["reads what is around", "handed on", "two calls"],
)
def test_calls_give_graphs(body: str, yes: Any, no: Any, condition: bool) -> None:
    x = np.array([0.5], np.float32)
    session = tenonnx.InferenceSession(giving(body), providers=["cpu"])
    (y,) = session.run(None, {"c": np.array(condition), "x": x})
    np.testing.assert_allclose(y, (yes if condition else no)(x), rtol=1e-6)


def test_calls_that_give_each_other_graphs_are_bounded() -> None:
    options = tenonnx.SessionOptions()
    options.add_session_config_entry("session.function_expansion_node_limit", "8")
    with pytest.raises(InvalidGraph, match="more than 8 nodes, since calls give each other"):
        tenonnx.InferenceSession(
            giving(f"y = f.Twice <{GIVEN}> (c, x)"), options, providers=["cpu"]
        )


def test_a_graph_that_refers_to_an_attribute_around_it_is_refused() -> None:
    made = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21, "f": 1]> '
        "g (bool c, float[1] x) => (float[1] y) { y = f.Outer <k = 2.0> (c, x) }"
    )
    outer = onnx.parser.parse_function(
        '<domain: "f", opset_import: ["": 21, "f": 1]> Outer <k> (c, x) => (y) { y = f.When <'
        "yes = t () => (float[1] a) { a = Constant <value_float: float = @k> () }, "
        "no = e () => (float[1] b) { b = Neg (x) }> (c, x) }"
    )
    made.functions.extend([*FUNCTIONS, outer])
    with pytest.raises(NotSupported, match=r"'y'.*gives a graph whose Constant 'a'"):
        tenonnx.InferenceSession(made, providers=["cpu"])


def test_copies_replace_no_function_of_the_model() -> None:
    made = giving(f"y = f.When <{GIVEN}> (c, x)")
    for number in range(2, 6):
        named = onnx.FunctionProto()
        named.CopyFrom(made.functions[1])
        named.name, named.overload = "When", f".graphs{number}"
        made.functions.append(named)
    x = np.array([0.5], np.float32)
    (y,) = tenonnx.InferenceSession(made).run(None, {"c": np.array(True), "x": x})
    np.testing.assert_allclose(y, np.exp(x) + x, rtol=1e-6)
