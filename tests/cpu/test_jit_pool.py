from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from running import Watch, floats, run, session
from windows_oracle import seen

from models import node
from tenonnx_cpu.conv.pooling import AVERAGE, POOL, POOL_VOLUME

CASES: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((1, 64, 112, 112), {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)}),
    ((2, 3, 7, 9), {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)}),
    ((1, 5, 8, 8), {"kernel_shape": (2, 2), "strides": (2, 2)}),
    ((1, 5, 20, 50), {"kernel_shape": (5, 5), "pads": (2, 2, 2, 2)}),
    ((2, 7, 6, 5), {"kernel_shape": (2, 2), "strides": (2, 2)}),
    ((2, 3, 19, 35), {"kernel_shape": (2, 2), "strides": (2, 2), "pads": (1, 0, 0, 1)}),
    ((3, 4, 9, 6), {"kernel_shape": (2, 3), "strides": (3, 2), "dilations": (2, 1)}),
    ((3, 2, 11, 13), {"kernel_shape": (3, 2), "strides": (3, 1), "pads": (2, 0, 0, 1)}),
    ((1, 2, 20, 20), {"kernel_shape": (3, 3), "dilations": (2, 3), "pads": (1, 2, 1, 2)}),
    ((1, 1, 1, 1), {"kernel_shape": (1, 1)}),
    ((2, 5, 100), {"kernel_shape": (3,), "strides": (2,), "pads": (1, 1)}),
    ((1, 3, 41), {"kernel_shape": (4,), "dilations": (3,), "pads": (2, 3)}),
    ((1, 9, 8, 14, 12), {"kernel_shape": (2, 2, 2), "strides": (2, 2, 2)}),
    ((2, 3, 7, 9, 11), {"kernel_shape": (3, 3, 3), "pads": (1, 1, 1, 1, 1, 1)}),
    ((1, 2, 9, 5, 6), {"kernel_shape": (3, 2, 2), "strides": (2, 1, 3), "dilations": (3, 1, 1)}),
    ((1, 2, 9, 5, 6), {"kernel_shape": (2, 1, 1), "strides": (4, 1, 1), "pads": (1, 0, 0) * 2}),
    ((1, 1, 30, 20, 25), {"kernel_shape": (3, 5, 1), "strides": (1, 2, 1), "pads": (1, 2, 0) * 2}),
]


def windows(x: Any, attributes: dict[str, Any], fill: float) -> Any:
    axes = len(attributes["kernel_shape"])
    given = {
        "strides": (1,) * axes,
        "dilations": (1,) * axes,
        "pads": (0,) * 2 * axes,
        **attributes,
    }
    found = seen(
        x, *(given[name] for name in ("kernel_shape", "strides", "dilations", "pads")), fill
    )
    return found.reshape(*found.shape[:-axes], -1)


def kernel_of(shape: tuple[int, ...]) -> Any:
    return POOL_VOLUME if len(shape) == 5 else POOL


@pytest.mark.parametrize(("shape", "attributes"), CASES)
@pytest.mark.parametrize("threads", [1, 4])
def test_max_pool(
    shape: Any, attributes: Any, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Watch(kernel_of(shape), monkeypatch)
    x = floats(*shape)
    x.flat[:: max(7, x.size // 50)] = np.nan
    y = run([node("MaxPool", "x", "y", **attributes)], {"x": x}, "y", threads=threads)
    assert kernel.calls == 1
    expected = np.max(windows(x, attributes, -np.inf), axis=-1)
    assert np.array_equal(y, expected, equal_nan=True)


@pytest.mark.parametrize(("shape", "attributes"), CASES)
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_max_pool_of_bytes(
    shape: Any, attributes: Any, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel, limits = Watch(kernel_of(shape), monkeypatch), np.iinfo(dtype)
    x = np.random.default_rng(0).integers(limits.min, limits.max, shape, dtype, endpoint=True)
    kinds = dict.fromkeys("xy", 3 if dtype == np.int8 else 2)
    one = session([node("MaxPool", "x", "y", **attributes)], {"x": x}, "y", kinds=kinds)
    expected = np.max(windows(x.astype(np.float32), attributes, -np.inf), axis=-1).astype(dtype)
    for _ in range(3):
        np.testing.assert_array_equal(one.run(None, {"x": x})[0], expected)
    assert kernel.calls


@pytest.mark.parametrize(("shape", "attributes"), CASES)
@pytest.mark.parametrize("padding", [0, 1])
def test_average_pool(
    shape: Any, attributes: Any, padding: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Watch(kernel_of(shape), monkeypatch)
    x = floats(*shape)
    nodes = [node("AveragePool", "x", "y", count_include_pad=padding, **attributes)]
    y = run(nodes, {"x": x}, "y")
    assert kernel.calls == 1
    mean = np.mean if padding else np.nanmean
    expected = mean(windows(x, attributes, 0 if padding else np.nan), axis=-1)
    assert np.abs(y - expected).max() < 1e-6


def test_windows_that_see_next_to_nothing_are_numpys(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Watch(POOL, monkeypatch)
    size = 1 << 40
    x = floats(1, 1, 4, 4)
    pads = [size - 1, size - 1, 0, 0]
    y = run([node("MaxPool", "x", "y", kernel_shape=[size, size], pads=pads)], {"x": x}, "y")
    assert kernel.calls == 0
    np.testing.assert_array_equal(y, np.maximum.accumulate(np.maximum.accumulate(x, 2), 3))


def test_last_window_of_ceil_mode_may_stick_out(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Watch(POOL, monkeypatch)
    x = floats(1, 2, 6, 6)
    attributes = {"kernel_shape": (3, 3), "strides": (2, 2), "ceil_mode": 1}
    largest, mean = (
        run([node(op, "x", "y", **attributes)], {"x": x}, "y") for op in ("MaxPool", "AveragePool")
    )
    assert kernel.calls == 2
    places = {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (0, 0, 1, 1)}
    assert np.array_equal(largest, windows(x, places, -np.inf).max(axis=-1))
    assert np.abs(mean - np.nanmean(windows(x, places, np.nan), axis=-1)).max() < 1e-6


@pytest.mark.parametrize("shape", [(1, 2048, 7, 7), (2, 3, 5), (1, 1, 1, 1), (3, 70, 2, 3, 4)])
def test_global_average_pool(shape: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Watch(AVERAGE, monkeypatch)
    x = floats(*shape)
    y = run([node("GlobalAveragePool", "x", "y")], {"x": x}, "y", threads=4)
    assert kernel.calls == 1
    axes = tuple(range(2, len(shape)))
    assert np.abs(y - x.mean(axis=axes, keepdims=True, dtype=np.float64)).max() < 1e-6


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("axes", [[2, 3], [-1, 2], [3], [1, 2, 3], [-2, -1]])
def test_means_over_images(axes: list[int], keepdims: int) -> None:
    x = floats(2, 5, 7, 9)
    one = node("ReduceMean", "x axes", "y", keepdims=keepdims)
    y = run([one], {"x": x}, "y", {"axes": np.array(axes)})
    expected = x.astype(np.float64).mean(tuple(axes), keepdims=bool(keepdims))
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)
