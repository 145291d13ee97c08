from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from running import Watch, floats, run
from windows_oracle import convolve

import tenonnx
from models import FLOAT, model, node, value
from tenonnx.weights.sidefile import SideFiles
from tenonnx_array.windows import place
from tenonnx_cpu.conv.kernels import WINOGRAD_FIELDS
from tenonnx_cpu.conv.kernels.winograd_matrices import POINTS, WINOGRAD_CHANNELS, matrices
from tenonnx_cpu.conv.select import CONV, WINOGRAD
from tenonnx_cpu.conv.winograd import tile_size, transformed, winograd_layout

CONVOLUTION = [node("Conv", "x w", "y", pads=(1, 1, 1, 1))]


@pytest.mark.parametrize("size", POINTS)
def test_matrices_convolve_exactly(size: int) -> None:
    rng = np.random.default_rng(size)
    d, g = rng.standard_normal((size + 2, size + 2)), rng.standard_normal((3, 3))
    m = matrices(size)
    y = m.results @ ((m.weights @ g @ m.weights.T) * (m.image @ d @ m.image.T)) @ m.results.T
    np.testing.assert_allclose(y, convolve(d[None, None], g[None, None])[0, 0], atol=1e-12)


@pytest.mark.parametrize("size", POINTS)
def test_constants_of_the_image_are_exact_in_float32(size: int) -> None:
    image = matrices(size).image
    assert np.array_equal(image, image.astype(np.float32))


@pytest.mark.parametrize("size", POINTS)
def test_weights_lie_in_panels_with_zeros_beyond_them(size: int) -> None:
    w = floats(WINOGRAD_CHANNELS + 3, 5, 3, 3)
    panels = transformed(w, size)
    side = matrices(size).weights
    assert panels.shape == (2, (size + 2) ** 2, 5, WINOGRAD_CHANNELS)
    expected = (side @ w[WINOGRAD_CHANNELS + 2, 4].astype(np.float64) @ side.T).astype(np.float32)
    np.testing.assert_allclose(panels[1, :, 4, 2], expected.ravel(), rtol=1e-6, atol=1e-7)
    assert not panels[1, :, :, 3:].any()


@settings(deadline=None, max_examples=300)
@given(
    batch=st.integers(1, 3),
    height=st.integers(1, 300),
    width=st.integers(1, 300),
    channels=st.integers(1, 600),
    size=st.sampled_from(sorted(POINTS)),
    threads=st.integers(1, 64),
)
def test_layouts_cover_the_image(
    batch: int, height: int, width: int, channels: int, size: int, threads: int
) -> None:
    windows = place((height, width), (3, 3), pads=(1, 1, 1, 1))
    cut = winograd_layout((batch, channels, height, width), 70, size, windows, threads)
    n = dict(zip(WINOGRAD_FIELDS, cut.numbers.tolist(), strict=True))
    assert n["tiles_y"] * size >= height
    assert n["tiles_x"] * size >= width
    across = math.ceil(n["tiles_x"] / n["block_x"])
    assert n["blocks_y"] * n["block_y"] >= n["tiles_y"]
    assert n["blocks"] == batch * n["blocks_y"] * across
    assert n["pitch"] >= n["block_y"] * n["block_x"]
    assert n["apart"] >= channels * n["pitch"]
    assert n["products"] < n["lines"] < n["work"] <= cut.floats
    assert 1 <= cut.threads <= threads


def test_tiles_are_for_many_channels_and_many_tiles() -> None:
    def size(channels: int, width: int, batch: int = 1, stride: int = 1) -> int:
        windows = place((width, width), (3, 3), pads=(1, 1, 1, 1), strides=(stride, stride))
        return tile_size(batch, channels, channels, windows)

    assert [size(64, 56), size(128, 28), size(256, 14), size(512, 7)] == [4, 4, 2, 0]
    assert size(512, 7, batch=16) > 0
    assert size(16, 56) == size(64, 56, stride=2) == 0


@pytest.mark.parametrize("odd", [np.nan, np.inf, 3e38])
def test_what_tiles_would_spread_is_computed_without_them(
    odd: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiles, plain = Watch(WINOGRAD, monkeypatch), Watch(CONV, monkeypatch)
    x, w = floats(1, 64, 30, 30), floats(64, 64, 3, 3, seed=1) / np.float32(10)
    (once, again) = (run(CONVOLUTION, {"x": x}, "y", {"w": w}) for _ in range(2))
    assert np.array_equal(once, again)
    assert (tiles.calls, plain.calls) == (2, 0)
    x[0, 5, 17, 17] = odd
    y = run(CONVOLUTION, {"x": x}, "y", {"w": w})
    assert (tiles.calls, plain.calls) == (3, 1)
    touched = np.zeros((30, 30), bool)
    touched[16:19, 16:19] = True
    assert np.abs(y - once)[:, :, ~touched].max() < 1e-4


def test_transformed_weights_are_derived_once(tmp_path: Path) -> None:
    x, w = floats(1, 64, 28, 28), floats(64, 64, 3, 3, seed=1)
    images = (value(name, FLOAT, x.shape) for name in "xy")
    file = tmp_path / "model.onnx"
    proto = model(CONVOLUTION, [next(images)], [next(images)], {"w": w})
    file.write_bytes(proto.SerializeToString())
    registry = tenonnx.WeightRegistry(SideFiles(tmp_path / "cache"))
    options = tenonnx.SessionOptions(weights=registry)
    sessions = [tenonnx.InferenceSession(file, options) for _ in range(2)]
    one, two = (made.run(None, {"x": x})[0] for made in sessions)
    assert np.array_equal(one, two)
    size = 64 * 64 * 36 * 4
    assert size <= registry.report().derived < size + 1.1 * w.nbytes
    assert registry.report().private == 0


def test_disabled_prepacking_leaves_weights_as_they_are(tmp_path: Path) -> None:
    x, w = floats(1, 64, 28, 28), floats(64, 64, 3, 3, seed=1)
    images = (value(name, FLOAT, x.shape) for name in "xy")
    proto = model(CONVOLUTION, [next(images)], [next(images)], {"w": w})
    registry = tenonnx.WeightRegistry(SideFiles(tmp_path))
    options = tenonnx.SessionOptions(weights=registry)
    options.add_session_config_entry("session.disable_prepacking", "1")
    (y,) = tenonnx.InferenceSession(proto.SerializeToString(), options).run(None, {"x": x})
    assert np.abs(y - convolve(x, w, None, None, (1, 1, 1, 1))).max() < 1e-4
    report = registry.report()
    assert report.private + report.derived <= w.nbytes
