"""Chains of elementwise operators between casts of 16-bit floats, as one step."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from running import Watch, floats, require_kernels, session

import tenonnx
from models import FLOAT, node
from tenonnx_cpu.elementwise.program import RUN_PROGRAM

require_kernels()

KINDS = {10: np.dtype(np.float16), 16: np.dtype(ml_dtypes.bfloat16)}


def computed(nodes: list[Any], feeds: Any, kinds: Any, weights: Any = None, **more: Any) -> Any:
    """Return what three runs give, the last ones of captures, which must be the same."""
    one = session(nodes, feeds, "y", weights, kinds=kinds, **more)
    results = [one.run(None, feeds)[0] for _ in range(3)]
    for other in results[1:]:
        np.testing.assert_array_equal(*(y.reshape(-1).view(np.uint8) for y in (other, results[0])))
    return results[0]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("shape", [(7,), (3, 1000), (5, 1025), (2, 70, 33), (40, 3, 60), ()])
@pytest.mark.parametrize("kind", KINDS)
def test_chains_are_widened_and_rounded_once(
    kind: int, shape: tuple[int, ...], threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Watch(RUN_PROGRAM, monkeypatch)
    x = np.asarray(floats(*shape)).astype(KINDS[kind])
    b = np.asarray(floats(*shape[-1:], seed=1)).astype(KINDS[kind])
    nodes = [
        node("Cast", "x", "u", to=FLOAT),
        node("Cast", "b", "v", to=FLOAT),
        node("Mul", "u v", "m"),
        node("Add", "m z", "a"),
        node("Abs", "a", "r"),
        node("Cast", "r", "y", to=kind),
    ]
    feeds = {"x": x, "b": b, "z": np.float32(0.1).reshape(())}
    y = computed(nodes, feeds, {"x": kind, "b": kind, "y": kind}, threads=threads)
    wide = x.astype(np.float64) * b.astype(np.float64) + np.float64(np.float32(0.1))
    unit = 2.0**-7 if kind == 16 else 2.0**-10
    np.testing.assert_allclose(y.astype(np.float64), np.abs(wide), rtol=unit, atol=1e-7)
    assert y.dtype == KINDS[kind]
    assert kernel.calls >= 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ends", ["first", "last"])
def test_one_end_alone_is_narrow(kind: int, ends: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Watch(RUN_PROGRAM, monkeypatch)
    x = floats(3, 2000).astype(KINDS[kind] if ends == "first" else np.float32)
    nodes = [node("Relu", "x", "r"), node("Tanh", "r", "t")]
    if ends == "first":
        nodes = [node("Cast", "x", "u", to=FLOAT), node("Relu", "u", "r"), node("Tanh", "r", "y")]
    else:
        nodes += [node("Cast", "t", "y", to=kind)]
    y = computed(nodes, {"x": x}, {"xy"[ends == "last"]: kind})
    right = np.tanh(np.maximum(x.astype(np.float64), 0))
    unit = 1e-6 if ends == "first" else 2.0**-7 if kind == 16 else 2.0**-10
    np.testing.assert_allclose(y.astype(np.float64), right, rtol=unit)
    assert kernel.calls >= 1


@pytest.mark.parametrize("kind", KINDS)
def test_every_element_comes_out_as_it_was(kind: int) -> None:
    """Also NaN, infinities, zeros and what is less than the least normal one."""
    every = np.arange(1 << 16, dtype=np.uint16).view(KINDS[kind])
    nodes = [
        node("Cast", "x", "u", to=FLOAT),
        node("Neg", "u", "n"),
        node("Neg", "n", "p"),
        node("Cast", "p", "y", to=kind),
    ]
    y = computed(nodes, {"x": every}, {"x": kind, "y": kind})
    np.testing.assert_array_equal(y.astype(np.float32), every.astype(np.float32))
    real = ~np.isnan(every.astype(np.float32))
    np.testing.assert_array_equal(np.signbit(y[real]), np.signbit(every[real]))


@pytest.mark.parametrize("kind", KINDS)
def test_a_cast_in_between_rounds(kind: int) -> None:
    x = floats(500)
    nodes = [
        node("Exp", "x", "a"),
        node("Cast", "a", "b", to=kind),
        node("Cast", "b", "c", to=FLOAT),
        node("Sub", "c one", "y"),
    ]
    y = computed(nodes, {"x": x}, {}, {"one": np.array(1, np.float32)})
    rounded = np.exp(x.astype(np.float64)).astype(np.float32).astype(KINDS[kind])
    right = rounded.astype(np.float32) - np.float32(1)
    # An exponential may be rounded to the next one.
    assert (y == right).mean() > 0.99


@pytest.mark.parametrize("kind", KINDS)
def test_models_that_say_no_types_are_rounded_once(kind: int) -> None:
    x = floats(6, 300).astype(KINDS[kind])
    nodes = [node("Sigmoid", "x", "s"), node("Mul", "x s", "y")]
    one = session(nodes, {"x": x}, "y", kinds={"x": kind, "y": kind})
    y = one.run(None, {"x": x})[0]
    wide = x.astype(np.float64)
    unit = 2.0**-8 if kind == 16 else 2.0**-11
    np.testing.assert_allclose(y.astype(np.float64), wide / (1 + np.exp(-wide)), rtol=1.1 * unit)


@pytest.mark.parametrize("level", ["ORT_DISABLE_ALL", "ORT_ENABLE_ALL"])
def test_statistics_are_not_rounded_to_the_images_bits(level: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 5, 40, 40)).astype(np.float16)
    names = ("s", "b", "m", "v")
    weights = {n: np.abs(rng.standard_normal(5)).astype(np.float16) for n in names}
    one = session(
        [node("BatchNormalization", "x s b m v", "y")], {"x": x}, "y", weights,
        kinds={"x": 10, "y": 10}, level=getattr(tenonnx.GraphOptimizationLevel, level),
    )  # fmt: skip
    s, b, m, v = (weights[n].astype(np.float64).reshape(1, 5, 1, 1) for n in names)
    expected = (x.astype(np.float64) - m) / np.sqrt(v + 1e-5) * s + b
    for _ in range(3):
        (y,) = one.run(None, {"x": x})
        near = np.spacing(np.abs(expected).astype(np.float16)).astype(np.float64)
        # Where terms cancel, what float32 rounds of them is left.
        assert (np.abs(y.astype(np.float64) - expected) <= near + 2e-6).all()
