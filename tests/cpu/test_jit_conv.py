from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from running import Watch, floats, run, session
from scipy import special
from windows_oracle import convolve

from models import node
from tenonnx_cpu.conv.layout_assignment import SUITED
from tenonnx_cpu.conv.pixels import PANEL_CHANNELS
from tenonnx_cpu.conv.select import CHANNELS, CONV, DEPTHWISE, PIXELS, WINOGRAD
from tenonnx_cpu.jit.runtime import JitKernel

ONE = float(np.finfo(np.float32).eps)


class Case(NamedTuple):
    x: tuple[int, ...]
    rows: int
    kernel: tuple[int, ...]
    strides: tuple[int, ...] = (1, 1)
    pads: tuple[int, ...] = (0, 0, 0, 0)
    dilations: tuple[int, ...] = (1, 1)
    group: int = 1

    @property
    def weights(self) -> tuple[int, ...]:
        return (self.rows, self.x[1] // self.group, *self.kernel)

    @property
    def attributes(self) -> dict[str, Any]:
        return {
            "strides": self.strides,
            "pads": self.pads,
            "dilations": self.dilations,
            "group": self.group,
        }


DENSE = [
    Case((1, 1, 1, 1), 1, (1, 1)),
    Case((1, 8, 9, 7), 5, (1, 1)),
    Case((1, 64, 28, 28), 24, (1, 1)),
    Case((3, 40, 7, 7), 30, (1, 1)),
    Case((1, 300, 14, 14), 70, (1, 1)),
    Case((1, 1024, 7, 7), 70, (1, 1)),
    Case((1, 33, 37, 14), 300, (1, 1)),
    Case((1, 65, 23, 19), 90, (3, 3), strides=(2, 2), pads=(1, 1, 1, 1)),
    Case((1, 2048, 7, 7), 33, (1, 1)),
    Case((1, 512, 3, 5), 15, (1, 1)),
    Case((1, 20, 33, 65), 16, (1, 1), strides=(2, 2)),
    Case((2, 20, 9, 10), 16, (1, 1), strides=(3, 2)),
    Case((1, 5, 6, 7), 4, (1, 1), pads=(1, 0, 2, 3)),
    Case((1, 300, 7, 7), 100, (3, 3), pads=(1, 1, 1, 1)),
    Case((1, 16, 14, 14), 14, (3, 3), strides=(2, 2), pads=(1, 1, 1, 1)),
    Case((2, 3, 31, 29), 20, (7, 7), strides=(2, 2), pads=(3, 3, 3, 3)),
    Case((1, 6, 13, 11), 10, (3, 3), strides=(2, 2), pads=(1, 1, 1, 1), group=2),
    Case((1, 4, 20, 20), 6, (3, 3), pads=(2, 2, 2, 2), dilations=(2, 2)),
    Case((1, 4, 20, 23), 6, (3, 2), strides=(1, 2), pads=(4, 0, 1, 3), dilations=(3, 2)),
    Case((1, 4, 20, 20), 6, (3, 3), strides=(3, 3), pads=(2, 1, 0, 2)),
    Case((1, 3, 10, 10), 2, (1, 5), pads=(0, 2, 0, 2)),
    Case((1, 3, 10, 10), 2, (5, 1), pads=(2, 0, 2, 0)),
    Case((1, 8, 5, 5), 8, (5, 5)),
    Case((2, 8, 4, 4), 8, (3, 3), pads=(3, 3, 3, 3)),
    Case((1, 30, 1, 50), 9, (3, 3), pads=(1, 1, 1, 1)),
    Case((1, 30, 9, 7), 9, (3, 3), pads=(12, 12, 12, 12), dilations=(12, 12)),
    Case((1, 30, 5, 7), 9, (4, 3), strides=(2, 1), pads=(8, 4, 2, 4), dilations=(3, 5)),
    Case((1, 2, 3, 900), 3, (3, 3), pads=(1, 1, 1, 1)),
    Case((1, 12, 17, 17), 12, (3, 3), pads=(1, 1, 1, 1), group=3),
    Case((2, 6, 50), 9, (3,), (2,), (1, 2), (1,)),
    Case((1, 6, 50), 4, (4,), (1,), (3, 0), (2,), 2),
    Case((1, 2, 9003), 5, (21,), (5,), (4, 30), (3,)),
    Case((2, 40, 1500), 20, (7,), (1,), (9, 9), (3,)),
]

SINGLE = [
    DENSE[0], Case((1, 8, 5, 5), 8, (5, 5)),
    Case((2, 16, 8, 8), 16, (3, 3), strides=(2, 2), pads=(1, 1, 1, 1)),
]  # fmt: skip
"""Those of one window, or of few."""

FEW_PLACES = [DENSE[n] for n in (9, 14, 23, 24, 26)]
"""Those of few windows and rows, which fill the panels of short vectors alone."""

TILED = [
    Case((1, 64, 56, 56), 64, (3, 3), pads=(1, 1, 1, 1)),
    Case((1, 40, 18, 17), 70, (3, 3), pads=(1, 1, 1, 1)),
    Case((3, 33, 17, 9), 32, (3, 3), pads=(0, 1, 2, 0)),
    Case((1, 32, 4, 201), 45, (3, 3)),
    Case((1, 32, 160, 131), 33, (3, 3), pads=(2, 2, 2, 2)),
]

ALONE = [
    Case((1, 32, 28, 28), 32, (3, 3), pads=(1, 1, 1, 1), group=32),
    Case((2, 9, 21, 38), 9, (2, 2), strides=(2, 2), pads=(0, 1, 1, 0), group=9),
    Case((1, 7, 112, 40), 7, (3, 3), strides=(2, 2), pads=(1, 1, 1, 1), group=7),
    Case((1, 4, 15, 31), 4, (5, 5), strides=(2, 2), pads=(2, 1, 1, 2), group=4),
    Case((1, 4, 15, 31), 8, (5, 5), pads=(2, 2, 2, 2), group=4),
    Case((1, 6, 30, 30), 6, (7, 7), pads=(3, 3, 3, 3), group=6),
    Case((1, 3, 30, 30), 3, (3, 3), pads=(2, 2, 2, 2), dilations=(2, 2), group=3),
    Case((1, 3, 30, 30), 3, (3, 3), strides=(3, 3), group=3),
    Case((1, 3, 30, 30), 3, (3, 3), strides=(2, 1), pads=(1, 1, 1, 1), group=3),
    Case((1, 3, 30, 30), 9, (2, 4), strides=(1, 2), pads=(0, 2, 1, 1), group=3),
    Case((1, 3, 30, 33), 3, (5, 5), strides=(2, 1), pads=(2, 2, 2, 2), group=3),
    Case((2, 3, 7, 30), 3, (7, 2), strides=(4, 2), group=3),
    Case((2, 6, 50), 6, (3,), (1,), (2, 0), (1,), 6),
]

SIDE_BY_SIDE = [
    Case((2, 5, 7, 7), 5, (3, 3), pads=(1, 1, 1, 1), group=5),
    Case((1, 7, 40, 14), 7, (3, 3), strides=(2, 2), pads=(1, 1, 1, 1), group=7),
    Case((1, 4, 15, 13), 4, (5, 5), strides=(2, 2), pads=(2, 1, 1, 2), group=4),
    Case((2, 37, 300, 8), 37, (3, 3), pads=(1, 1, 1, 1), group=37),
    Case((1, 16, 30, 15), 16, (3, 3), strides=(2, 2), pads=(0, 1, 2, 0), group=16),
    Case((1, 18, 5, 4), 18, (5, 5), pads=(4, 4, 4, 4), group=18),
    Case((1, 3, 20, 10), 3, (7, 7), pads=(2, 1, 0, 3), group=3),
]


def kernel_of(case: Case) -> JitKernel:
    kernels = (
        (ALONE, DEPTHWISE), (SIDE_BY_SIDE, CHANNELS if SUITED else DEPTHWISE),
        (TILED, WINOGRAD), (SINGLE, PIXELS),
        (FEW_PLACES, PIXELS if 2 * case.rows >= PANEL_CHANNELS else CONV),
    )  # fmt: skip
    return next((kernel for cases, kernel in kernels if case in cases), CONV)


def both(case: Case) -> tuple[Any, Any, Any]:
    x, w = floats(*case.x), floats(*case.weights, seed=1)
    return x, w, floats(case.rows, seed=2)


def tolerance(case: Case, x: Any, w: Any) -> Any:
    """Two ulps of the sum of magnitudes; n terms one after the other may be off by n/2."""
    size = convolve(np.abs(x), np.abs(w), *places(case))
    return 2 * ONE * (size.max() + 4)


def places(case: Case) -> tuple[Any, ...]:
    return case.strides, case.dilations, case.pads, case.group


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("case", DENSE + TILED + ALONE + SIDE_BY_SIDE, ids=str)
def test_convolution(case: Case, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Watch(kernel_of(case), monkeypatch)
    x, w, b = both(case)
    nodes = [node("Conv", "x w b", "y", **case.attributes)]
    y = run(nodes, {"x": x}, "y", {"w": w, "b": b}, threads=threads)
    expected = convolve(x, w, *places(case))
    expected = expected + b.reshape(-1, *(1,) * (x.ndim - 2))
    assert kernel.calls == 1
    assert y.shape == expected.shape
    assert np.abs(y - expected).max() <= tolerance(case, x, w)


@pytest.mark.parametrize(
    "case", [DENSE[4], DENSE[13], TILED[0], ALONE[0], SIDE_BY_SIDE[3]], ids=str
)
def test_threads_change_nothing_but_rounding(case: Case) -> None:
    x, w, b = both(case)
    nodes = [node("Conv", "x w b", "y", **case.attributes)]
    one, four = (run(nodes, {"x": x}, "y", {"w": w, "b": b}, threads=n) for n in (1, 4))
    assert np.abs(one - four).max() <= tolerance(case, x, w)


@pytest.mark.parametrize("case", [DENSE[4], DENSE[10], DENSE[11], DENSE[5], *TILED[:2]], ids=str)
@pytest.mark.parametrize("threads", [1, 4])
def test_equal_weights_give_equal_channels(
    case: Case, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Watch(kernel_of(case), monkeypatch)
    x = floats(*case.x, scale=1e6)
    w = np.full(case.weights, 0.3, np.float32)
    nodes = [node("Conv", "x w", "y", **case.attributes)]
    y = run(nodes, {"x": x}, "y", {"w": w}, threads=threads)
    assert kernel.calls == 1
    assert np.array_equal(y, np.broadcast_to(y[:, :1], y.shape))


ACTIVATIONS: dict[str, tuple[list[Any], Any]] = {
    "Relu": ([node("Relu", "c", "y")], lambda c: np.maximum(c, 0)),
    "Clip": ([node("Clip", "c low high", "y")], lambda c: np.clip(c, -0.5, 6)),
    "Sigmoid": ([node("Sigmoid", "c", "y")], special.expit),
    "Tanh": ([node("Tanh", "c", "y")], np.tanh),
    "LeakyRelu": ([node("LeakyRelu", "c", "y", alpha=0.2)], lambda c: np.where(c < 0, 0.2 * c, c)),
    "HardSwish": ([node("HardSwish", "c", "y")], lambda c: c * np.clip(c / 6 + 0.5, 0, 1)),
    "HardSigmoid": (
        [node("HardSigmoid", "c", "y", alpha=0.3, beta=0.4)],
        lambda c: np.clip(0.3 * c + 0.4, 0, 1),
    ),
    "PRelu": ([node("PRelu", "c slope", "y")], lambda c: np.where(c < 0, 0.2 * c, c)),
    "x * HardSigmoid(x)": (
        [node("HardSigmoid", "c", "s", alpha=1 / 6), node("Mul", "s c", "y")],
        lambda c: c * np.clip(c / 6 + 0.5, 0, 1),
    ),
    "SiLU": (
        [node("Sigmoid", "c", "s"), node("Mul", "c s", "y")],
        lambda c: c * special.expit(c),
    ),
}


@pytest.mark.parametrize(
    "case", [DENSE[3], DENSE[11], TILED[1], ALONE[4], SIDE_BY_SIDE[0]], ids=str
)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("norm", [False, True])
def test_what_follows_is_fused(
    case: Case, activation: str, norm: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Watch(kernel_of(case), monkeypatch)
    steps, function = ACTIVATIONS[activation]
    x, w, b = both(case)
    plain = convolve(x, w, *places(case)) + b.reshape(-1, 1, 1)
    residual = floats(*plain.shape, seed=5)
    mean, spread, gain, shift = (floats(case.rows, seed=n) for n in range(6, 10))
    weights = {"w": w, "b": b, "low": np.float32(-0.5), "high": np.float32(6)}
    weights["slope"] = np.full((1, 1, 1), 0.2, np.float32)
    nodes = [node("Conv", "x w b", "a", **case.attributes)]
    if norm:
        nodes.append(node("BatchNormalization", "a gain shift mean var", "n"))
        weights |= {"gain": gain, "shift": shift, "mean": mean, "var": spread**2}
        factor = gain.astype(np.float64) / np.sqrt(spread.astype(np.float64) ** 2 + 1e-5)
        plain = (plain - mean.reshape(-1, 1, 1)) * factor.reshape(-1, 1, 1)
        plain += shift.reshape(-1, 1, 1)
    nodes += [node("Add", "n r" if norm else "r a", "c"), *steps]
    feeds = {"x": x, "r": residual}
    made = session(nodes, feeds, "y", weights, opset=22)
    assert made.plan.source.count(" = k") == 1
    (y,) = made.run(None, feeds)
    assert kernel.calls == 1
    expected = function(plain + residual)
    scale = max(1.0, np.abs(plain).max())
    assert np.abs(y - expected).max() <= 2e-5 * scale


@pytest.mark.parametrize("case", [DENSE[3], ALONE[4]], ids=str)
def test_factors_per_channel_are_fused(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Watch(kernel_of(case), monkeypatch)
    x, w, b = both(case)
    column = floats(case.rows, 1, 1, seed=3)
    weights = {"w": w, "b": b, "column": column, "two": np.float32(2), "other": -column[None]}
    nodes = [node("Conv", "x w b", "a", **case.attributes), node("Mul", "column a", "m")]
    nodes += [node("Sub", "m other", "s"), node("Div", "s two", "d"), node("Relu", "d", "y")]
    made = session(nodes, {"x": x}, "y", weights)
    assert made.plan.source.count(" = k") == 1
    (y,) = made.run(None, {"x": x})
    assert kernel.calls == 1
    plain = convolve(x, w, *places(case)) + b.reshape(-1, 1, 1)
    assert np.abs(y - np.maximum((plain * column + column) / 2, 0)).max() <= 2e-5 * np.abs(y).max()


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("group", [1, 4])
@pytest.mark.parametrize(
    "shape", [(2, 8, 1, 9), (1, 8, 9, 9), (2, 8, 1, 1), (8, 1, 1), (9,), (1,), (3, 1, 8, 9, 9)]
)
def test_residual_of_another_shape_is_broadcast(
    shape: tuple[int, ...], group: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As what a step of time adds to each channel; also where the sum is larger than the image."""
    kernels = [Watch(kernel, monkeypatch) for kernel in (CONV, PIXELS, DEPTHWISE, CHANNELS)]
    x, w = floats(2, 4, 9, 9), floats(8, 4 // group, size, size, seed=1)
    r = floats(*shape, seed=2)
    sides = [size // 2] * 4
    nodes = [
        node("Conv", "x w", "c", pads=sides, group=group),
        node("Add", "c r", "d"),
        node("Relu", "d", "y"),
    ]
    made = session(nodes, {"x": x, "r": r}, "y", {"w": w})
    expected = np.maximum(convolve(x, w, pads=sides, group=group) + r, 0)
    for _ in range(3):
        (y,) = made.run(None, {"x": x, "r": r})
        np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)
    assert any(each.calls for each in kernels) == (len(shape) < 5)


def test_value_that_others_read_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Watch(CONV, monkeypatch)
    x, w = floats(1, 4, 6, 6), floats(3, 4, 3, 3, seed=1)
    nodes = [node("Conv", "x w", "c"), node("Relu", "c", "y")]
    c, y = run(nodes, {"x": x}, "c y", {"w": w})
    assert kernel.calls == 1
    assert np.abs(c - convolve(x, w)).max() < 1e-5
    assert np.array_equal(y, np.maximum(c, 0))


@pytest.mark.parametrize(
    "case", [DENSE[3], DENSE[4], DENSE[11], *TILED[:2], ALONE[0], SIDE_BY_SIDE[1]], ids=str
)
@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_one_odd_number_goes_where_windows_see_it(case: Case, odd: float) -> None:
    x, w, b = both(case)
    x[0, 1, 3, 4] = odd
    nodes = [node("Conv", "x w b", "c", **case.attributes), node("Relu", "c", "y")]
    y = run(nodes, {"x": x}, "y", {"w": w, "b": b})
    with np.errstate(invalid="ignore"):
        expected = np.maximum(convolve(x, w, *places(case)) + b.reshape(-1, 1, 1), 0)
    finite = np.isfinite(expected)
    assert np.array_equal(np.isnan(y), np.isnan(expected))
    assert np.array_equal(y[~finite], expected[~finite].astype(np.float32), equal_nan=True)
    assert np.abs(y[finite] - expected[finite]).max() <= 1e-3


@pytest.mark.parametrize("case", [DENSE[4], DENSE[12], ALONE[0]], ids=str)
def test_strided_input_and_computed_weights(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Watch(kernel_of(case), monkeypatch)
    x, w, _ = both(case)
    feeds = {"t": np.ascontiguousarray(x.transpose(0, 2, 3, 1)), "w": w}
    nodes = [
        node("Transpose", "t", "x", perm=[0, 3, 1, 2]),
        node("Conv", "x w", "y", **case.attributes),
    ]
    y = run(nodes, feeds, "y")
    assert kernel.calls == 1
    assert np.abs(y - convolve(x, w, *places(case))).max() <= tolerance(case, x, w)


def test_shapes_may_change_from_run_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Watch(CONV, monkeypatch)
    w = floats(5, 3, 3, 3)
    nodes = [node("Conv", "x w", "y", auto_pad="SAME_UPPER", strides=(2, 2))]
    made = session(nodes, {"x": floats(1, 3, 8, 8)}, "y", {"w": w})
    for n, height, width in ((1, 8, 8), (2, 9, 30), (1, 8, 8), (3, 1, 3)):
        x = floats(n, 3, height, width)
        (y,) = made.run(None, {"x": x})
        total = [max((-(-size // 2) - 1) * 2 + 3 - size, 0) for size in (height, width)]
        pads = [t // 2 for t in total] + [t - t // 2 for t in total]
        assert np.abs(y - convolve(x, w, (2, 2), None, pads)).max() < 1e-5
    assert kernel.calls == 4


def test_float16_and_three_dimensions_stay_right() -> None:
    x, w = floats(1, 2, 5, 6, 7), floats(3, 2, 2, 3, 2, seed=1)
    y = run([node("Conv", "x w", "y")], {"x": x}, "y", {"w": w})
    assert np.abs(y - convolve(x, w)).max() < 1e-5
