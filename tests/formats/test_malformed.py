"""Nodes that lack inputs or outputs, or have too many: no transform stumbles over one."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from malformed_nodes import W, malformed

import tenonnx
from hooks import options_with
from models import FLOAT, graph, model, node, value


def cast(inputs: str, outputs: str, to: int = FLOAT) -> onnx.NodeProto:
    return node("Cast", inputs, outputs, to=to)


REFUSED: dict[str, tuple[list[onnx.NodeProto], str]] = {
    "Gemm of one": ([node("Gemm", "x", "y")], "Gemm"),
    "MatMul of one": ([node("MatMul", "x", "y")], "MatMul"),
    "MatMul of three": (
        [node("DequantizeLinear", "q v", "d"), node("MatMul", "x d v", "y")],
        "MatMul",
    ),
    "DequantizeLinear of one": (
        [node("DequantizeLinear", "q", "d"), node("MatMul", "x d", "y")],
        "DequantizeLinear",
    ),
    "Transpose of none": (
        [node("Transpose", "", "t", perm=[1, 0]), node("MatMul", "x t", "y")],
        "Transpose",
    ),
    "Gemm of a Transpose alone": (
        [node("Transpose", "x", "t", perm=[1, 0]), node("Gemm", "t", "y")],
        "Gemm",
    ),
    "second output of Concat": ([node("Concat", "x", "_ y", axis=0)], "Concat"),
    "second output of Cast": ([cast("x", "c d"), node("Relu", "d", "y")], "Cast"),
    "Cast to no type": ([node("Cast", "x", "c", to=999), node("Cast", "c", "y", to=1)], "Cast"),
    "rank of no Pow": (
        [node("Pow", "", "p"), node("Erf", "p", "e"), node("Transpose", "e", "y")],
        "Pow",
    ),
}


@pytest.mark.parametrize(("nodes", "op"), REFUSED.values(), ids=REFUSED)
def test_the_node_is_named(nodes: list[onnx.NodeProto], op: str) -> None:
    with pytest.raises(tenonnx.TenonnxError, match=rf"^(.*\n  )?{op} '"):
        tenonnx.InferenceSession(malformed(*nodes), providers=["cpu"]).run(None, {"x": W})


def twice(op: str, **attributes: Any) -> onnx.NodeProto:
    made = node(op, "x", "y", **attributes)
    made.attribute.extend(list(made.attribute))
    return made


def holding(made: onnx.NodeProto, **fields: Any) -> onnx.NodeProto:
    """Set fields of a node's last attribute; those that are ``None`` are cleared."""
    for name, held in fields.items():
        if held is None:
            made.attribute[-1].ClearField(name)
        elif isinstance(held, list):
            getattr(made.attribute[-1], name).extend(held)
        else:
            setattr(made.attribute[-1], name, held)
    return made


def branching(*nodes: onnx.NodeProto, made: str, held: str | None = None) -> list[onnx.NodeProto]:
    branch = graph(nodes, [], [value(made)], {held: W} if held else None)
    return [
        node("Neg", "x", "before"),
        node("Cast", "n", "some", to=onnx.TensorProto.BOOL),
        node("ReduceMax", "some", "c", keepdims=0),
        node("If", "c", "y", then_branch=branch, else_branch=branch),
    ]


