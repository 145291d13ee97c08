"""Convolutions by cuDNN: what it is given, and what becomes of what it refuses."""

from __future__ import annotations

import logging
from typing import Any

import emulated
import numpy as np
import onnx
import pytest
import strict
from cudnn_stand_in import Engine, Library, cudnn
from direct import convolve as directly
from kernel_calls import BFLOAT16, FLOATS, chosen, close, draw, needs_compiler

import tenonnx
from models import model, node, value
from tenonnx.weights.registry import WeightRegistry
from tenonnx_array.conv_transpose import conv_transpose
from tenonnx_array.windows import place
from tenonnx_contrib.fused import fused_conv
from tenonnx_cuda.conv.by_cudnn import ends_of
from tenonnx_cuda.cudnn import plans

CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "padded": ((2, 3, 9, 8), (5, 3, 3, 3), {"pads": [1, 1, 1, 1]}),
    "groups": ((1, 4, 11, 7), (6, 2, 2, 3), {"group": 2, "strides": [2, 1], "dilations": [1, 2]}),
    "one pixel": ((2, 6, 5, 4), (7, 6, 1, 1), {"strides": [2, 2]}),
    "askew": ((1, 2, 6, 7), (3, 2, 3, 4), {"pads": [0, 2, 1, 0]}),
    "a line": ((2, 4, 20), (3, 4, 5), {"pads": [4, 0]}),
    "a space": ((1, 2, 5, 6, 4), (3, 2, 2, 3, 2), {"pads": [0, 1, 0, 1, 1, 1]}),
}


@pytest.mark.parametrize("tf32", [False, True])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_cudnn_is_told_what_is_meant(name: str, dtype: Any, tf32: bool) -> None:
    x_shape, w_shape, attributes = CASES[name]
    x, w, b = (draw(i, *s, dtype=dtype) for i, s in enumerate((x_shape, w_shape, w_shape[:1])))
    expected = directly(x, w, b, kernel=w_shape[2:], **attributes)
    library = Library()
    run = chosen("Conv", 11, tf32=tf32, cudnn=cudnn(library), **attributes)
    close(run(x, w, b), expected, dtype, scale=2)
    assert library.started, "the convolution and its bias at once"
    z = draw(5, *expected.shape, dtype=dtype)
    run = chosen("FusedConv", 1, domain="com.microsoft", cudnn=cudnn(library),
                 inside=True, activation="Relu", tf32=tf32, **attributes)  # fmt: skip
    y = run(x, w, b, z)
    close(y, np.maximum(expected + z.astype(np.float64), 0), dtype, scale=2)
    assert (y.strides[1] == y.itemsize) == (tf32 or y.itemsize == 2), "channels are last"
    last = np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)
    plain = directly(x, w, None, kernel=w_shape[2:], **attributes)
    close(run(last, w, None, None), np.maximum(plain, 0), dtype, scale=2)


def test_images_at_odd_addresses_are_copied_as_they_lie() -> None:
    """One of several whose channels are last, which does not begin at 16 bytes."""
    x = np.moveaxis(draw(0, 3, 5, 7, 3), -1, 1)[1:]
    assert x.ctypes.data % 16
    w = draw(1, 4, 3, 3, 3)
    run = chosen("Conv", 11, tf32=True, cudnn=cudnn(Library()))
    close(run(x, w), directly(x, w, None, kernel=(3, 3)), np.float32, scale=2)


@needs_compiler
@pytest.mark.parametrize("activation", ["HardSwish", "Clip", "Sigmoid", "Relu"])
def test_what_cudnn_has_no_engine_for_is_left_to_a_kernel(activation: str) -> None:
    """Engines that do fewer and fewer of the four operations, down to the first alone."""
    shapes = (2, 3, 9, 8), (5, 3, 3, 3), (5,), (2, 5, 7, 6)
    x, w, b, z = (draw(i, *shape) for i, shape in enumerate(shapes))
    bounds = {"activation_params": (-1.0, 2.0)} if activation == "Clip" else {}
    given = {"activation": activation, **bounds}
    expected = fused_conv(np, x, w, b, z, **given)  # type: ignore[arg-type]  # a string
    for most in (4, 3, 2, 1):
        library = Library(Engine(most=most))
        run = chosen("FusedConv", 1, domain="com.microsoft", cudnn=cudnn(library),
                     inside=True, tf32=True, **given)  # fmt: skip
        close(run(x, w, b, z), expected.astype(np.float64), np.float32, 4)
        assert library.started


