"""The fuse plug-in's convolutions: padding of their own, and the activations of mobile networks."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from fusing import fused, normal, notes, parse, session

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


IMAGE = {"x": normal(1, 2, 5, 6)}


@pytest.mark.parametrize("own", ["pads=[1,0,0,2], ", ""])
@pytest.mark.parametrize("zero", ["p", "p, zero"])
def test_a_convolution_pads_its_image(own: str, zero: str) -> None:
    text = f"""(float[1,2,5,6] x) => (float[a,b,c,d] y, float[e,f,g,h] z) {{
        q = Pad(x, {zero})
        y = Conv<{own}strides=[2,1]>(q, w)  z = Conv<dilations=[1,2]>(q, w) }}"""
    pads = np.array([0, 0, 2, 0, 0, 0, 1, 3])
    proto = parse(text, w=normal(3, 2, 3, 2), p=pads, zero=np.float32(0))
    counts, _ = fused(proto, IMAGE)
    assert counts == {"Conv": 2}


@pytest.mark.parametrize(
    ("pads", "line"),
    [
        ([0, 1, 0, 0, 0, 0, 0, 0], "q = Pad(x, p)"),
        ([0, 0, -1, 0, 0, 0, 0, 0], "q = Pad(x, p)"),
        ([0, 0, 1, 1, 0, 0, 1, 1], "q = Pad(x, p, one)"),
        ([0, 0, 1, 1, 0, 0, 1, 1], 'q = Pad<mode="edge">(x, p)'),
    ],
    ids=["channels", "cut off", "ones", "edge"],
)
def test_what_is_not_zeros_around_an_image_stays(pads: list[int], line: str) -> None:
    text = f"(float[1,2,5,6] x) => (float[a,b,c,d] y) {{ {line}  y = Conv(q, w) }}"
    channels = 2 + pads[1]
    proto = parse(text, w=normal(3, channels, 3, 2), p=np.array(pads), one=np.float32(1))
    counts, _ = fused(proto, IMAGE)
    assert counts == {"Pad": 1, "Conv": 1}


SIX = {"three": np.float32(3), "zero": np.float32(0), "six": np.float32(6)}


@pytest.mark.parametrize(
    ("after", "made"),
    [
        ("m = Mul(x, c)  y = Div(m, six)", "HardSwish"),
        ("m = Mul(c, x)  y = Mul(m, sixth)", "HardSwish"),
        ("y = Div(c, six)", "HardSigmoid"),
        ("y = Mul(sixth, c)", "HardSigmoid"),
    ],
)
def test_hard_activations(after: str, made: str) -> None:
    text = (
        f"(float[40] x) => (float[40] y) {{ t = Add(x, three)  c = Clip(t, zero, six)  {after} }}"
    )
    x = np.linspace(-5, 5, 40, dtype=np.float32)
    counts, _ = fused(parse(text, sixth=np.float32(1 / 6), **SIX), {"x": x})
    assert counts == {made: 1}


def test_other_bounds_are_no_hard_activation() -> None:
    text = """(float[40] x) => (float[40] y) {
        t = Add(x, three)  c = Clip(t, zero, six)  m = Mul(x, c)  y = Div(m, six) }"""
    x = np.linspace(-5, 5, 40, dtype=np.float32)
    counts, _ = fused(parse(text, **SIX | {"three": np.float32(2)}), {"x": x})
    assert "HardSwish" not in counts
