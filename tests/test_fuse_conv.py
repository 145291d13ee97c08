"""The fuse plugin's convolutions: padding of their own, and the activations of mobile networks."""

from __future__ import annotations

import numpy as np
import pytest

from fusing import fused, normal, parse

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
