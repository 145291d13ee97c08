"""ConvTranspose on kernels, beside the array operator in float64, which has tests of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from running import Watch, floats, run, session

from models import node
from tenonnx_array.conv_transpose import conv_transpose
from tenonnx_cpu.conv.polyphase import phases_of
from tenonnx_cpu.conv.transposed import CONV_TRANSPOSED, INTERLEAVE

ALONG = st.fixed_dictionaries(
    {
        "size": st.integers(1, 20),
        "kernel": st.integers(1, 6),
        "stride": st.integers(1, 4),
        "begin": st.integers(0, 5),
        "end": st.integers(0, 5),
        "more": st.integers(0, 3),
    }
)


def attributes_of(axes: list[dict[str, int]], group: int) -> dict[str, Any]:
    return {
        "strides": tuple(axis["stride"] for axis in axes),
        "pads": (*(axis["begin"] for axis in axes), *(axis["end"] for axis in axes)),
        "output_padding": tuple(min(axis["more"], axis["stride"] - 1) for axis in axes),
        "group": group,
    }


def expected(x: Any, w: Any, b: Any, attributes: dict[str, Any]) -> Any:
    return conv_transpose(np, *(a.astype(np.float64) for a in (x, w, b)), **attributes)


def scale_of(x: Any, w: Any) -> float:
    return float(np.abs(x).max() * np.abs(w).sum(axis=0).max() * len(w))


SHORT_ALONG = ALONG.map(lambda axis: {**axis, "size": min(axis["size"], 5)})


@settings(max_examples=80, deadline=None)
@given(
    axes=st.lists(ALONG, min_size=1, max_size=2) | st.lists(SHORT_ALONG, min_size=3, max_size=3),
    group=st.sampled_from([1, 1, 2, 5]),
    channels=st.integers(1, 4),
    rows=st.integers(1, 4),
    batch=st.integers(1, 2),
)
def test_is_what_the_array_operator_says(
    axes: list[dict[str, int]], group: int, channels: int, rows: int, batch: int
) -> None:
    attributes = attributes_of(axes, group)
    x = floats(batch, group * channels, *(axis["size"] for axis in axes))
    w = floats(group * channels, rows, *(axis["kernel"] for axis in axes), seed=1)
    b = floats(group * rows, seed=2)
    try:
        right = expected(x, w, b, attributes)
    except ValueError:
        return
    nodes = [node("ConvTranspose", "x w b", "y", **attributes)]
    y = run(nodes, {"x": x}, "y", {"w": w, "b": b}, threads=2)
    assert y.shape == right.shape
    assert np.abs(y - right).max() <= 1e-6 * (scale_of(x, w) + 3)


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER", "VALID"])
def test_padding_by_rule_over_many_lines(
    auto_pad: str, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Watch(INTERLEAVE, monkeypatch)
    x, w, b = floats(2, 8, 90, 33), floats(8, 6, 3, 3, seed=1), floats(6, seed=2)
    attributes = {"strides": (2, 2), "auto_pad": auto_pad}
    nodes = [node("ConvTranspose", "x w b", "y", **attributes)]
    y = run(nodes, {"x": x}, "y", {"w": w, "b": b}, threads=threads)
    assert kernel.calls == 1
    assert np.abs(y - expected(x, w, b, attributes)).max() <= 1e-6 * scale_of(x, w)


def test_norm_and_activation_are_one_step_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Watch(CONV_TRANSPOSED, monkeypatch)
    x, w, b = floats(1, 24, 17, 19), floats(24, 5, 2, 2, seed=1), floats(5, seed=2)
    gain, shift, mean, spread = (floats(5, seed=n) for n in range(3, 7))
    nodes = [
        node("ConvTranspose", "x w b", "c", strides=(2, 2)),
        node("BatchNormalization", "c gain shift mean var", "n"),
        node("Relu", "n", "y"),
    ]
    weights = {"w": w, "b": b, "gain": gain, "shift": shift, "mean": mean, "var": spread**2}
    made = session(nodes, {"x": x}, "y", weights)
    assert made.plan.source.count(" = k") == 1
    (y,) = made.run(None, {"x": x})
    assert kernel.calls == 1
    plain = expected(x, w, b, {"strides": (2, 2)})
    factor, summand, center = (a.astype(np.float64)[:, None, None] for a in (gain, shift, mean))
    normal = (plain - center) * factor / np.sqrt(spread.astype(np.float64) ** 2 + 1e-5)[
        :, None, None
    ] + summand
    assert np.abs(y - np.maximum(normal, 0)).max() <= 1e-5 * np.abs(normal).max()


def test_what_is_added_to_a_result_is_added_once() -> None:
    x, w = floats(1, 4, 9), floats(4, 3, 4, seed=1)
    r = floats(1, 3, 20, seed=2)
    nodes = [node("ConvTranspose", "x w", "c", strides=(2,)), node("Add", "c r", "y")]
    y = run(nodes, {"x": x, "r": r}, "y", {"w": w})
    right = expected(x, w, np.zeros(3), {"strides": (2,)}) + r
    assert np.abs(y - right).max() <= 1e-6 * scale_of(x, w)


def test_weights_that_are_not_constant_and_three_axes_stay_right() -> None:
    x, w = floats(1, 2, 5, 4), floats(2, 3, 3, 2, seed=1)
    nodes = [node("ConvTranspose", "x w", "y", strides=(2, 2))]
    y = run(nodes, {"x": x, "w": w}, "y")
    assert np.abs(y - expected(x, w, np.zeros(3), {"strides": (2, 2)})).max() < 1e-5
    x, w = floats(1, 2, 3, 4, 5), floats(2, 3, 2, 2, 2, seed=1)
    nodes = [node("ConvTranspose", "x w", "y", strides=(2, 1, 2))]
    y = run(nodes, {"x": x}, "y", {"w": w})
    assert np.abs(y - expected(x, w, np.zeros(3), {"strides": (2, 1, 2)})).max() < 1e-5


def test_a_phase_has_every_stride_th_tap_turned_around() -> None:
    w = np.arange(1, 6, dtype=np.float32).reshape(1, 1, 5)
    assert phases_of(w, 1, (2,)).tolist() == [[[5, 3, 1]], [[0, 4, 2]]]