LIKE_ONNXRUNTIME: dict[str, tuple[list[onnx.NodeProto], str | None]] = {
    "an attribute twice": (
        [twice("LeakyRelu", alpha=0.5)],
        r"LeakyRelu 'y' has .* alpha more than",
    ),
    "an attribute with two values": (
        [holding(node("LeakyRelu", "x", "y", alpha=0.5), i=3)],
        r"^the attribute alpha of LeakyRelu 'y' is of type FLOAT, .* its field i has a value",
    ),
    "an attribute with a list, too": (
        [holding(node("LeakyRelu", "x", "y", alpha=0.5), floats=[1.0])],
        r"^the attribute alpha of LeakyRelu 'y' is of type FLOAT, .* its field floats has a value",
    ),
    "an attribute of another type": (
        [holding(node("Transpose", "x", "y", perm=[1, 0]), type=onnx.AttributeProto.FLOATS)],
        r"^the attribute perm of Transpose 'y' is of type FLOATS, .* its field ints has a value",
    ),
    "an attribute without a type": (
        [holding(node("LeakyRelu", "x", "y", alpha=0.5), type=None)],
        r"^the attribute alpha of LeakyRelu 'y' lacks its type",
    ),
    "an attribute with two values, in a body": (
        branching(holding(node("LeakyRelu", "x", "r", alpha=0.5), i=3), made="r"),
        r"^the attribute alpha of LeakyRelu 'r' is of type FLOAT",
    ),
    "an attribute without a value": (
        [holding(node("LeakyRelu", "x", "y", alpha=0.5), f=None, doc_string="0")],
        None,
    ),
    "a constant with two values": (
        [holding(node("Constant", "", "y", value_float=0.5), i=3)],
        None,
    ),
    "inputs too many": ([node("Neg", "x x", "y")], r"^Neg 'y' .* has 2 inputs, it needs 1$"),
    "inputs too many, for numpy": ([node("Exp", "x x", "y")], r"^Exp 'y' .* has 2 inputs"),
    "inputs too many, absent": ([node("Neg", "x _", "y")], r"^Neg 'y' .* has 2 inputs"),
    "inputs too few": ([node("Add", "x", "y")], r"^Add 'y' .* has 1 inputs, it needs 2$"),
    "an input absent": ([node("Add", "x _", "y")], r"^Add 'y' .* lacks its input B$"),
    "outputs too many": ([node("Neg", "x", "y z")], r"^Neg 'y' .* has 2 outputs, it needs 1$"),
    "an output twice": ([node("Split", "x", "y y", axis=0, num_outputs=2)], "'y' is redeclared"),
    "an output that is an input": ([node("Neg", "x", "x"), node("Neg", "x", "y")], "redeclared"),
    "an output that is a weight": ([node("Neg", "x", "w"), node("Neg", "w", "y")], "redeclared"),
    "nodes of one name": (
        [node("Neg", "x", "h", name="a"), node("Neg", "h", "y", name="a")],
        r"^Neg 'a' .* is not the only node of that name",
    ),
    "Constants of one name": (
        [
            node("Constant", "", "c", name="a", value_float=0.5),
            node("Constant", "", "d", name="a", value_floats=[0.5]),
            node("Add", "x c", "h"),
            node("Add", "h d", "y"),
        ],
        None,
    ),
    "a Constant named as a node before": (
        [
            node("Neg", "x", "h", name="a"),
            node("Constant", "", "c", name="a", value_float=0.5),
            node("Add", "h c", "y"),
        ],
        None,
    ),
    "a Constant named as a node behind": (
        [
            node("Constant", "", "c", name="a", value_float=0.5),
            node("Add", "x c", "y", name="a"),
        ],
        None,
    ),
    "a Constant in a body, named as a node there": (
        branching(
            node("Constant", "", "k", name="a", value_float=0.5),
            node("Add", "before k", "r", name="a"),
            made="r",
        ),
        None,
    ),
    "nodes of one name in a body": (
        branching(node("Neg", "before", "h", name="a"), node("Neg", "h", "r", name="a"), made="r"),
        r"^Neg 'a' .* is not the only node of that name",
    ),
    "nodes of one name behind a Constant of it": (
        [
            node("Constant", "", "c", name="a", value_float=0.5),
            node("Add", "x c", "h", name="a"),
            node("Neg", "h", "y", name="a"),
        ],
        r"^Neg 'a' .* is not the only node of that name",
    ),
    "a body that makes what is there": (
        branching(node("Neg", "x", "before"), made="before"),
        r"^Neg 'before' .* makes 'before', which is there already",
    ),
    "a body that makes an input": (
        branching(node("Neg", "before", "x"), made="x"),
        r"^Neg 'x' .* makes 'x', which is there already",
    ),
    "a body that makes a weight": (
        branching(node("Neg", "before", "w"), made="w"),
        r"^Neg 'w' .* makes 'w', which is there already",
    ),
    "a body that holds what is there": (
        branching(node("Neg", "before", "r"), made="r", held="before"),
        None,
    ),
    "an output that is absent": ([node("Split", "x", "_ y", axis=0, num_outputs=2)], None),
}
"""With what is said of them; ``None`` if they run."""


