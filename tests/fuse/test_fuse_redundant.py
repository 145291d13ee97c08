"""The fuse plug-in's cleaning: casts, reshapes, transposes and others that change nothing."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusing import fused, normal, notes, parse, session

TYPES = {1: np.float32, 10: np.float16, 11: np.float64, 6: np.int32, 7: np.int64, 3: np.int8}


@settings(max_examples=40, deadline=None)
@given(chain=st.lists(st.sampled_from(sorted(TYPES)), min_size=1, max_size=4))
def test_chains_of_casts(chain: list[int]) -> None:
    """A chain without some steps has the values of the whole chain, rounded as often."""
    names = ["x", *(f"c{n}" for n in range(len(chain) - 1)), "y"]
    body = "  ".join(
        f"{b} = Cast<to={to}>({a})" for (a, b), to in zip(pairwise(names), chain, strict=True)
    )
    last = {1: "float", 10: "float16", 11: "double", 6: "int32", 7: "int64", 3: "int8"}[chain[-1]]
    text = f"(float[a] x) => ({last}[a] y) {{ {body} }}"
    x = np.array([0.1, -3.7, 100.25, 65.0, 0.0, -0.49], np.float32)
    counts, _ = fused(parse(text), {"x": x}, rtol=0, atol=0)
    assert counts.get("Cast", 0) <= len(chain)


def test_casts_that_lose_nothing_are_one() -> None:
    text = "(int8[a] x) => (double[a] y) { a = Cast<to=6>(x) b = Cast<to=1>(a) y = Cast<to=11>(b) }"
    counts, done = fused(parse(text), {"x": np.arange(-3, 3, dtype=np.int8)}, rtol=0, atol=0)
    # float32 has not all of int32, but what it is given here is int8.
    assert counts == {"Cast": 1}
    assert notes(done, "cast-chains")[0].startswith("took out")


def test_a_cast_that_rounds_stays() -> None:
    text = "(float[a] x) => (float[a] y) { h = Cast<to=10>(x)  y = Cast<to=1>(h) }"
    counts, _ = fused(parse(text), {"x": normal(5)}, rtol=0, atol=0)
    assert counts == {"Cast": 2}


@settings(max_examples=40, deadline=None)
@given(orders=st.lists(st.permutations(range(4)), min_size=1, max_size=4), relu=st.booleans())
def test_chains_of_transposes(orders: list[list[int]], relu: bool) -> None:
    names = ["x", *(f"t{n}" for n in range(len(orders) - 1)), "y"]
    lines = [
        f"{b} = Transpose<perm={list(order)}>({a})"
        for (a, b), order in zip(pairwise(names), orders, strict=True)
    ]
    if relu:
        lines[-1] = lines[-1].replace("y =", "u =")
        lines.append("y = Relu(u)")
    counts, _ = fused(
        parse(f"(float[2,3,4,5] x) => (float[a,b,c,d] y) {{ {'  '.join(lines)} }}"),
        {"x": normal(2, 3, 4, 5)},
        rtol=0,
        atol=0,
    )
    assert counts.get("Transpose", 0) <= 1 or not relu


@settings(max_examples=40, deadline=None)
@given(
    shapes=st.lists(
        st.sampled_from([(2, 12), (-1, 6), (0, -1), (24,), (2, 3, 4), (0, 3, -1), (1, -1)]),
        min_size=1,
        max_size=4,
    )
)
def test_chains_of_reshapes(shapes: list[tuple[int, ...]]) -> None:
    x = normal(2, 3, 4)
    weights: dict[str, Any] = {}
    lines, last, y = [], "x", x
    for n, shape in enumerate(shapes):
        sizes = tuple(y.shape[i] if size == 0 else size for i, size in enumerate(shape))
        if 0 in shape and len(shape) > y.ndim:
            continue
        try:
            y = y.reshape(sizes)
        except ValueError:
            continue
        weights[f"s{n}"] = np.array(shape)
        lines.append(f"r{n} = Reshape({last}, s{n})")
        last = f"r{n}"
    dims = ",".join(f"d{axis}" for axis in range(y.ndim))
    text = f"(float[2,3,4] x) => (float[{dims}] y) {{ {'  '.join(lines)}  y = Neg({last}) }}"
    counts, done = fused(parse(text, **weights), {"x": x}, rtol=0, atol=0)
    (result,) = done.run(None, {"x": x})
    np.testing.assert_array_equal(result, -y)
    assert counts.get("Reshape", 0) <= len(lines)


NOTHING: dict[str, tuple[str, dict[str, Any]]] = {
    "Identity": ("h = Identity(x)", {}),
    "Dropout": ("h = Dropout(x)", {}),
    "Transpose": ("h = Transpose<perm=[0,1,2]>(x)", {}),
    "Reshape": ("h = Reshape(x, s)", {"s": np.array([2, -1, 4])}),
    "Expand": ("h = Expand(x, s)", {"s": np.array([1, 1])}),
    "Concat": ("h = Concat<axis=1>(x)", {}),
    "Max": ("h = Max(x)", {}),
    "Tile": ("h = Tile(x, s)", {"s": np.array([1, 1, 1])}),
    "Pad": ("h = Pad(x, s)", {"s": np.array([0] * 6)}),
    "Slice": ("h = Slice(x, a, b)", {"a": np.array([0]), "b": np.array([2**62])}),
    "Squeeze": (
        "u = Unsqueeze(x, s)  h = Squeeze(u, s)",
        {"s": np.array([1])},
    ),
    "Add": ("h = Add(z, x)", {"z": np.float32(0)}),
    "Div": ("h = Div(x, z)", {"z": np.float32(1)}),
}


@pytest.mark.parametrize("name", NOTHING)
def test_what_changes_nothing(name: str) -> None:
    line, weights = NOTHING[name]
    text = f"(float[2,3,4] x) => (float[2,3,4] y) {{ {line}  y = Exp(h) }}"
    counts, done = fused(parse(text, **weights), {"x": normal(2, 3, 4)}, rtol=0, atol=0)
    assert counts == {"Exp": 1}
    assert notes(done, "redundant-nodes")[0].startswith("took out 1")


KEPT: dict[str, tuple[str, dict[str, Any]]] = {
    "Dropout": ("h = Dropout(x, r, t)", {"r": np.float32(0), "t": np.array(True)}),
    "Expand": ("h = Expand(x, s)", {"s": np.array([5, 1, 1, 1])}),
    "Slice": ("h = Slice(x, a, b)", {"a": np.array([1]), "b": np.array([2**62])}),
    "Add": ("h = Add(z, x)", {"z": np.zeros((1, 2, 3, 4), np.float32)}),
    "Sub": ("h = Sub(z, x)", {"z": np.float32(0)}),
    "Unsqueeze": ("u = Squeeze(x, a)  h = Unsqueeze(u, b)", {"a": np.array([0]), "b": [1]}),
}


@pytest.mark.parametrize("name", KEPT)
def test_what_only_looks_as_if_it_changed_nothing(name: str) -> None:
    line, weights = KEPT[name]
    first = 1 if name == "Unsqueeze" else 2
    text = f"(float[{first},3,4] x) => (float[...] y) {{ {line}  y = Exp(h) }}".replace(
        "[...]", "[]"
    )
    proto = parse(text, **weights)
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    counts, _ = fused(proto, {"x": normal(first, 3, 4)}, rtol=0, atol=0)
    assert counts[name] == 1


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("(float[2,3] x) => (float[2,3] y) { a = Add(x, w)  y = Reshape(a, s) }", 0),
        (
            "(float[2,3] x) => (float[2,3] y) { a = Reshape(x, s)  b = Neg(a)  y = Reshape(b, s) }",
            0,
        ),
        ("(float[n,3] x) => (float[n,3] y) { a = Add(x, w)  y = Reshape(a, s) }", 0),
        (
            "(float[n,m] x) => (float[n,m] y) { a = Reshape(x, s)  b = Neg(a)  y = Reshape(b, s) }",
            1,
        ),
        ("(float[n,m] x) => (float[n,m] y) { a = Mul(x, x)  y = Reshape(a, s) }", 1),
        ("(float[1,1,9] x) => (float[1,2,7] y) { a = Conv(x, c)  y = Reshape(a, t) }", 0),
        (
            "(float[1,9] x) => (float[1,2,7] y) "
            "{ u = Unsqueeze(x, one)  a = Conv(u, c)  y = Reshape(a, t) }",
            0,
        ),
        ("(float[2,3] x) => (float[5,3] y) { a = Gather(x, i)  y = Reshape(a, s) }", 0),
        ("(float[2,3] x) => (float[2,5] y) { a = Gather<axis=1>(x, i)  y = Reshape(a, s5) }", 0),
        ("(float[n,1,9] x) => (float[n,2,7] y) { a = Conv(x, c)  y = Reshape(a, t) }", 1),
        ("(float[2,3] x) => (float[2,2] y) { a = Gemm(x, g)  y = Reshape(a, z) }", 0),
        ("(float[2,3] x) => (float[2,2] y) { a = Gemm<transA=1>(g, g)  y = Reshape(a, z) }", 0),
        ("(float[2,3] x) => (float[1,2,3] y) { a = Add(x, o)  y = Reshape(a, t2) }", 0),
    ],
)
def test_reshapes_to_the_shape_that_follows(text: str, left: int) -> None:
    given = {
        "w": normal(3), "o": normal(1, 2, 1), "c": normal(2, 1, 3), "g": normal(3, 2),
        "s": np.array([-1, 3]), "t": np.array([0, 2, -1]), "z": np.array([-1, 2]),
        "t2": np.array([1, -1, 3]), "one": np.array([-2]), "i": np.array([0, 1, 0, 1, 1]),
        "s5": np.array([-1, 5]),
    }  # fmt: skip
    shapes = {"float[1,9]": (1, 9), "float[1,1,9]": (1, 1, 9), "float[n,1,9]": (1, 1, 9)}
    shape = shapes.get(text[1:].split(" x)")[0], (2, 3))
    used = {name: array for name, array in given.items() if re.search(rf"\b{name}\b", text[20:])}
    counts, _ = fused(parse(text, **used), {"x": normal(*shape)})
    assert counts.get("Reshape", 0) == left


def test_outputs_keep_their_names_and_their_own_memory() -> None:
    text = """(float[3] x) => (float[3] a, float[3] b, float[3] c) {
        a = Identity(x)  h = Exp(x)  b = Identity(h)  c = Identity(h) }"""
    counts, done = fused(parse(text), {"x": normal(3)}, rtol=0, atol=0)
    assert counts == {"Identity": 2, "Exp": 1}
    assert [arg.name for arg in done.get_outputs()] == ["a", "b", "c"]


def test_a_body_returns_what_it_did() -> None:
    text = """(float[3] x, bool c) => (float[3] y) {
        y = If(c) <then_branch = t () => (float[3] r) { h = Identity(x)  r = Identity(h) },
                   else_branch = e () => (float[3] q) { g = Neg(x)  q = Identity(g) }> }"""
    for c in (True, False):
        counts, done = fused(parse(text), {"x": normal(3), "c": np.array(c)}, rtol=0, atol=0)
        assert counts == {"If": 1}
    inner = [n.op_type for graph in done.model.graphs() for n in graph]
    assert sorted(inner) == ["Identity", "If", "Neg"]


SANDWICH = """(float[2,3,4,5] x) => (float[a,b,c,d] y) <float two = {{2}}> {{
    t = Transpose<perm=[0,2,3,1]>(x)  {}  y = Transpose<perm=[0,3,1,2]>(h) }}"""
BETWEEN = {
    "unary": "r = Relu(t)  h = Tanh(r)",
    "a number": "h = Mul(t, two)",
    "a constant of all axes": "h = Add(t, w)",
    "two ways": "a = Exp(t)  s = Sigmoid(t)  h = Mul(a, s)",
    "a constant of the last axis": "a = Add(t, v)  h = Mul(u, a)",
    "padding": "h = Pad(t, p)",
    "a mean": "m = ReduceMean<axes=[1,-2]>(t)  h = Sub(t, m)",
}


@pytest.mark.parametrize("name", BETWEEN)
def test_transposes_cancel(name: str) -> None:
    weights = {"w": normal(1, 4, 5, 3), "v": normal(3), "u": normal(5, 1)}
    weights["p"] = np.array([0, 1, 2, 0, 0, 3, -1, 1])
    proto = parse(SANDWICH.format(BETWEEN[name]), opset=17, **weights)
    counts, done = fused(proto, {"x": normal(2, 3, 4, 5)}, rtol=1e-6)
    assert "Transpose" not in counts
    assert notes(done, "cancel-transposes") == [
        "took out 2 Transposes around what works in any order"
    ]  # fmt: skip


def test_a_region_that_reads_itself_transposed_stays() -> None:
    text = """(float[2,3,3,3] x) => (float[a,b,c,d] y) {
        t = Transpose<perm=[0,2,3,1]>(x)  r = Relu(t)  s = Transpose<perm=[0,2,3,1]>(r)
        u = Add(s, r)  y = Transpose<perm=[0,3,1,2]>(u) }"""
    counts, _ = fused(parse(text, opset=17), {"x": normal(2, 3, 3, 3)}, rtol=0, atol=0)
    assert counts["Transpose"] == 3


REGION = ("Relu", "Add", "Mul", "Pad", "ReduceMax", "Transpose", "Turn", "Softmax")


@settings(max_examples=120, deadline=None)
@given(data=st.data())
def test_transposes_in_any_graph(data: st.DataObject) -> None:
    """Results stay and Transposes become no more, for all readers."""
    lines, values = ["v0 = Transpose<perm=[0,2,3,1]>(x)"], ["v0"]
    for n in range(data.draw(st.integers(2, 12))):
        kind = data.draw(st.sampled_from(REGION))
        a, b = data.draw(st.sampled_from(values)), data.draw(st.sampled_from([*values, "c"]))
        call = {
            "Add": f"Add({a}, {b})", "Mul": f"Mul({b}, {a})", "Pad": f"Pad({a}, p)",
            "ReduceMax": f"ReduceMax<axes=[1,-2]>({a})",
            "Transpose": f"Transpose<perm=[0,2,3,1]>({a})",
            "Turn": f"Transpose<perm=[0,3,1,2]>({a})",
        }.get(kind, f"{kind}({a})")  # fmt: skip
        lines.append(f"v{n + 1} = {call}")
        values.append(f"v{n + 1}")
    outs = data.draw(st.lists(st.sampled_from(values), min_size=1, max_size=3, unique=True))
    results = ", ".join(f"float[{','.join(f'{v}{i}' for i in range(4))}] {v}" for v in outs)
    text = f"(float[2,3,3,3] x) => ({results}) {{ {'  '.join(lines)} }}"
    pads = np.array([0, 1, 1, 1, 0, -1, -1, -1])
    proto = parse(text, opset=17, c=normal(3), p=pads)
    counts, _ = fused(proto, {"x": normal(2, 3, 3, 3)}, rtol=1e-4, atol=1e-4)
    assert counts.get("Transpose", 0) <= sum("Transpose" in line for line in lines)


@pytest.mark.parametrize(
    "line", ["h = Softmax(t)", "h = Transpose(t)", "h = ReduceMean<axes=[-1]>(t)"]
)
def test_transposes_that_do_not_cancel(line: str) -> None:
    proto = parse(SANDWICH.format(line), opset=17, v=normal(3))
    counts, _ = fused(proto, {"x": normal(2, 3, 4, 5)}, rtol=1e-6)
    assert counts["Transpose"] >= 1


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize(
    "places", ["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"]
)
@pytest.mark.parametrize("told", ["sizes", "scales"])
def test_resizing_to_the_size_there_is(mode: str, places: str, told: str) -> None:
    given = {"sizes": np.array([1, 2, 5, 6]), "scales": np.ones(4, np.float32)}[told]
    inputs = "x, , , told" if told == "sizes" else "x, , told"
    how = f'mode="{mode}", coordinate_transformation_mode="{places}"'
    text = f"(float[1,2,5,6] x) => (float[1,2,5,6] y) {{ r = Resize<{how}>({inputs})  y = Neg(r) }}"
    counts, _ = fused(parse(text, told=given), {"x": normal(1, 2, 5, 6)}, rtol=0, atol=0)
    assert counts == {"Neg": 1}


@pytest.mark.parametrize(
    ("sizes", "how"),
    [
        ([1, 2, 5, 7], 'mode="linear"'),
        ([1, 2, 5, 6], 'mode="nearest", coordinate_transformation_mode="tf_half_pixel_for_nn", '
                       'nearest_mode="ceil"'),
    ],
)  # fmt: skip
def test_resizing_that_moves_pixels_stays(sizes: list[int], how: str) -> None:
    text = f"(float[1,2,5,6] x) => (float[a,b,c,d] y) {{ r = Resize<{how}>(x, , , s)  y = Neg(r) }}"
    model = parse(text, opset=11 if "tf_half" in how else 21, s=np.array(sizes), e=np.zeros(0, "f"))
    if "tf_half" in how:  # the version that has it must be given what it does not read
        model.graph.node[0].input[1] = model.graph.node[0].input[2] = "e"
    counts, _ = fused(model, {"x": normal(1, 2, 5, 6)}, rtol=0, atol=0)
    assert counts["Resize"] == 1


@pytest.mark.parametrize(("source", "through"), [("float", np.float64), ("float16", np.float32)])
def test_texts_have_the_digits_of_the_type_that_is_written(source: str, through: Any) -> None:
    kind = {kind: number for number, kind in TYPES.items()}[through]
    body = f"d = Cast<to={kind}>(x)  y = Cast<to=8>(d)"
    x = np.array([0.1, 1 / 3, 1000], np.float32 if source == "float" else np.float16)
    for level in (0, 99):
        proto = parse(f"({source}[3] x) => (string[3] y) {{ {body} }}")
        (y,) = session(proto, level).run(None, {"x": x})
        assert [through(text) for text in y] == x.astype(through).tolist()
