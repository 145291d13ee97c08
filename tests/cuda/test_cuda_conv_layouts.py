"""Kernels for images, whichever way they lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import strict
from direct import convolve
from kernel_calls import FLOATS, chosen, close, draw, needs_compiler, refuse

from tenonnx_array.batch_norm import batch_normalization
from tenonnx_array.pool import average_pool, max_pool
from tenonnx_array.resize import resize
from tenonnx_contrib.fused import fused_conv
from tenonnx_cuda.conv import layouts


def last(x: Any) -> Any:
    """The same array with its channels last in memory."""
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)


def strided(shape: tuple[int, ...], seed: int = 0, dtype: Any = np.float32) -> list[Any]:
    """An array as it may lie: in order, with its channels last, and with gaps."""
    wide = draw(seed, *shape[:-1], 2 * shape[-1], dtype=dtype)
    x = np.ascontiguousarray(wide[..., ::2])
    return [x, last(x), wide[..., ::2]]


def lies_last(strides: tuple[int, ...], width: int) -> bool:
    return strides[1] == width


def lies_as(y: Any, x: Any, inside: bool) -> bool:
    """Return whether a result has its input's layout, or that of a run's outputs."""
    wanted = inside and lies_last(x.strides, x.itemsize)
    return bool(lies_last(y.strides, y.itemsize) if wanted else y.flags.c_contiguous)


@needs_compiler
@pytest.mark.parametrize(("dtype", "times", "shape", "kernel", "attributes"), [
    (FLOATS[0], 1, (2, 8, 9, 7), (3, 3), {"pads": [1, 1, 1, 1], "strides": [2, 1]}),
    (FLOATS[0], 2, (1, 34, 9, 5), (1, 3), {"pads": [0, 1, 0, 1]}),
    (FLOATS[1], 1, (1, 132, 20, 5), (5, 3), {"dilations": [2, 1], "pads": [4, 1, 4, 1]}),
    (FLOATS[2], 1, (2, 33, 50), (4,), {"pads": [3, 0]}),
], ids=["image", "twice", "large", "line"])  # fmt: skip
def test_convolution_of_each_channel(
    dtype: Any, times: int, shape: tuple[int, ...], kernel: tuple[int, ...], attributes: Any
) -> None:
    channels = shape[1]
    w, b = (draw(i, times * channels, *s, dtype=dtype) for i, s in enumerate(((1, *kernel), ())))
    given = {"group": channels, **attributes}
    for x in strided(shape, dtype=dtype):
        expected = convolve(x, w, b, kernel=kernel, **given)
        for inside in (False, True):
            y = chosen("Conv", 11, inside=inside, **given)(x, w, b)
            close(y, expected, dtype)
            assert lies_as(y, x, inside)
    z = last(draw(3, *expected.shape, dtype=dtype))
    run = chosen("FusedConv", 1, domain="com.microsoft", inside=True, activation="Relu", **given)
    close(run(last(x), w, b, z), np.maximum(expected + z.astype(np.float64), 0), dtype)


@needs_compiler
@pytest.mark.parametrize("activation", ["HardSwish", "LeakyRelu"])
def test_activations_after_it(activation: str) -> None:
    x, w = draw(0, 1, 8, 5, 5), draw(1, 8, 1, 3, 3)
    given: Any = {"activation": activation, "group": 8}
    expected = fused_conv(np, x, w, **given).astype(np.float64)
    run = chosen("FusedConv", 1, domain="com.microsoft", **given)
    close(run(last(x), w), expected, np.float32, 2)


POOLS: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "resnet": ((2, 5, 11, 9), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    "up": ((1, 3, 8, 8), {"kernel_shape": [3, 2], "strides": [2, 3], "ceil_mode": 1}),
    "askew": ((1, 3, 8, 8), {"kernel_shape": [3, 3], "pads": [0, 2, 1, 0], "ceil_mode": 1}),
    "same": ((2, 3, 7, 10), {"kernel_shape": [3, 4], "strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    "line": ((2, 3, 10), {"kernel_shape": [4], "dilations": [2], "pads": [1, 2]}),
}


@needs_compiler
@pytest.mark.parametrize("name", POOLS)
def test_pooling(name: str) -> None:
    """By the array library, which has ONNX's own cases behind it."""
    shape, attributes = POOLS[name]
    plain = {key: tuple(v) if isinstance(v, list) else v for key, v in attributes.items()}
    dtype = FLOATS[len(name) % 3]
    for x in strided(shape, dtype=dtype):
        for inside in (False, True):
            y = chosen("MaxPool", 12, inside=inside, **attributes)(x)[0]
            np.testing.assert_array_equal(y, max_pool(np, x, **plain)[0])
            assert lies_as(y, x, inside)
        for pads in (0, 1):
            run = chosen("AveragePool", 19, inside=True, count_include_pad=pads, **attributes)
            wide = average_pool(np, x.astype(np.float64), count_include_pad=pads, **plain)
            close(run(x), wide, dtype)


@needs_compiler
def test_a_nan_is_the_largest() -> None:
    x = draw(0, 1, 3, 6, 6)
    x[0, 1, 2, 2] = np.nan
    run = chosen("MaxPool", 12, inside=True, kernel_shape=[3, 3])
    for image in (x, last(x)):
        np.testing.assert_array_equal(run(image)[0], max_pool(np, x, kernel_shape=(3, 3))[0])
        whole = chosen("GlobalMaxPool", 1)(image)
        np.testing.assert_array_equal(whole, x.max((2, 3), keepdims=True))


