"""Nodes that lack inputs or outputs, or have too many: no transform stumbles over one."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from typing import Any, Literal

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper

import tenonnx
from hooks import options_with
from models import FLOAT, graph, model, node, value
from tenonnx.graph.element_types import OF_ONE_TYPE, WITH_ZERO_POINTS

W = np.arange(1, 5, dtype=np.float32).reshape(2, 2)
V = np.ones(2, np.float32)
SIZES = np.array([2, 1], np.int64)


def malformed(*nodes: onnx.NodeProto) -> onnx.ModelProto:
    weights = {"w": W, "v": V, "n": SIZES, "q": W.astype(np.int8)}
    return model(nodes, [value("x", FLOAT, [2, 2])], [value("y", FLOAT, None)], weights)


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


def constant(name: str, kind: int, **fields: Any) -> onnx.NodeProto:
    made = node("Constant", "", "c")
    made.attribute.add(name=name, type=kind, **fields)
    return made


WRONG_KINDS = {
    "no tensor": (constant("value", onnx.AttributeProto.FLOAT, f=1.0), "Constant"),
    "graphs": (constant("value", onnx.AttributeProto.GRAPHS), "Constant"),
    "of no kind": (constant("value", onnx.AttributeProto.UNDEFINED), "Constant"),
    "a Loop of nothing": (node("Loop", "_ _ x", "c"), "Loop"),
    "a Loop of a number": (node("Loop", "_ _ x", "c", body=3), "Loop"),
    "a Scan of nothing": (node("Scan", "x x", "c s", num_scan_inputs=1), "Scan"),
}


@pytest.mark.parametrize(("wrong", "op"), WRONG_KINDS.values(), ids=WRONG_KINDS)
def test_no_transform_stumbles_over_attributes_of_other_kinds(wrong: Any, op: str) -> None:
    proto = malformed(wrong, node("Add", "x c", "y"))
    with pytest.raises(tenonnx.TenonnxError, match=rf"^{op} 'c'"):
        tenonnx.InferenceSession(proto, providers=["cpu"]).run(None, {"x": W})


@pytest.mark.parametrize("kind", onnx.AttributeProto.AttributeType.values())
@pytest.mark.parametrize("place", ["a node", "a default"])
def test_an_attribute_of_another_kind_in_a_function(place: str, kind: int) -> None:
    changed = constant("value", onnx.AttributeProto.TENSOR, t=numpy_helper.from_array(W))
    changed.attribute[0].type = kind
    plain = constant("value", onnx.AttributeProto.TENSOR, t=numpy_helper.from_array(W))
    body = [changed if place == "a node" else plain, node("Add", "a c", "b")]
    imports = [onnx.helper.make_opsetid("", 21)]
    function = onnx.helper.make_function("own", "F", ["a"], ["b"], body, imports)
    if place == "a default":
        function.attribute_proto.append(changed.attribute[0])
    proto = malformed(node("F", "x", "y", domain="own"))
    proto.functions.append(function)
    proto.opset_import.append(onnx.helper.make_opsetid("own", 1))
    wrong = place == "a node" and kind != onnx.AttributeProto.TENSOR
    for source in (proto, proto.SerializeToString()):
        with (
            pytest.raises(tenonnx.TenonnxError)
            if wrong
            else contextlib.suppress(tenonnx.TenonnxError)
        ):
            tenonnx.InferenceSession(source, providers=["cpu"]).run(None, {"x": W})


def referring(name: str) -> onnx.NodeProto:
    made = node("Transpose", "x", "c")
    made.attribute.add(name="perm", type=onnx.AttributeProto.INTS, ref_attr_name=name)
    return made


STRING, GRAPH = onnx.AttributeProto.STRING, onnx.AttributeProto.GRAPH
NAMED = {
    "a number as tensor": (
        constant("value", onnx.AttributeProto.FLOAT, f=1.0),
        r"Constant 'c' .*: its attribute value is FLOAT, it needs TENSOR",
    ),
    "a graph as number": (
        constant("value_float", GRAPH),
        r"Constant 'c' .*: its attribute value_float is GRAPH, it needs FLOAT",
    ),
    "a value of no kind": (
        constant("sparse_value", onnx.AttributeProto.UNDEFINED),
        r"Constant 'c' .*: its attribute sparse_value is of no type, it needs SPARSE_TENSOR",
    ),
    "one axis as all": (
        node("Transpose", "x", "c", perm=1),
        r"Transpose 'c' .*: its attribute perm is INT, it needs INTS",
    ),
    "a function's": (referring("order"), r"Transpose 'c' .*perm refers to order, an attribute of"),
}


@pytest.mark.parametrize(("wrong", "message"), NAMED.values(), ids=NAMED)
def test_an_attribute_of_another_kind_is_named(wrong: onnx.NodeProto, message: str) -> None:
    proto = malformed(wrong, node("Add", "x c", "y"))
    with pytest.raises(tenonnx.TenonnxError, match=message):
        tenonnx.InferenceSession(proto, providers=["cpu"]).run(None, {"x": W})


def test_a_constant_that_is_no_text() -> None:
    text = constant("value_string", STRING, s=b"\xff")
    proto = malformed(text, node("Cast", "c", "t", to=FLOAT), node("Add", "x t", "y"))
    with pytest.raises(tenonnx.TenonnxError, match=r"UTF-8, and b'\\xff' is not"):
        tenonnx.InferenceSession(proto, providers=["cpu"]).run(None, {"x": W})


@pytest.mark.parametrize("text", [b"abc", b"Foo"])
def test_names_that_are_no_text(text: bytes) -> None:
    proto = model(
        [node("Foo", "x", "y", domain="abc")], [value("x")], [value("y")], domains={"abc": 1}
    )
    if text == b"Foo":
        proto.graph.node[0].domain = ""
    content = proto.SerializeToString().replace(text, text[:1] + b"\xff" + text[2:])
    with pytest.raises(tenonnx.NotSupported, match="no provider that runs it"):
        tenonnx.InferenceSession(content)


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


def branch(to: int, declared: int) -> onnx.GraphProto:
    return onnx.helper.make_graph(
        [node("Cast", "x", f"b{to}", to=to)], "b", [], [value(f"b{to}", declared, None)]
    )


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
