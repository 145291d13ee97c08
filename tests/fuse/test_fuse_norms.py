"""Normalizations and activations that graphs spell out become one node."""

from __future__ import annotations

import numpy as np
import pytest

from fusing import ELEMENTWISE, GELUS, NUMBERS, fused, normal, notes, parse

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


def test_float64_is_not_normalized_in_float32() -> None:
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


def test_swish() -> None:
    text = "s = Sigmoid(x)  y = Mul(x, s)"
    counts, _ = fused(parse(ELEMENTWISE.format(text)), X)
    assert counts == {"Swish": 1}
    quick = "k = Mul(x, alpha)  s = Sigmoid(k)  y = Mul(x, s)"
    counts, done = fused(parse(ELEMENTWISE.format(quick), alpha=np.float32(1.702)), X)
    assert counts == {"Swish": 1}
    (swish,) = done.model.graph
    assert swish.attributes["alpha"].as_float() == pytest.approx(1.702)