@pytest.mark.parametrize(
    ("nodes", "message"), LIKE_ONNXRUNTIME.values(), ids=LIKE_ONNXRUNTIME.keys()
)
def test_what_onnxruntime_refuses_is_refused_at_load(
    nodes: list[onnx.NodeProto], message: str | None
) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    content = malformed(*nodes).SerializeToString()
    for made in (onnxruntime.InferenceSession, tenonnx.InferenceSession):
        ours = made is tenonnx.InferenceSession
        if message is None:
            made(content, providers=["CPUExecutionProvider"])
        else:
            with pytest.raises(Exception, match=message if ours else ".") as caught:
                made(content, providers=["CPUExecutionProvider"])
            assert not ours or isinstance(caught.value, tenonnx.InvalidGraph)


def lacking(what: str) -> onnx.ModelProto:
    proto = malformed(node("Neg", "x", "y"))
    if what == "ir_version":
        proto.ClearField("ir_version")
    elif what == "type":
        proto.graph.input[0].ClearField("type")
    elif what == "text":
        proto.graph.input[0].name = "name"
        proto = onnx.ModelProto.FromString(proto.SerializeToString().replace(b"name", b"nam\x80"))
    else:
        proto.graph.input.append(proto.graph.input[0])
    return proto


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("ir_version", "lacks its ir_version"),
        ("type", "the graph input 'x' has no type"),
        ("one name", "two inputs called 'x'"),
        ("text", "the name b'.*80' is not UTF-8"),
    ],
)
def test_models_that_lack_what_every_model_has(what: str, message: str) -> None:
    with pytest.raises(tenonnx.InvalidGraph, match=message):
        tenonnx.InferenceSession(lacking(what))


class Stumbling(tenonnx.Provider):
    name = "StumblingProvider"

    def supports(self, _: ir.Node) -> Literal[True]:
        return True

    def compile(self, segment: tenonnx.Segment) -> list[tenonnx.Step]:
        raise IndexError(segment.nodes[0].inputs[1])


def test_a_provider_that_stumbles_over_one() -> None:
    proto, options = malformed(node("Gemm", "x", "y")), options_with(Stumbling)
    message = r"^Gemm 'y' \(ai\.onnx, opset 21\) has 1 inputs, it needs 2 to 3"
    with pytest.raises(tenonnx.InvalidGraph, match=message):
        tenonnx.InferenceSession(proto, options, providers=["StumblingProvider"]).run(
            None, {"x": W}
        )


UNREAD = ["Concat", "Conv", "Constant", "Gemm", "MatMul", "Transpose", "LayerNormalization"]


@pytest.mark.parametrize("inputs", ["", "x", "x w"])
@pytest.mark.parametrize("op", UNREAD)
def test_a_node_without_outputs_makes_nothing(op: str, inputs: str) -> None:
    nodes = [node(op, inputs, ""), node("Relu", "x", "y")]
    session = tenonnx.InferenceSession(malformed(*nodes), providers=["cpu"])
    (y,) = session.run(None, {"x": -W})
    np.testing.assert_array_equal(y, np.zeros_like(W))


def test_sizes_that_do_not_broadcast_are_the_runs_to_refuse() -> None:
    sizes: Any = {"n": np.array([3, 2], np.int64)}
    proto = model([node("Expand", "x n", "y")], [value("x", FLOAT, [2, 2])], [value("y")], sizes)
    session = tenonnx.InferenceSession(proto, providers=["cpu"])
    with pytest.raises(tenonnx.TenonnxError, match="Expand 'y'"):
        session.run(None, {"x": W})


def test_attributes_that_mean_nothing_are_the_runtimes_to_name() -> None:
    nodes = [node("Constant", "", "c", valua=1.0), node("Add", "x c", "y")]
    with pytest.raises(tenonnx.TenonnxError, match=r"^(.*\n  )?Constant 'c' .*valua"):
        tenonnx.InferenceSession(malformed(*nodes)).run(None, {"x": W})
    turns = [node("Transpose", "x", "t", perm=[0, 0]), node("Transpose", "t", "y", perm=[1, 0])]
    with pytest.raises(tenonnx.TenonnxError, match=r"^Transpose 't'"):
        tenonnx.InferenceSession(malformed(*turns)).run(None, {"x": W})


def test_a_version_that_no_schema_has() -> None:
    proto = malformed(node("Reul", "x", "y"))
    proto.opset_import[0].version = 1 << 40
    with pytest.raises(tenonnx.NotSupported, match="Reul"):
        tenonnx.InferenceSession(proto)


def test_a_graph_without_nodes() -> None:
    x = value("x", FLOAT, [2, 2])
    (x_again,) = tenonnx.InferenceSession(model([], [x], [x])).run(None, {"x": W})
    np.testing.assert_array_equal(x_again, W)