@needs_compiler
def test_where_cudnn_has_no_way_a_kernel_of_the_provider_has(
    caplog: pytest.LogCaptureFixture,
) -> None:
    x, w, b = draw(0, 2, 3, 9, 8), draw(1, 5, 3, 3, 3), draw(2, 5)
    library = Library(Engine(most=0), Engine(fails=True))
    run = chosen("Conv", 11, cudnn=cudnn(library))
    with caplog.at_level(logging.WARNING, "tenonnx"):
        for _ in range(2):
            close(run(x, w, b), directly(x, w, b, kernel=(3, 3)), np.float32)
    assert len(caplog.records) == 1
    assert "no way for a convolution of (2, 3, 9, 8) by (5, 3, 3, 3)" in caplog.text


@needs_compiler
def test_where_a_plan_fails_a_kernel_of_the_provider_does_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    x, w, b = draw(0, 2, 3, 9, 8), draw(1, 5, 3, 3, 3), draw(2, 5)
    run = chosen("Conv", 11, cudnn=cudnn(Library(Engine(fails=True))), algorithm="HEURISTIC")
    close(run(x, w, b), directly(x, w, b, kernel=(3, 3)), np.float32)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "cuDNN failed at a convolution of (2, 3, 9, 8) by (5, 3, 3, 3)" in caplog.text


TRANSPOSED: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "doubled": ((2, 4, 5, 6), (4, 3, 4, 4), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    "more": ((1, 4, 5, 6), (4, 2, 3, 3), {"strides": [2, 2], "output_padding": [1, 1], "group": 2}),
    "a line": ((2, 4, 9), (4, 3, 4), {"strides": [3], "dilations": [2], "pads": [2, 1]}),
    "same": ((1, 2, 4, 4), (2, 3, 3, 3), {"strides": [2, 2], "auto_pad": "SAME_UPPER"}),
}


@needs_compiler
@pytest.mark.parametrize("dtype", FLOATS[:2], ids=str)
@pytest.mark.parametrize("name", TRANSPOSED)
def test_transposed_convolution(name: str, dtype: Any) -> None:
    x_shape, w_shape, attributes = TRANSPOSED[name]
    maps = w_shape[1] * attributes.get("group", 1)
    x, w, b = (draw(i, *s, dtype=dtype) for i, s in enumerate((x_shape, w_shape, (maps,))))
    expected = conv_transpose(np, *(a.astype(np.float64) for a in (x, w, b)), **attributes)
    library = Library(Engine(most=1))
    run = chosen("ConvTranspose", 11, cudnn=cudnn(library), tf32=True, inside=True,
                 **attributes)  # fmt: skip
    close(run(x, w, b), expected, dtype, scale=2)
    close(run(x, w), expected - b.astype(np.float64).reshape(-1, *(1,) * (x.ndim - 2)), dtype, 2)
    assert library.started


def start(library: Library, times: int = 1, **attributes: Any) -> Library:
    """Run a convolution on a library."""
    run = chosen("Conv", 11, cudnn=cudnn(library), times=1, **attributes)
    for _ in range(times):
        run(draw(0, 1, 2, 5, 5), draw(1, 3, 2, 3, 3))
    return library


@needs_compiler
def test_the_fastest_engine_is_taken_from_then_on() -> None:
    slow, fast, fails = Engine(3.0), Engine(1.0, workspace=64), Engine(0.5, fails=True)
    large = Engine(0.1, workspace=1 << 40)
    compiled = Engine(0.1, behaviors=(plans.RUNTIME_COMPILATION,))
    library = start(Library(slow, fails, large, compiled, fast), times=3)
    rounds = 1 + plans.TIMING_ROUNDS
    assert library.started == [slow] * rounds + [fast] * (rounds + 3)


