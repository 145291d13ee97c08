"""Convolutions that round their factors to bfloat16, against float64."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
import pytest
from running import BF16, Watch, floats, narrow, require_kernels, session
from windows_oracle import convolve

from models import node
from tenonnx_cpu.conv.select import CONV_TILES, WINOGRAD
from tenonnx_cpu.jit.code.cpu import cpu
from tenonnx_cpu.matmul.bfloat16 import GEMM_TILES

require_kernels()

pytestmark = pytest.mark.skipif(
    not cpu().bf16, reason="kernels are for a processor without bfloat16"
)


class Case(NamedTuple):
    x: tuple[int, ...]
    rows: int
    kernel: tuple[int, ...]
    strides: tuple[int, ...] = (1, 1)
    pads: tuple[int, ...] = (0, 0, 0, 0)
    dilations: tuple[int, ...] = (1, 1)


CASES = [
    Case((1, 64, 20, 21), 40, (1, 1)),
    Case((2, 512, 7, 7), 40, (1, 1)),
    Case((1, 64, 150, 9), 40, (1, 1), (2, 2)),
    Case((1, 3, 21, 30), 33, (7, 7), (2, 2), (3, 3, 3, 3)),
    Case((1, 1, 30, 17), 8, (5, 5)),
    Case((2, 5, 13, 14), 7, (3, 3), pads=(1, 2, 0, 1), dilations=(2, 1)),
    Case((1, 34, 14, 15), 70, (3, 3), pads=(2, 2, 2, 2), dilations=(2, 2)),
    Case((1, 20, 9, 130), 48, (3, 3), pads=(1, 1, 1, 1)),
    Case((1, 40, 5, 300), 20, (3, 1), (1, 3), (1, 0, 1, 0)),
    Case((1, 512, 7, 7), 33, (3, 3), pads=(1, 1, 1, 1)),
    Case((1, 9, 3, 3), 70, (3, 3)),
    Case((1, 18, 5, 16), 33, (5, 3), pads=(4, 1, 6, 1), strides=(2, 1)),
    Case((2, 24, 50), 17, (5,), (2,), (2, 2), (1,)),
]


def expected(case: Case, x: Any, w: Any, b: Any) -> tuple[Any, Any]:
    """Return the result of rounded factors, and how far one added otherwise may be from it."""
    apply = functools.partial(
        convolve, strides=case.strides, dilations=case.dilations, pads=case.pads
    )
    x, w = narrow(x), narrow(w)
    b = b.reshape(-1, *[1] * (x.ndim - 2))
    return apply(x, w) + b, 1e-6 * (apply(np.abs(x), np.abs(w)).max() + np.abs(b).max())


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_factors_are_rounded_and_sums_are_not(
    case: Case, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Watch(CONV_TILES, monkeypatch)
    x, w = floats(*case.x), floats(case.rows, case.x[1], *case.kernel, seed=1)
    b = floats(case.rows, seed=2)
    places = {
        "strides": case.strides,
        "pads": case.pads,
        "dilations": case.dilations,
        "kernel_shape": case.kernel,
    }
    nodes = [node("Conv", "x w b", "y", **{name: list(own) for name, own in places.items()})]
    one = session(nodes, {"x": x}, "y", {"w": w, "b": b}, threads=threads, provider=BF16)
    y, (right, near) = one.run(None, {"x": x})[0], expected(case, x, w, b)
    assert np.abs(y - right).max() <= near
    assert kernel.calls == 1


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("activation", ["Relu", "Sigmoid"])
def test_channels_are_last_between_convolutions(
    threads: int, activation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Watch(CONV_TILES, monkeypatch)
    shapes = {"u": (70, 40, 1, 1), "v": (70, 70, 3, 3), "w": (35, 70, 1, 1)}
    weights = {
        name: floats(*shape, seed=n, scale=0.1) for n, (name, shape) in enumerate(shapes.items())
    }
    nodes = [
        node("Conv", "x u", "a"),
        node(activation, "a", "b"),
        node("Conv", "b v", "c", pads=[1, 1, 1, 1]),
        node("Add", "c b", "d"),
        node(activation, "d", "e"),
        node("Conv", "e w", "y"),
    ]
    x = floats(2, 40, 9, 11, seed=5)
    y = session(nodes, {"x": x}, "y", weights, threads=threads, provider=BF16).run(None, {"x": x})
    apply = {"Relu": lambda z: np.maximum(z, 0), "Sigmoid": lambda z: 1 / (1 + np.exp(-z))}
    u, v, w = (narrow(each) for each in weights.values())
    b = apply[activation](convolve(narrow(x), u)).astype(np.float32)
    e = apply[activation](convolve(narrow(b), v, pads=[1, 1, 1, 1]) + b).astype(np.float32)
    right = convolve(narrow(e), w)
    # A sum that is added otherwise may be rounded to the next bfloat16.
    assert np.abs(y[0] - right).max() <= 2e-2 * np.abs(right).max()
    assert np.abs(y[0] - right).mean() <= 2e-3 * np.abs(right).mean()
    assert kernel.calls == 3


@pytest.mark.skipif(cpu().amx, reason="tiles of bfloat16 take less")
@pytest.mark.parametrize("adds", [False, True])
def test_float32_is_used_where_it_takes_less(adds: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    tiles, winograd = Watch(CONV_TILES, monkeypatch), Watch(WINOGRAD, monkeypatch)
    u, w = floats(64, 48, 1, 1, scale=0.1), floats(64, 64, 3, 3, seed=1, scale=0.1)
    x = floats(1, 48, 56, 56, seed=2)
    nodes = [
        node("Conv", "x u", "a"),
        node("Conv", "a w", "b", pads=[1, 1, 1, 1]),
        node("Add", "b a", "y") if adds else node("Relu", "b", "y"),
    ]
    y = session(nodes, {"x": x}, "y", {"u": u, "w": w}, provider=BF16).run(None, {"x": x})[0]
    a = convolve(narrow(x), narrow(u))
    right = convolve(a, w.astype(np.float64), pads=[1, 1, 1, 1])
    right = right + a if adds else np.maximum(right, 0)
    assert np.abs(y - right).max() <= 1e-5 * np.abs(right).max()
    assert (tiles.calls, winograd.calls) == (1, 1)


def test_what_is_not_finite_is_seen_where_it_is() -> None:
    x, w = floats(1, 20, 9, 9), floats(8, 20, 3, 3, seed=1)
    x[0, 3, 4, 4] = np.nan
    one = session([node("Conv", "x w", "y")], {"x": x}, "y", {"w": w}, provider=BF16)
    y = one.run(None, {"x": x})[0]
    seen = np.zeros((7, 7), bool)
    seen[2:5, 2:5] = True
    assert (np.isnan(y) == seen).all()


def test_patches_are_rows_of_a_product(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Watch(GEMM_TILES, monkeypatch)
    x, w, b = floats(2, 3, 32, 49), floats(40, 3, 16, 16, seed=1), floats(40, seed=2)
    nodes = [
        node("Conv", "x w b", "c", strides=[16, 16]),
        node("Transpose", "c", "y", perm=[0, 2, 3, 1]),
    ]
    one = session(nodes, {"x": x}, "y", {"w": w, "b": b}, provider=BF16)
    right, near = expected(Case(x.shape, 40, (16, 16), (16, 16)), x, w, b)
    assert np.abs(one.run(None, {"x": x})[0] - right.transpose(0, 2, 3, 1)).max() <= near
    assert kernel.calls == 1


def test_groups_and_volumes_are_float32() -> None:
    for shape, group in (((1, 8, 9, 9), 2), ((1, 4, 5, 6, 7), 1)):
        x, w = floats(*shape), floats(8, shape[1] // group, *[3] * (len(shape) - 2), seed=1)
        nodes = [node("Conv", "x w", "y", group=group)]
        y = session(nodes, {"x": x}, "y", {"w": w}, provider=BF16).run(None, {"x": x})[0]
        assert np.abs(y - convolve(x, w, group=group)).max() < 1e-4