@needs_compiler
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape", [(2, 40, 7, 7), (1, 5, 300), (3, 9, 2, 3, 4)])
def test_pooling_of_whole_images(shape: tuple[int, ...], dtype: Any) -> None:
    for x in strided(shape, dtype=dtype):
        axes = tuple(range(2, x.ndim))
        mean = x.astype(np.float64).mean(axes, keepdims=True)
        close(chosen("GlobalAveragePool", 1)(x), mean, dtype)
        np.testing.assert_array_equal(chosen("GlobalMaxPool", 1)(x), x.max(axes, keepdims=True))


RESIZES: dict[str, dict[str, Any]] = {
    "twice": {"scales": [1, 1, 2, 2], "coordinate_transformation_mode": "asymmetric",
              "nearest_mode": "floor"},
    "less": {"sizes": [2, 3, 4, 9], "mode": "linear", "antialias": 1},
    "smooth": {"sizes": [11, 6], "axes": [2, 3], "mode": "cubic"},
    "corners": {"scales": [1, 1, 1.7, 1], "mode": "linear",
                "coordinate_transformation_mode": "align_corners"},
}  # fmt: skip


@needs_compiler
@pytest.mark.parametrize("name", RESIZES)
def test_resize(name: str) -> None:
    attributes = dict(RESIZES[name])
    scales, sizes = (attributes.pop(key, None) for key in ("scales", "sizes"))
    given = (None if scales is None else np.float32(scales), None if sizes is None
             else np.int64(sizes))  # fmt: skip
    dtype = FLOATS[len(name) % 3]
    run = chosen("Resize", 18, inside=True, **attributes)
    plain = {key: tuple(v) if isinstance(v, list) else v for key, v in attributes.items()}
    for x in strided((2, 3, 7, 6), dtype=dtype):
        expected = resize(np, x.astype(np.float64), None, *given, **plain)
        for _ in range(2):
            y = run(x, None, *given, host=(1, 2, 3))
            close(y, expected, dtype)
            assert lies_as(y, x, True)


@needs_compiler
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_normalization_by_channel(dtype: Any) -> None:
    scale, bias, mean = (draw(i, 12, dtype=dtype) for i in range(3))
    variance = np.abs(draw(3, 12, dtype=dtype))
    wide = [a.astype(np.float64) for a in (scale, bias, mean, variance)]
    run = chosen("BatchNormalization", 15, inside=True, epsilon=0.01)
    for x in strided((2, 12, 5, 7), dtype=dtype):
        (expected,) = batch_normalization(np, x.astype(np.float64), *wide, epsilon=0.01)
        (y,) = run(x, scale, bias, mean, variance)
        close(y, expected, dtype)
        assert lies_as(y, x, True)


@needs_compiler
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(("op", "version", "groups", "shared"), [
    ("InstanceNormalization", 6, 12, 1), ("GroupNormalization", 18, 3, 4),
    ("GroupNormalization", 21, 4, 1),
])  # fmt: skip
def test_normalization_of_groups(
    op: str, version: int, groups: int, shared: int, dtype: Any
) -> None:
    scale, bias = draw(1, 12 // shared, dtype=dtype), draw(2, 12 // shared, dtype=dtype)
    given = {} if version == 6 else {"num_groups": groups}
    run = chosen(op, version, inside=True, epsilon=0.01, **given)
    factor, shift = (np.repeat(a.astype(np.float64), shared)[:, None, None] for a in (scale, bias))
    for x in strided((2, 12, 5, 7), dtype=dtype):
        flat = x.astype(np.float64).reshape(2, groups, -1)
        apart = flat - flat.mean(-1, keepdims=True)
        normal = (apart / np.sqrt(flat.var(-1, keepdims=True) + 0.01)).reshape(x.shape)
        y = run(x, scale, bias)
        close(y, normal * factor + shift, dtype)
        assert lies_as(y, x, True)


def test_what_lies_some_way_goes_on_so() -> None:
    """Activations, sums and joined channels of images whose channels are last."""
    x, y = draw(0, 2, 3, 4, 5), draw(1, 2, 3, 4, 5)
    add = chosen("Add", 14, inside=True, plain=strict.xp.add)
    for given in ((last(x), y), (x, last(y)), (last(x), y[:, :, :1, :1]), (last(x), y[0, 0, 0, 0])):
        made = add(*given)
        np.testing.assert_array_equal(made, given[0] + given[1])
        assert lies_last(made.strides, 4)
    for given in ((x, y), (last(x), y[0])):
        made = add(*given)
        np.testing.assert_array_equal(made, given[0] + given[1])
    made = chosen("Concat", 13, inside=True, axis=-3, plain=refuse)(last(x), last(y))
    np.testing.assert_array_equal(made, np.concatenate([x, y], 1))
    assert lies_last(made.strides, 4)


def test_how_images_lie() -> None:
    x = strict.wrap(draw(0, 2, 3, 4, 5))
    turned = layouts.with_channels(strict.xp, x, at_end=True)
    assert layouts.has_channels_last(x) is False
    assert layouts.has_channels_last(turned) is True
    assert layouts.with_channels(strict.xp, turned, at_end=True) is turned
    np.testing.assert_array_equal(turned.held, x.held)
    assert lies_last(turned.strides, 4)
    assert layouts.has_channels_last(x[:, :, ::2]) is None
    assert layouts.has_channels_last(x[:, :1]) is None
    line = strict.wrap(draw(0, 1, 6, 1))
    assert layouts.is_last(line), "of one pixel it is the same"
    made = layouts.empty(strict.xp, (2, 3, 4), np.float32, at_end=True)
    assert layouts.has_channels_last(made) is True
