"""The fuse plug-in: every transform on what it is for, and on what only looks like it."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import tenonnx
from fusing import ELEMENTWISE, GELUS, NUMBERS, fused, normal, notes, parse, session
from tenonnx.graph import sizes
from tenonnx_fuse.pattern import Match, op

X = {"x": normal(2, 3, 8)}
VECTOR = normal(8, seed=1)


def test_ranks_are_known_however_deep_and_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[ir.Node] = []
    made = sizes._made

    def counted(value: ir.Value, node: ir.Node | None, rule: Any) -> Any:
        looked.extend([node] if node is not None else [])
        return made(value, node, rule)

    monkeypatch.setattr(sizes, "_made", counted)
    blocks = 300
    body = (f"p{i} = MatMul(v{i}, w)  s{i} = Add(p{i}, b)  v{i + 1} = Add(v{i}, s{i})"
            for i in range(blocks))  # fmt: skip
    text = f"(float[a,8] v0) => (float[a,8] v{blocks}) {{ {' '.join(body)} }}"
    done = session(parse(text, w=normal(8, 8), b=VECTOR))
    assert notes(done, "matmul-add") == [f"matched {blocks} Gemm"]
    assert len(looked) <= 3 * blocks


def test_matmul_and_add() -> None:
    text = "(float[a,8] x) => (float[a,4] y) { p = MatMul(x, w)  y = Add(bias, p) }"
    weights = {"w": normal(8, 4), "bias": normal(4)}
    counts, _ = fused(parse(text, **weights), {"x": normal(3, 8)})
    assert counts == {"Gemm": 1}
    cube = parse(text.replace("[a,", "[b,a,"), **weights)
    counts, done = fused(cube, {"x": normal(2, 3, 8)})
    assert counts == {"MatMul": 1, "Add": 1}
    assert "'x' is no matrix; its number of axes is 3" in notes(done, "matmul-add")[0]


def test_transposed_operands_of_products() -> None:
    text = """(float[8,a] x, float[c,8] z) => (float[a,c] y, float[a,c] w) {
        t = Transpose<perm=[1,0]>(x)  u = Transpose(z)  y = MatMul(t, u)
        w = Gemm<transA=1, alpha=0.5>(x, u) }"""
    counts, done = fused(parse(text), {"x": normal(8, 3), "z": normal(5, 8)})
    assert counts == {"Gemm": 2}
    assert [n.attributes["transB"].as_int() for n in done.model.graph] == [1, 1]


def test_a_tied_embedding_is_one_weight(tmp_path: Path) -> None:
    text = """(int64[a] ids) => (float[a,40] y) {
        h = Gather(w, ids)  t = Transpose<perm=[1,0]>(w)  y = MatMul(h, t) }"""
    proto = parse(text, w=normal(40, 16))
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, size_threshold=0)
    done = session(tmp_path / "m.onnx")
    assert len({weight.storage for weight in done.weights}) == 1
    assert sorted(n.op_type for n in done.model.graph) == ["Gather", "MatMul"]


def test_what_is_computed_twice(tmp_path: Path) -> None:
    text = """(float[a,8] x) => (float[a,4] y) {
        p = MatMul(x, w)  q = MatMul(x, v)  e = Exp(p)  f = Exp(q)  s = Softmax<axis=0>(e)
        t = Softmax<axis=1>(f)  y = Add(s, t) }"""
    w = normal(8, 4)
    proto = parse(text, w=w, v=w)
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, size_threshold=0)
    # Two initializers that lie at one place of a file are one weight, whatever their bytes are.
    onnx.load_external_data_for_model(proto, str(tmp_path))
    counts, done = fused(proto, {"x": normal(3, 8)})
    assert counts["Softmax"] == 2
    if len(done.weights) == 1:
        assert (counts["MatMul"], counts["Exp"]) == (1, 1)


def test_random_numbers_are_drawn_twice() -> None:
    text = """(float[4] x) => (float[4] y) {
        a = RandomNormalLike(x)  b = RandomNormalLike(x)  y = Sub(a, b) }"""
    (y,) = session(parse(text)).run(None, {"x": normal(4)})
    assert np.any(y != 0)


def test_a_node_is_one_part_of_a_pattern() -> None:
    """A value that is added to itself is not the other operand as well."""
    pattern = op("Add", op("Mul", "a", "b"), op("Mul", "c", "d"))
    for sums, fits in (("Add(p, q)", True), ("Add(p, p)", False)):
        text = f"""(float[4] x) => (float[4] y) {{
            p = Mul(x, x)  q = Mul(x, x)  y = {sums} }}"""
        model = ir.from_proto(parse(text))
        assert pattern.match(model.graph.outputs[0], Match()) is fits


def test_a_model_to_be_saved_stays_in_its_opset(tmp_path: Path) -> None:
    text = ELEMENTWISE.format(GELUS["erf, halved last"])
    path = str(tmp_path / "saved.onnx")
    proto = parse(text, opset=17, **NUMBERS)
    counts, done = fused(proto, X, optimized_model_filepath=path)
    assert "Gelu" not in counts
    assert "imports opset 17, and Gelu needs 20" in notes(done, "gelu")[0]
    saved = onnx.load(path)
    onnx.checker.check_model(saved, full_check=True)
    counts, _ = fused(proto, X)
    assert counts == {"Gelu": 1}


@pytest.mark.parametrize(("level", "left"), [(0, "Erf"), (1, "Erf"), (2, "Gelu"), (99, "Gelu")])
def test_levels_and_names(level: int, left: str) -> None:
    proto = parse(ELEMENTWISE.format(GELUS["erf, halved last"]), **NUMBERS)
    assert left in [n.op_type for n in session(proto, level).model.graph]
    kept = session(proto, level, ("gelu",)).model.graph
    assert "Erf" in [n.op_type for n in kept]


class Declining:
    """A provider that has no use for one transform."""

    @tenonnx.hookimpl
    def register_providers(self, register: Any) -> None:
        from fusing import PlainProvider

        class Choosy(PlainProvider):
            name = "ChoosyExecutionProvider"
            aliases = ("choosy",)

            def declines(self, transform: str) -> str | None:
                return "it does so itself" if transform == "gelu" else None

        register(Choosy)


def test_a_provider_may_decline_a_transform() -> None:
    plugins = tenonnx.PluginSet()
    plugins.register(Declining())
    options = tenonnx.SessionOptions(plugins=plugins)
    proto = parse(ELEMENTWISE.format(GELUS["tanh"]), **NUMBERS)
    done = tenonnx.InferenceSession(proto, options, providers=["choosy"])
    assert "Tanh" in [n.op_type for n in done.model.graph]
    assert notes(done, "gelu") == ["left to ChoosyExecutionProvider: it does so itself"]


class Picky:
    """A provider that runs a few operators, before one that runs all."""

    @tenonnx.hookimpl
    def register_providers(self, register: Any) -> None:
        from fusing import PlainProvider

        class Few(PlainProvider):
            name = "FewExecutionProvider"
            aliases = ("few",)

            def supports(self, node: Any) -> Any:
                return super().supports(node) if node.op_type in ("Erf", "Mul") else "not that one"

        register(Few)
        register(PlainProvider)


def test_nothing_moves_to_a_provider_that_was_wanted_less() -> None:
    plugins = tenonnx.PluginSet()
    plugins.register(Picky())
    options = tenonnx.SessionOptions(plugins=plugins)
    proto = parse(ELEMENTWISE.format(GELUS["erf, halved last"]), **NUMBERS)
    done = tenonnx.InferenceSession(proto, options, providers=["few", "plain"])
    assert "Erf" in [n.op_type for n in done.model.graph]
    assert "FewExecutionProvider does not run Gelu" in notes(done, "gelu")[0]


def test_attributes_that_are_types_are_not_compared() -> None:
    text = """(float[3] x) => (float[3] y) {
        h = OptionalHasElement(o)  k = OptionalHasElement(p)  e = Or(h, k)  f = Cast<to=1>(e)
        y = Add(x, f) }"""
    proto = parse(text)
    tensor = onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, [3])
    for name in "op":
        node = onnx.helper.make_node("Optional", [], [name], type=tensor)
        proto.graph.node.insert(0, node)
    counts, _ = fused(proto, {"x": normal(3)}, disabled=("fold-constants",))
    assert counts["Optional"] == 2


MALFORMED = (
    "Add", "Attention", "BatchNormalization", "Cast", "Clip", "Concat", "Conv", "Erf", "Expand",
    "LayerNormalization", "Pad", "ReduceMean", "Reshape", "Slice", "Softmax", "Squeeze", "Tile",
    "Transpose", "Unsqueeze", "Where",
)  # fmt: skip


@pytest.mark.parametrize("kind", MALFORMED)
@pytest.mark.parametrize("count", [0, 1, 2])
def test_nodes_without_their_inputs_are_not_a_transforms_failure(kind: str, count: int) -> None:
    proto = parse("(float[2,3] x) => (float[a,b] y) { e = Exp(x)  y = Neg(h) }")
    made = onnx.helper.make_node(kind, ["e"] * count, ["h"])
    proto.graph.node.insert(1, made)
    refusals = tenonnx.EPFail, tenonnx.InvalidArgument, tenonnx.InvalidGraph, tenonnx.NotSupported
    with contextlib.suppress(*refusals):  # a PluginError is none of them
        session(proto)


def test_the_document_has_every_transform_in_order() -> None:
    text = (Path(__file__).parents[2] / "docs" / "transforms.md").read_text()
    listed = re.findall(r"^\| `([a-z0-9-]+)` \| (\w+) \|", text, re.MULTILINE)
    known = tenonnx.default_plugins().transforms.values()
    ours = [t for t in known if t.apply.__module__.startswith(("tenonnx_", "lower"))]
    ours.sort(key=lambda t: (t.level != "required", t.order, t.name))
    assert listed == [(t.name, t.level) for t in ours]
