from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from running import Watch, floats, run, session, softmax, wide

from models import node
from tenonnx_cpu.capture.launch import done
from tenonnx_cpu.norm.norms import NORMALIZE, SOFTMAX, Normalize

WIDTHS = [1, 7, 16, 64, 300, 768]


@pytest.fixture
def norm(monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(NORMALIZE, monkeypatch)


@pytest.fixture
def soft(monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(SOFTMAX, monkeypatch)


def layer_norm(x: Any, scale: Any, bias: Any, epsilon: float = 1e-5) -> Any:
    centered = x - x.mean(-1, keepdims=True)
    return centered / np.sqrt((centered**2).mean(-1, keepdims=True) + epsilon) * scale + bias


def rms_norm(x: Any, scale: Any, epsilon: float = 1e-5) -> Any:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + epsilon) * scale


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("threads", [1, 4])
def test_softmax(width: int, threads: int, soft: Watch) -> None:
    x = floats(3, 50, width, scale=5)
    y = run([node("Softmax", "x", "y")], {"x": x}, "y", threads=threads)
    np.testing.assert_allclose(y, softmax(x), rtol=3e-6, atol=1e-37)
    y = run([node("LogSoftmax", "x", "y", axis=2)], {"x": x}, "y", threads=threads)
    np.testing.assert_allclose(y, np.log(softmax(x)), rtol=3e-6, atol=3e-6)
    assert soft.calls == 2


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("name", ["Softmax", "LogSoftmax"])
def test_softmax_of_special_rows_is_numpys(
    name: str, axis: int, soft: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = floats(6, 40)
    x[0, 3], x[1, 5], x[2, 7] = np.nan, np.inf, -np.inf
    x[3], x[4, 1:] = -np.inf, 1e30
    x[5, 20] = np.uint32(0x7FC00123).view(np.float32)
    x = x if axis else x.T.copy()
    one = session([node(name, "x", "y", axis=axis)], {"x": x}, "y")
    fast = one.run(None, {"x": x})[0]
    assert soft.calls == 1
    monkeypatch.setattr(SOFTMAX, "run", None)
    np.testing.assert_allclose(fast, one.run(None, {"x": x})[0], rtol=3e-6, atol=3e-6)


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("shape", [(3, 4, 5), (2, 70, 129), (1, 900, 300), (5, 1, 7)])
def test_softmax_along_other_axes(shape: Any, threads: int, soft: Watch) -> None:
    x = floats(*shape, scale=5)
    for axis in (0, 1, -2):
        expected = np.moveaxis(softmax(np.moveaxis(x, axis, -1)), -1, axis)
        y = run([node("Softmax", "x", "y", axis=axis)], {"x": x}, "y", threads=threads)
        np.testing.assert_allclose(y, expected, rtol=3e-6, atol=1e-37)
        y = run([node("LogSoftmax", "x", "y", axis=axis)], {"x": x}, "y", threads=threads)
        np.testing.assert_allclose(y, np.log(expected), rtol=3e-6, atol=3e-6)
    assert soft.calls == 6


def test_softmax_along_all_axes_from_one_on(soft: Watch) -> None:
    x = floats(3, 4, 5)
    y = run([node("Softmax", "x", "y")], {"x": x}, "y", opset=11)
    np.testing.assert_allclose(y, softmax(x.reshape(3, 20)).reshape(3, 4, 5), rtol=3e-6)
    assert soft.calls == 1


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("threads", [1, 4])
def test_layer_and_rms_normalization(width: int, threads: int, norm: Watch) -> None:
    x, weights = floats(2, 70, width, scale=3), {"s": floats(width), "b": floats(width, seed=1)}
    y = run([node("LayerNormalization", "x s b", "y")], {"x": x}, "y", weights, threads=threads)
    expected = wide(layer_norm, x, weights["s"], weights["b"])
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)
    nodes = [node("RMSNormalization", "x s", "y")]
    y = run(nodes, {"x": x}, "y", weights, threads=threads, opset=23)
    np.testing.assert_allclose(y, wide(rms_norm, x, weights["s"]), rtol=1e-5, atol=1e-6)
    assert norm.calls == 2


def test_a_large_mean_costs_no_accuracy(norm: Watch) -> None:
    x = floats(4, 500) + np.float32(1000)
    nodes = [node("LayerNormalization", "x s", "y")]
    y = run(nodes, {"x": x}, "y", {"s": np.ones(500, np.float32)})
    np.testing.assert_allclose(y, wide(layer_norm, x, np.ones(500), 0.0), atol=1e-3)
    assert norm.calls == 1


def test_mean_and_deviation_are_numpys(norm: Watch) -> None:
    x, scale = floats(3, 8), np.ones(8, np.float32)
    nodes = [node("LayerNormalization", "x s", "y mean inverse")]
    _, mean, inverse = run(nodes, {"x": x}, "y mean inverse", {"s": scale})
    np.testing.assert_allclose(mean, x.mean(-1, keepdims=True), rtol=1e-6)
    np.testing.assert_allclose(inverse, 1 / np.sqrt(x.var(-1, keepdims=True) + 1e-5), rtol=1e-5)
    assert norm.calls == 0


LAYER = [
    node("ReduceMean", "x", "mean", axes=[-1]),
    node("Sub", "x mean", "centered"),
    node("Pow", "centered two", "square"),
    node("ReduceMean", "square", "variance", axes=[-1]),
    node("Add", "variance epsilon", "shifted"),
    node("Sqrt", "shifted", "root"),
    node("Div", "centered root", "ratio"),
    node("Mul", "ratio s", "scaled"),
    node("Add", "scaled b", "y"),
]
NUMBERS = {
    "two": np.array(2, np.float32),
    "one": np.array(1, np.float32),
    "epsilon": np.array(1e-5, np.float32),
}


def test_layer_normalization_in_nine_nodes(norm: Watch) -> None:
    x, s, b = floats(5, 6, 40), floats(40, seed=1), floats(40, seed=2)
    weights = {**NUMBERS, "s": s, "b": b}
    y = run(LAYER, {"x": x}, "y", weights, opset=17, shapes={"x": [None, None, 40]})
    assert norm.calls == 1
    np.testing.assert_allclose(y, wide(layer_norm, x, s, b), rtol=1e-5, atol=1e-5)


def test_a_mean_that_others_read_is_made() -> None:
    x, s, b = floats(5, 6, 40), floats(40, seed=1), floats(40, seed=2)
    y, mean = run(LAYER, {"x": x}, "y mean", {**NUMBERS, "s": s, "b": b}, opset=17)
    np.testing.assert_allclose(mean, x.mean(-1, keepdims=True), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(y, wide(layer_norm, x, s, b), rtol=1e-5, atol=1e-5)


RMS = {
    "divided": [node("Div", "x root", "ratio"), node("Mul", "ratio s", "y")],
    "reciprocal": [
        node("Reciprocal", "root", "inverse"),
        node("Mul", "x inverse", "ratio"),
        node("Mul", "s ratio", "y"),
    ],
    "one over": [
        node("Div", "one root", "inverse"),
        node("Mul", "x inverse", "ratio"),
        node("Mul", "s ratio", "y"),
    ],
}


@pytest.mark.parametrize("form", RMS)
@pytest.mark.parametrize("square", ["Pow", "Mul"])
def test_rms_normalization_in_nodes(form: str, square: str, norm: Watch) -> None:
    x, s = floats(5, 6, 40), floats(40, seed=1)
    nodes = [
        node(square, "x two" if square == "Pow" else "x x", "square"),
        node("ReduceMean", "square axes", "mean"),
        node("Add", "mean epsilon", "shifted"),
        node("Sqrt", "shifted", "root"),
        *RMS[form],
    ]
    weights = {**NUMBERS, "axes": np.array([-1]), "s": s}
    y = run(nodes, {"x": x}, "y", weights, shapes={"x": [None, None, 40]})
    assert norm.calls == 1
    np.testing.assert_allclose(y, wide(rms_norm, x, s), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("threads", [1, 4])
def test_a_sum_is_normalized_at_once(threads: int, norm: Watch) -> None:
    feeds = {"x": floats(90, 200), "z": floats(90, 200, seed=1)}
    weights = {"s": floats(200, seed=2), "b": floats(200, seed=3)}
    nodes = [
        node("Add", "x z", "sum"),
        node("LayerNormalization", "sum s b", "y"),
        node("ReduceMax", "sum", "most", keepdims=0),
    ]
    y, most = run(nodes, feeds, "y most", weights, threads=threads)
    assert norm.calls == 1
    total = feeds["x"] + feeds["z"]
    np.testing.assert_allclose(
        y, wide(layer_norm, total, weights["s"], weights["b"]), rtol=1e-5, atol=1e-5
    )
    assert most == total.max()


@pytest.mark.parametrize("other", [(9, 20), (1, 9, 20), (3, 1, 20), (20,), (1,), (5, 1, 9, 1)])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
@pytest.mark.parametrize("axis", [-1, 2])
def test_sums_that_broadcast_are_normalized(
    other: tuple[int, ...], dtype: Any, axis: int, norm: Watch
) -> None:
    """As a batch's words and one table of positions; captured, too, and with other shapes."""
    nodes = [
        node("Add", "x z", "sum"),
        node("LayerNormalization", "sum s", "y", axis=axis),
        node("ReduceMax", "sum", "most", keepdims=0),
    ]
    scale = floats(20, seed=2).astype(dtype)
    if axis == 2 and len(other) > 3:  # it is not the last one
        scale = floats(9, 20, seed=2).astype(dtype)
    feeds = {"x": floats(3, 9, 20).astype(dtype), "z": floats(*other, seed=1).astype(dtype)}
    kind = {np.float32: 1, np.float16: 10, np.float64: 11}[dtype]
    kinds = dict.fromkeys(("x", "z", "y", "most"), kind)
    made = session(nodes, feeds, "y most", {"s": scale}, kinds=kinds)
    for _ in range(3):
        y, most = made.run(None, feeds)
        total = feeds["x"] + feeds["z"]
        axes = tuple(range(total.ndim - scale.ndim, total.ndim))
        whole = total.astype(np.float64)
        centered = whole - whole.mean(axes, keepdims=True)
        root = np.sqrt(np.square(centered).mean(axes, keepdims=True) + 1e-5)
        near = 2e-3 if dtype == np.float16 else 1e-5
        np.testing.assert_allclose(y, centered / root * scale, rtol=near, atol=near)
        assert most == total.max()
    assert bool(norm.calls) == (scale.ndim == 1)


def test_a_lone_sum_belongs_to_its_norm() -> None:
    feeds = {"x": floats(9, 20), "z": floats(9, 20, seed=1)}
    nodes = [
        node("Sqrt", "x", "r"),
        node("Add", "r z", "sum"),
        node("LayerNormalization", "sum s", "y"),
    ]
    steps = session(nodes, feeds, "y", {"s": np.ones(20, np.float32)}).plan.steps
    assert [len(step.nodes) for step in steps] == [1, 2]


@pytest.mark.parametrize("width", WIDTHS)
def test_doubles(width: int, norm: Watch) -> None:
    x, scale, bias = (
        floats(*shape).astype(np.float64) for shape in ((9, width), (width,), (width,))
    )
    x += 100
    kinds = dict.fromkeys("xsby", 11)
    for op, given, answer in (
        ("LayerNormalization", "x s b", layer_norm(x, scale, bias)),
        ("RMSNormalization", "x s", rms_norm(x, scale)),
    ):
        feeds = dict(zip("xsb", (x, scale, bias)[: len(given.split())], strict=False))
        one = session([node(op, given, "y")], feeds, "y", kinds=kinds, opset=23)
        for _ in range(3):
            np.testing.assert_allclose(one.run(None, feeds)[0], answer, rtol=1e-6, atol=1e-6)
    assert norm.calls == 6


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("width", [1, 7, 300])
def test_halves(width: int, dtype: Any, norm: Watch) -> None:
    """Rows of 16-bit floats are computed as float32, and rounded once."""
    rng = np.random.default_rng(0)
    x, other, scale, bias = (
        rng.standard_normal(shape).astype(dtype) for shape in ((5, width), (5, width), width, width)
    )
    for centered, added in itertools.product((True, False), (None, other)):
        made = Normalize(1e-5, centered, 2, adds=added is not None)(
            x, added, scale, bias if centered else None
        )
        found = done(made)
        both = x.astype(np.float32) + (0 if added is None else added.astype(np.float32))
        if added is not None:
            found, total = found
            np.testing.assert_array_equal(total, both.astype(dtype))
        wide = both.astype(np.float64)
        less = wide - wide.mean(-1, keepdims=True) if centered else wide
        expected = less / np.sqrt((less**2).mean(-1, keepdims=True) + 1e-5) * scale.astype(float)
        expected += bias.astype(float) if centered else 0
        near = 2.0 * float(ml_dtypes.finfo(dtype).eps)
        assert found.dtype == dtype
        np.testing.assert_allclose(found.astype(float), expected, rtol=near, atol=near)
    assert norm.calls == 4
