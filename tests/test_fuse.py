"""The fuse plugin: every transform on what it is for, and on what only looks like it."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest

import tenonnx
from fusing import fused, normal, notes, parse, session
from tenonnx_fuse import known

X = {"x": normal(2, 3, 8)}
VECTOR = normal(8, seed=1)
SCALE = normal(8, seed=2)

LAYER = """(float[a,b,8] x) => (float[a,b,8] y)
<int64[1] axes = {{-1}}, float two = {{2}}, float e = {{0.001}}>
{{ m = ReduceMean(x, axes)  d = Sub(x, m)  q = {square}  v = ReduceMean(q, axes)
   w = Add(v, e)  s = Sqrt(w)  n = {divided}  k = Mul({scaled})  y = Add(k, bias) }}"""


@pytest.mark.parametrize("square", ["Pow(d, two)", "Mul(d, d)"])
@pytest.mark.parametrize("scaled", ["n, scale", "scale, n"])
def test_layer_norm(square: str, scaled: str) -> None:
    text = LAYER.format(square=square, divided="Div(d, s)", scaled=scaled)
    counts, done = fused(parse(text, scale=SCALE, bias=VECTOR), X)
    assert counts == {"LayerNormalization": 1}
    assert notes(done, "layer-norm") == ["matched 1 LayerNormalization"]


def test_layer_norm_without_a_bias() -> None:
    text = LAYER.format(square="Mul(d, d)", divided="Div(d, s)", scaled="n, scale")
    counts, _ = fused(parse(text, scale=SCALE, bias=normal(3, 8)), X)
    assert counts == {"LayerNormalization": 1, "Add": 1}


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("axes = {-1}", "axes = {1}", "averages over [1], not the last one"),
        ("two = {2}", "two = {2.5}", "is 2.5, not 2"),
        ("Sqrt(w)", "Exp(w)", "Sqrt is missing at Exp"),
    ],
)
def test_what_is_nearly_a_layer_norm(old: str, new: str, why: str) -> None:
    text = LAYER.format(square="Pow(d, two)", divided="Div(d, s)", scaled="n, scale")
    proto = parse(text.replace(old, new), scale=SCALE, bias=VECTOR)
    counts, done = fused(proto, {"x": np.abs(X["x"])}, rtol=1e-4)
    assert "LayerNormalization" not in counts
    (note, *_) = notes(done, "layer-norm")
    assert note.startswith("nearly LayerNormalization at Add 'y'")
    assert why in note


def test_a_layer_norm_whose_inside_is_read() -> None:
    text = LAYER.format(square="Pow(d, two)", divided="Div(d, s)", scaled="n, scale")
    text = text.replace("[a,b,8] y)", "[a,b,8] y, float[a,b,1] v)")
    counts, done = fused(parse(text, scale=SCALE, bias=VECTOR), X)
    assert "LayerNormalization" not in counts
    assert "'v' is read elsewhere too" in notes(done, "layer-norm")[0]


def test_float64_is_not_normalised_in_float32() -> None:
    text = LAYER.format(square="Pow(d, two)", divided="Div(d, s)", scaled="n, scale")
    text = text.replace("float", "double")
    weights = {"scale": SCALE.astype(np.float64), "bias": VECTOR.astype(np.float64)}
    counts, done = fused(parse(text, **weights), {"x": X["x"].astype(np.float64)}, rtol=1e-12)
    assert "LayerNormalization" not in counts
    assert "computes in float32" in notes(done, "layer-norm")[0]


@pytest.mark.parametrize("inverse", ["Reciprocal(s)", "Div(one, s)"])
@pytest.mark.parametrize("narrow", [False, True])
def test_rms_norm(inverse: str, narrow: bool) -> None:
    text = f"""(float[a,b,8] x) => (float[a,b,8] y)
    <int64[1] axes = {{-1}}, float two = {{2}}, float e = {{0.001}}, float one = {{1}}>
    {{ w = Cast<to=1>(x)  q = Pow(w, two)  v = ReduceMean(q, axes)  a = Add(v, e)  s = Sqrt(a)
       r = {inverse}  n = Mul(w, r)  c = Cast<to=1>(n)  y = Mul(scale, c) }}"""
    scale, x = SCALE, X["x"]
    if narrow:
        text = text.replace("float[a,b,8]", "float16[a,b,8]").replace(
            "c = Cast<to=1>", "c = Cast<to=10>"
        )
        scale, x = scale.astype(np.float16), x.astype(np.float16)
    counts, _ = fused(parse(text, scale=scale), {"x": x}, rtol=2e-3 if narrow else 1e-5)
    assert counts == {"RMSNormalization": 1}


GELUS = {
    "erf, halved last": """d = Div(x, root)  e = Erf(d)  a = Add(e, one)  m = Mul(x, a)
               y = Mul(m, half)""",
    "erf, halved first": """d = Mul(x, inv)  e = Erf(d)  a = Add(one, e)  h = Mul(half, x)
               y = Mul(h, a)""",
    "erf, sum halved": """d = Div(x, root)  e = Erf(d)  a = Add(e, one)  h = Mul(a, half)
               y = Mul(x, h)""",
    "tanh": """c = Pow(x, three)  k = Mul(cubic, c)  s = Add(x, k)  t = Mul(s, slope)  u = Tanh(t)
               a = Add(u, one)  h = Mul(x, half)  y = Mul(h, a)""",
    "tanh of products": """x2 = Mul(x, x)  c = Mul(x2, x)  k = Mul(cubic, c)  s = Add(k, x)
               t = Mul(slope, s)  u = Tanh(t)  a = Add(one, u)  h = Mul(half, a)  y = Mul(x, h)""",
    "tanh, factored": """k = Mul(cubic, x)  k2 = Mul(k, x)  s = Add(k2, one)  p = Mul(x, slope)
               t = Mul(p, s)  u = Tanh(t)  a = Add(u, one)  m = Mul(x, a)  y = Mul(m, half)""",
}  # fmt: skip
NUMBERS = {
    "root": np.float32(np.sqrt(2)), "inv": np.float32(np.sqrt(0.5)), "one": np.float32(1),
    "half": np.float32(0.5), "three": np.float32(3), "cubic": np.float32(0.044715),
    "slope": np.float32(np.sqrt(2 / np.pi)),
}  # fmt: skip
ELEMENTWISE = "(float[a,b,8] x) => (float[a,b,8] y) {{ {} }}"


@pytest.mark.parametrize("name", GELUS)
def test_gelu(name: str) -> None:
    counts, done = fused(parse(ELEMENTWISE.format(GELUS[name]), **NUMBERS), X)
    assert counts == {"Gelu": 1}
    (gelu,) = done.model.graph
    assert gelu.attributes["approximate"].as_string() == name.split(",")[0].split()[0].replace(
        "erf", "none"
    )


@pytest.mark.parametrize(
    ("name", "constant", "wrong"),
    [("erf, halved last", "root", 1.5), ("tanh", "cubic", 0.05), ("tanh", "one", 1.1)],
)
def test_what_is_nearly_a_gelu(name: str, constant: str, wrong: float) -> None:
    numbers = NUMBERS | {constant: np.float32(wrong)}
    counts, done = fused(parse(ELEMENTWISE.format(GELUS[name]), **numbers), X)
    assert "Gelu" not in counts
    assert any(f"'{constant}' is {wrong:g}" in note for note in notes(done, "gelu"))


def test_swish_and_bias_gelu() -> None:
    text = "s = Sigmoid(x)  m = Mul(x, s)  b = Add(m, bias)  y = Gelu(b)"
    counts, _ = fused(parse(ELEMENTWISE.format(text), bias=VECTOR), X)
    assert counts == {"Swish": 1, "BiasGelu": 1}
    quick = "k = Mul(x, alpha)  s = Sigmoid(k)  y = Mul(x, s)"
    counts, done = fused(parse(ELEMENTWISE.format(quick), alpha=np.float32(1.702)), X)
    assert counts == {"Swish": 1}
    (swish,) = done.model.graph
    assert swish.attributes["alpha"].as_float() == pytest.approx(1.702)


def test_skip_norm_keeps_the_sum() -> None:
    text = """(float[a,b,8] x, float[a,b,8] z) => (float[a,b,8] y, float[a,b,8] w) {
        s = Add(x, z)  y = LayerNormalization<epsilon=0.01>(s, scale, bias)  w = Neg(s) }"""
    feeds = {**X, "z": normal(2, 3, 8, seed=5)}
    counts, done = fused(parse(text, scale=SCALE, bias=VECTOR), feeds)
    assert counts == {"SkipLayerNormalization": 1, "Neg": 1}
    assert done.model.opset_imports["com.microsoft"] == 1
    unlike = parse(text.replace("float[a,b,8] z", "float[8] z"), scale=SCALE, bias=VECTOR)
    counts, done = fused(unlike, {**X, "z": VECTOR})
    assert "not known to be of one shape" in notes(done, "skip-norm")[0]


def test_ranks_are_known_however_deep_and_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[ir.Node] = []
    made = known._rank_made
    monkeypatch.setattr(known, "_rank_made", lambda node: (looked.append(node), made(node))[1])
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
    for tensor in proto.graph.initializer:
        onnx.external_data_helper.load_external_data_for_tensor(tensor, str(tmp_path))
    counts, done = fused(proto, {"x": normal(3, 8)})
    assert counts["Softmax"] == 2
    if len(done.weights) == 1:
        assert (counts["MatMul"], counts["Exp"]) == (1, 1)


def test_random_numbers_are_drawn_twice() -> None:
    text = """(float[4] x) => (float[4] y) {
        a = RandomNormalLike(x)  b = RandomNormalLike(x)  y = Sub(a, b) }"""
    (y,) = session(parse(text)).run(None, {"x": normal(4)})
    assert np.any(y != 0)


CONV = """(float[a,{c},6,6] x) => (float[a,{o},{s},{s}] y)
{{ h = {conv}  y = {after} }}"""
AFTER = {
    "BatchNormalization(h, scale, bias, mean, var)": 1,
    "Mul(h, column)": 1,
    "Div(h, column)": 1,
    "Add(column, h)": 1,
    "Sub(h, column)": 1,
}


@pytest.mark.parametrize("after", AFTER)
@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("kind", ["Conv", "ConvTranspose"])
@pytest.mark.parametrize("biased", [True, False])
def test_what_follows_a_convolution(after: str, group: int, kind: str, biased: bool) -> None:
    c, o = 4, 6
    shape = (o, c // group, 3, 3) if kind == "Conv" else (c, o // group, 3, 3)
    conv = f"{kind}<group={group}>(x, w{', b' if biased else ''})"
    weights = {
        "w": normal(*shape), "b": normal(o), "column": normal(o, 1, 1) + 3,
        "scale": normal(o), "bias": normal(o), "mean": normal(o), "var": np.abs(normal(o)) + 1,
    }  # fmt: skip
    text = CONV.format(c=c, o=o, s=4 if kind == "Conv" else 8, conv=conv, after=after)
    counts, _ = fused(parse(text, **weights), {"x": normal(2, c, 6, 6)}, rtol=1e-4)
    assert counts == {kind: 1}


def test_a_convolution_that_is_an_output_stays() -> None:
    text = "(float[1,3,8] x) => (float[1,5,6] c, float[1,5,6] y) { c = Conv(x, w)  y = Sub(c, b) }"
    weights = {"w": normal(5, 3, 3, seed=1), "b": normal(5, 1, seed=2)}
    counts, _ = fused(parse(text, **weights), {"x": normal(1, 3, 8)})
    assert counts == {"Conv": 1, "Sub": 1}


def test_convolutions_that_share_weights_keep_them() -> None:
    text = """(float[a,4,6,6] x) => (float[a,4,4,4] y, float[a,4,4,4] z) {
        h = Conv(x, w)  y = Mul(h, column)  z = Conv(y, w) }""".replace("4,4] z", "2,2] z")
    proto = parse(text, w=normal(4, 4, 3, 3), column=normal(4, 1, 1))
    counts, done = fused(proto, {"x": normal(2, 4, 6, 6)}, rtol=1e-4, atol=1e-4)
    assert counts == {"Conv": 2, "Mul": 1}
    assert "would be copied" in notes(done, "conv-batchnorm")[0]


def test_folded_convolutions_are_shared_by_sessions() -> None:
    text = CONV.format(c=4, o=64, s=4, conv="Conv(x, w)", after="Mul(h, column)")
    proto = parse(text, w=normal(64, 4, 3, 3), column=normal(64, 1, 1))
    first, second = session(proto), session(proto)
    assert first.weights == second.weights


@pytest.mark.parametrize(
    "activation",
    ["Relu(h)", "Tanh(h)", "Sigmoid(h)", "LeakyRelu<alpha=0.2>(h)", "Clip(h, low, high)"],
)
def test_a_convolution_and_its_activation(activation: str) -> None:
    text = CONV.format(c=4, o=6, s=4, conv="Conv(x, w, b)", after=activation)
    bounds = {"low": np.float32(-0.5), "high": np.float32(0.5)}
    weights = {"w": normal(6, 4, 3, 3), "b": normal(6), **bounds}
    counts, _ = fused(parse(text, **weights), {"x": normal(2, 4, 6, 6)}, rtol=1e-4)
    assert counts == {"FusedConv": 1}


@pytest.mark.parametrize("conv", ["Conv(x, w, b)", "Conv(x, w)"])
@pytest.mark.parametrize(
    "after", ["Add(h, z)", "Add(z, h)  y0 = Relu(s)", "Add(h, h)  y0 = Tanh(s)"]
)
def test_a_convolution_and_what_is_added_to_it(conv: str, after: str) -> None:
    """Also where the sum is larger; and not what is added to itself."""
    text = f"""(float[a,4,6,6] x, float[e,6,4,4] z) => (float[d,6,4,4] y) {{
        h = {conv}  s = {after}  y = Neg({"y0" if "y0" in after else "s"}) }}"""
    weights = {"w": normal(6, 4, 3, 3), "b": normal(6)}
    for count in (1, 2):
        feeds = {"x": normal(1, 4, 6, 6), "z": normal(count, 6, 4, 4, seed=1)}
        counts, _ = fused(parse(text, **weights), feeds, rtol=1e-4)
        twice = "h, h" in after
        assert counts == ({"Conv": 1, "Add": 1, "Tanh": 1, "Neg": 1} if twice else
                          {"FusedConv": 1, "Neg": 1})  # fmt: skip


def test_of_two_convolutions_the_one_that_nobody_else_reads_takes_the_sum() -> None:
    text = """(float[a,4,6,6] x) => (float[a,4,6,6] y) {
        g = Conv(x, w)  h = Conv(g, w)  s = Add(g, h)  y = Neg(s) }"""
    feeds = {"x": normal(1, 4, 6, 6)}
    counts, _ = fused(parse(text, w=normal(4, 4, 1, 1)), feeds, rtol=1e-4)
    assert counts == {"Conv": 1, "FusedConv": 1, "Neg": 1}


def test_islands_of_narrow_floats() -> None:
    text = """(float[a,8] x) => (float[a,8] y) {
        n = Cast<to=10>(x)  m = Mul(n, h)  s = Softmax(m)  t = Add(s, n)  y0 = Cast<to=1>(t)
        y = Neg(y0) }"""
    counts, done = fused(parse(text, h=np.float16(0.5)), {"x": normal(3, 8)}, rtol=2e-3, atol=2e-3)
    assert counts == {"Mul": 1, "Softmax": 1, "Add": 1, "Neg": 1}
    (y,) = done.run(None, {"x": normal(3, 8)})
    x = normal(3, 8).astype(np.float64)
    e = np.exp(x / 2)
    np.testing.assert_allclose(y, -(e / e.sum(1, keepdims=True) + x), rtol=1e-5)


def test_an_island_with_a_bridge_stays_narrow() -> None:
    text = """(float[a,8] x, float16[a,8] z) => (float[a,8] y) {
        n = Cast<to=10>(x)  s = Softmax(n)  t = Add(s, z)  y = Cast<to=1>(t) }"""
    feeds = {"x": normal(3, 8), "z": normal(3, 8, dtype=np.float16)}
    counts, done = fused(parse(text), feeds)
    assert counts == {"Cast": 2, "Softmax": 1, "Add": 1}
    assert "'z' would have to be cast" in notes(done, "float-islands")[0]


@pytest.mark.parametrize("kind", ["Conv", "ConvTranspose"])
def test_convolutions_of_narrow_floats_are_widened_with_their_weights(kind: str) -> None:
    """However few they are, and without a cast of weights whenever the model runs."""
    text = f"""(float16[a,80,9,9] x) => (float16[a,80,b,d] y) {{
        h = {kind}(x, w, c)  y = HardSigmoid(h) }}"""
    weights = {"w": normal(80, 80, 3, 3, dtype=np.float16), "c": normal(80, dtype=np.float16)}
    feeds = {"x": normal(1, 80, 9, 9, dtype=np.float16)}
    counts, done = fused(parse(text, **weights), feeds, rtol=1e-2, atol=1e-2)
    assert counts["Cast"] == 2
    assert {value.dtype for value in done.model.graph.initializers.values()} == {ir.DataType.FLOAT}


def test_an_island_whose_output_is_read_in_16_bits_too() -> None:
    """The output keeps its type, where the Cast that made it is taken out."""
    text = """(float[a,8] x) => (float[a,8] y, bool[a,8] b) {
        n = Cast<to=10>(x)  p = MatMul(n, w)  q = Add(p, p)  r = Exp(q)  s = Mul(r, r)
        t = Sigmoid(s)  y = Cast<to=1>(t)  b = Cast<to=9>(t) }"""
    weights = {"w": normal(8, 8, dtype=np.float16, seed=1)}
    _, done = fused(parse(text, **weights), {"x": normal(3, 8)}, rtol=4e-3, atol=4e-3)
    assert "matched 1 islands" in notes(done, "float-islands")[0]


@pytest.mark.parametrize("where", ["beside", "in branches"])
def test_islands_share_the_cast_of_what_both_read(where: str) -> None:
    matrices = {"w": normal(8, 8, dtype=np.float16), "v": normal(8, 8, dtype=np.float16, seed=1)}
    one = "p{0} = MatMul(z, {1})  q{0} = Softmax(p{0})  r{0} = Mul(q{0}, q{0})  s{0} = Tanh(r{0})"
    one += "  t{0} = Exp(s{0})  y{0} = Cast<to=1>(t{0})"
    both = [one.format(number, name) for number, name in ((1, "w"), (2, "v"))]
    if where == "beside":
        body = f"{both[0]} {both[1]} y = Add(y1, y2)"
    else:
        branches = [
            f"{name}_branch = {name} () => (float[a,8] y{i}) {{ {both[i - 1]} }}"
            for i, name in ((1, "then"), (2, "else"))
        ]
        body = f"y = If(c) <{', '.join(branches)}>"
    text = f"(float16[a,8] z, bool c) => (float[a,8] y) {{ {body} }}"
    feeds = {"z": normal(3, 8, dtype=np.float16), "c": np.array(True)}
    counts, done = fused(parse(text, **matrices), feeds, rtol=3e-2, atol=3e-3)
    casts = [node.inputs[0].name for node in done.model.graph if node.op_type == "Cast"]
    # A matrix is cast where the product is, which reads it as it is stored.
    assert sorted(casts) == (["z"] if where == "in branches" else ["v", "w", "z"])
    assert counts["Cast"] == len(casts)
    assert "matched 2 islands" in notes(done, "float-islands")[-1]


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16])
def test_what_is_16_bits_wide_is_computed_in_float32(kind: Any) -> None:
    narrow = {10: "float16", 16: "bfloat16"}[10 if kind == np.float16 else 16]
    text = f"""({narrow}[a,8] x) => ({narrow}[a,8] y, {narrow}[a,72] k) {{
        h = MatMul(x, w)  k = Add(h, b)  r = Relu(k)  l = MatMul(r, v)  s = Softmax(l)
        d = Mul(s, s)  e = Sub(d, c)  t = Tanh(e)  y = Add(t, c) }}"""
    weights = {"w": normal(8, 72), "b": normal(72), "v": normal(72, 8), "c": normal(8)}
    narrowed = {name: array.astype(kind) for name, array in weights.items()}
    x = normal(3, 8).astype(kind)
    counts, done = fused(parse(text, **narrowed), {"x": x}, rtol=3e-2, atol=3e-2)
    # x, two matrices, and the two outputs.
    assert counts["Cast"] == 5
    y, k = done.run(None, {"x": x})
    assert y.dtype == k.dtype == kind
    w, b, v, c = (narrowed[name].astype(np.float64) for name in "wbvc")
    h = x.astype(np.float64) @ w + b
    e = np.exp(np.maximum(h, 0) @ v)
    expected = np.tanh((e / e.sum(1, keepdims=True)) ** 2 - c) + c
    # Rounded once, at the end.
    unit = 2.0**-10 if kind == np.float16 else 2.0**-7
    np.testing.assert_allclose(y.astype(np.float64), expected, rtol=unit, atol=unit / 4)
    np.testing.assert_allclose(k.astype(np.float64), h, rtol=unit, atol=unit / 4)


ROTARY = """(float[2,4,3,8] x, float[2,3,4] f) => (float[2,4,3,8] y)
<int64[1] zero = {0}, int64[1] half = {4}, int64[1] end = {9223372036854775807},
 int64[1] last = {3}, int64[1] heads = {1}>
{ e = Concat<axis=-1>(f, f)  c0 = Cos(e)  s0 = Sin(e)  c = Unsqueeze(c0, heads)
  s = Unsqueeze(s0, heads)  low = Slice(x, zero, half, last)  high = Slice(x, half, end, last)
  n = Neg(high)  t = Concat<axis=-1>(n, low)  a = Mul(x, c)  b = Mul(t, s)  y = Add(a, b) }"""


def test_rotary_embedding() -> None:
    feeds = {"x": normal(2, 4, 3, 8), "f": normal(2, 3, 4)}
    typed = onnx.shape_inference.infer_shapes(parse(ROTARY))
    counts, _ = fused(typed, feeds)
    assert counts["RotaryEmbedding"] == 1
    assert "Neg" not in counts
    other = ROTARY.replace("Concat<axis=-1>(f, f)", "Concat<axis=-1>(f, g)")
    other = other.replace("float[2,3,4] f", "float[2,3,4] f, float[2,3,4] g")
    typed = onnx.shape_inference.infer_shapes(parse(other))
    counts, done = fused(typed, {**feeds, "g": normal(2, 3, 4, seed=3)})
    assert "RotaryEmbedding" not in counts
    assert "not known to have each angle in both halves" in notes(done, "rotary")[0]


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
    text = (Path(__file__).parents[1] / "docs" / "transforms.md").read_text()
    listed = re.findall(r"^\| `([a-z-]+)` \| (\w+) \|", text, re.MULTILINE)
    known = tenonnx.default_plugins().transforms.values()
    ours = [t for t in known if t.apply.__module__.startswith(("tenonnx_", "lower"))]
    ours.sort(key=lambda t: (t.level != "required", t.order, t.name))
    assert listed == [(t.name, t.level) for t in ours]