@needs_compiler
def test_engines_are_as_exact_as_they_should_be() -> None:
    sloppy = Engine(0.1, notes=(plans.REDUCED_SUMS,))
    changing = Engine(0.2, notes=(plans.NONDETERMINISTIC, plans.TENSOR_CORE))
    tensor, exact = Engine(0.5, notes=(plans.TENSOR_CORE,)), Engine(1.0)
    engines = (sloppy, changing, tensor, exact)
    assert start(Library(*engines), tf32=False).started[-1] is exact
    assert start(Library(*engines), tf32=True).started[-1] is tensor


@needs_compiler
def test_while_a_graph_is_captured_nothing_is_timed() -> None:
    slow, fast = Engine(3.0), Engine(1.0)
    library = Library(slow, fast)
    strict.CAPTURING.append(True)
    try:
        start(library)
    finally:
        strict.CAPTURING.pop()
    assert library.started == [slow]


@needs_compiler
def test_descriptors_are_given_back() -> None:
    library = start(Library(), times=2)
    kept = len(library.alive)
    start(library)
    assert len(library.alive) <= 2 * kept
    library.alive.clear()


def test_windows_are_padded_alike_where_that_changes_nothing() -> None:
    cases = {
        ((8,), (3,), (2,), (1, 1)): (1,),
        ((8,), (3,), (2,), (1, 0)): (1,),  # it ends before the padding
        ((8,), (3,), (2,), (0, 1)): (1,),
        ((9,), (2,), (1,), (0, 1)): (1,),
        ((9,), (4,), (3,), (0, 0)): (0,),
        ((9,), (3,), (1,), (2, 0)): (0,),
    }
    for (size, kernel, strides, pads), expected in cases.items():
        windows = place(size, kernel, strides=strides, pads=pads)
        assert ends_of(windows) == expected


def network(dtype: Any = np.float32) -> onnx.ModelProto:
    """Two convolutions with what is between and behind them, as exporters write residual blocks."""
    weights = {f"W{i}": draw(i, 8, 8, 3, 3, dtype=dtype) for i in (1, 2)}
    biases = {f"B{i}": draw(i + 2, 8, dtype=dtype) for i in (1, 2)}
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    shape = (1, 8, 6, 6)
    return model(
        [
            node("MaxPool", "x", "m", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
            node("Conv", "m W1 B1", "c", pads=[1, 1, 1, 1]),
            node("Sigmoid", "c", "f"),
            node("Mul", "c f", "r"),
            node("Conv", "r W2 B2", "d", pads=[1, 1, 1, 1]),
            node("Add", "d m", "s"),
            node("Relu", "s", "y"),
            node("GlobalAveragePool", "y", "g"),
        ],
        [value("x", kind, shape)],
        [value("y", kind, shape), value("g", kind, (1, 8, 1, 1))],
        {**weights, **biases},
    )


def on(platform: emulated.FakePlatform, made: Any, registry: Any) -> tenonnx.InferenceSession:
    return emulated.session(made, emulated.provider_on(platform), weights=registry)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, BFLOAT16], ids=str)
def test_a_network_has_its_channels_last_and_its_weights_once(dtype: Any) -> None:
    made, x = network(dtype), draw(9, 1, 8, 6, 6, dtype=dtype)
    platform, registry = emulated.FakePlatform(), WeightRegistry()
    library = Library()
    platform.cudnn = cudnn(library)
    sessions = [on(platform, made, registry) for _ in range(2)]
    expected = tenonnx.InferenceSession(made, providers=["cpu"]).run(None, {"x": x})
    for session in sessions:
        for actual, wanted in zip(session.run(None, {"x": x}), expected, strict=True):
            close(actual, wanted.astype(np.float64), dtype, scale=8)
            assert actual.flags.c_contiguous
    assert set(platform.compiled) == {"pool", "finish", "pool_whole"}, "cuDNN did the others"
    weights = sum(draw(0, 2 * (8 * 8 * 9 + 8), dtype=dtype).nbytes for _ in "w")
    assert sum(n for what, n in platform.log if what == "copy") == weights
    assert platform.allocated <= weights + 4 * 256
