"""Operators that onnxruntime writes into models it optimizes, on kernels, against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from running import Watch, floats, run, session
from scipy import special
from test_jit_conv import Case
from test_jit_conv_int8 import BYTE_KINDS, bytes_of, check, codes, expected, kernel_of
from windows_oracle import convolve, seen

from models import node
from tenonnx_cpu.conv.layout_assignment import SUITED
from tenonnx_cpu.conv.pixels import PANEL_CHANNELS
from tenonnx_cpu.conv.select import CHANNELS, CONV, DEPTHWISE, PIXELS, WINOGRAD
from tenonnx_cpu.int8.pooling import AVERAGE, MAX_POOL
from tenonnx_cpu.int8.qlinear_binary import ADD

DOMAIN = "com.microsoft"
MICROSOFT = {DOMAIN: 1}

ACTIVATIONS: dict[str, tuple[list[float], Any]] = {
    "": ([], lambda y: y),
    "Relu": ([], lambda y: np.maximum(y, 0)),
    "Sigmoid": ([], special.expit),
    "Tanh": ([], np.tanh),
    "LeakyRelu": ([0.2], lambda y: np.where(y < 0, 0.2 * y, y)),
    "HardSigmoid": ([0.3, 0.4], lambda y: np.clip(0.3 * y + 0.4, 0, 1)),
    "Clip": ([-0.5, 0.7], lambda y: np.clip(y, -0.5, 0.7)),
}


def last(x: Any) -> Any:
    return np.ascontiguousarray(np.moveaxis(x, 1, -1))


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("summed", [False, True], ids=["", "sum"])
@pytest.mark.parametrize("op", ["FusedConv", "NhwcFusedConv"])
def test_convolution_with_activation(
    op: str, summed: bool, activation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, w, b = floats(2, 8, 9, 7), floats(5, 8, 3, 3, seed=1, scale=0.2), floats(5, seed=2)
    z = floats(2, 5, 9, 7, seed=3)
    turned = last if op.startswith("Nhwc") else np.asarray
    parameters, function = ACTIVATIONS[activation]
    feeds = {"x": turned(x)} | ({"z": turned(z)} if summed else {})
    given: dict[str, Any] = {"activation_params": parameters} if parameters else {}
    names = "x w b z" if summed else "x w b"
    made = node(op, names, "y", domain=DOMAIN, activation=activation, pads=[1] * 4, **given)
    few = 2 * len(w) >= PANEL_CHANNELS  # so few places go across vectors that channels fill by half
    watch = Watch(PIXELS if few or op.startswith("Nhwc") else CONV, monkeypatch)
    y = run([made], feeds, "y", {"w": turned(w), "b": b}, domains=MICROSOFT)
    assert watch.calls == 1
    total = convolve(x, w, pads=[1] * 4) + b[:, None, None] + (z if summed else 0)
    np.testing.assert_allclose(y, turned(function(total)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("case", "kernel"),
    [
        (Case((1, 64, 28, 28), 64, (3, 3), pads=(1, 1, 1, 1)), WINOGRAD),
        (Case((1, 16, 28, 28), 16, (3, 3), pads=(1, 1, 1, 1), group=16), CHANNELS),
        (Case((1, 20, 7, 7), 20, (3, 3), pads=(1, 1, 1, 1), group=20), CHANNELS),
        (Case((1, 6, 13, 11), 10, (3, 3), strides=(2, 2), group=2), CONV),
    ],
)
@pytest.mark.parametrize("constant", [True, False])
def test_channels_last(
    case: Case, kernel: Any, constant: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, w = floats(*case.x), floats(*case.weights, seed=1, scale=0.1)
    if not constant:
        # Some kernels are for weights that are laid out anew, once.
        kernel = {WINOGRAD: CONV, CHANNELS: DEPTHWISE}.get(kernel, kernel)
    if kernel is CHANNELS and not SUITED:
        kernel = DEPTHWISE
    watch = Watch(kernel, monkeypatch)
    feeds = {"x": last(x)} | ({} if constant else {"w": last(w)})
    made = node("NhwcConv", "x w", "y", domain=DOMAIN, **case.attributes)
    run_twice = session([made], feeds, "y", {"w": last(w)} if constant else None, domains=MICROSOFT)
    (y,), (again,) = run_twice.run(None, feeds), run_twice.run(None, feeds)
    assert watch.calls == 2
    np.testing.assert_array_equal(y, again)
    answer = convolve(x, w, case.strides, case.dilations, case.pads, case.group)
    np.testing.assert_allclose(y, np.moveaxis(answer, 1, -1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize(
    "case",
    [
        Case((1, 8, 14, 14), 16, (3, 3), pads=(1, 1, 1, 1)),
        Case((2, 16, 14, 14), 16, (3, 3), pads=(1, 1, 1, 1), group=16),
        Case((1, 24, 7, 9), 10, (1, 1)),
    ],
)
def test_bytes_with_channels_last(case: Case, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    given, x = codes(case, dtype, per_channel=True), bytes_of(case.x, dtype)
    made = node(
        "QLinearConv", "x xs xz w ws wz ys yz b", "y", domain=DOMAIN, channels_last=1,
        **case.attributes,
    )  # fmt: skip
    weights = {name: np.asarray(array) for name, array in given.items() if name != "bs"}
    kinds = {"x": BYTE_KINDS[dtype], "y": BYTE_KINDS[dtype]}
    watch = Watch(kernel_of(case), monkeypatch)
    y = run([made], {"x": last(x)}, "y", weights, domains=MICROSOFT, kinds=kinds)
    assert watch.calls == 1
    check(np.moveaxis(y, -1, 1), expected(case, x, given), given)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_maximum_of_bytes(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x = bytes_of((2, 6, 11, 9), dtype)
    made = node(
        "NhwcMaxPool", "x", "y", domain=DOMAIN, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4
    )
    kinds = {"x": BYTE_KINDS[dtype], "y": BYTE_KINDS[dtype]}
    watch = Watch(MAX_POOL, monkeypatch)
    y = run([made], {"x": last(x)}, "y", domains=MICROSOFT, kinds=kinds)
    assert watch.calls == 1
    windows = seen(x, (3, 3), (2, 2), (1, 1), [1] * 4, -np.inf)
    np.testing.assert_array_equal(y, np.moveaxis(windows.max((-2, -1)), 1, -1))


def test_a_chain_with_channels_last_stays_on_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """A convolution, its sum with what it saw, and the mean; images are views of one another."""
    case = Case((1, 8, 6, 6), 8, (1, 1))
    given, x = codes(case, np.uint8, per_channel=False), bytes_of(case.x, np.uint8)
    nodes = [
        node("QLinearConv", "x xs xz w ws wz ys yz", "c", domain=DOMAIN, channels_last=1),
        node("QLinearConv", "c ys yz w ws wz ys yz", "d", domain=DOMAIN, channels_last=1),
        node("QLinearAdd", "c ys yz d ys yz ys yz", "s", domain=DOMAIN),
        node("QLinearGlobalAveragePool", "s ys yz ys yz", "y", domain=DOMAIN, channels_last=1),
    ]
    weights = {name: np.asarray(given[name]) for name in ["xs", "xz", "w", "ws", "wz", "ys", "yz"]}
    kinds = dict.fromkeys("xcdsy", TensorProto.UINT8)
    watches = [Watch(kernel, monkeypatch) for kernel in (ADD, AVERAGE)]
    c, d, s, y = session(
        nodes, {"x": last(x)}, "c d s y", weights, domains=MICROSOFT, kinds=kinds
    ).run(None, {"x": last(x)})
    assert [watch.calls for watch in watches] == [1, 1]
    zero = float(given["yz"])
    total = np.clip(c.astype(np.float64) + d - zero, 0, 255)
    np.testing.assert_array_equal(s, total)
    mean = s.astype(np.float64).mean((1, 2), keepdims=True)
    assert y.shape == (1, 1, 1, 8)
    np.testing.assert_allclose(y, mean, atol=0.5)
