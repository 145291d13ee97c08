"""Calibration data in its forms, histograms, and the laws of rounding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import tenonnx
from tenonnx_quant.feeds import open_feeds
from tenonnx_quant.histogram import Histogram
from tenonnx_quant.rounding import Blocks, Integers

A = np.arange(12, dtype=np.float32).reshape(6, 2)


def test_feeds_come_from_files_folders_and_functions(tmp_path: Path) -> None:
    np.savez(tmp_path / "1.npz", x=A, extra=A)
    np.save(tmp_path / "2.npy", A + 1)
    (tmp_path / "notes.txt").write_text("no data")
    script = tmp_path / "data.py"
    script.write_text("import numpy as np\ndef feeds():\n    yield {'x': np.ones((6, 2))}\n")
    for data, first in (
        (tmp_path / "1.npz", [A]),
        (str(tmp_path / "2.npy"), [A + 1]),
        (tmp_path, [A, A + 1]),
        (script, [np.ones((6, 2))]),
        ([{"x": A}, {"x": -A}], [A, -A]),
        (lambda: iter([{"x": A}]), [A]),
    ):
        feeds = open_feeds(data, ["x"])
        for _ in range(2):
            np.testing.assert_array_equal([feed["x"] for feed in feeds()], first)
            assert all(feed.keys() == {"x"} for feed in feeds())
    cut = open_feeds([{"x": A, "s": np.array(2)}], ["x", "s"], batch=4, most=5)
    assert [feed["x"].shape for feed in cut()] == [(4, 2), (2, 2)]
    assert len(list(open_feeds(tmp_path, ["x"], batch=1, most=5)())) == 5


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("none.npz", "there is no calibration data"),
        ("notes.txt", "holds no calibration data"),
        ("broken.npz", "cannot be read"),
        ("empty", "no calibration data in"),
        ("plain.py", "defines no function feeds"),
        ("failing.py", r"failing\.py failed: ZeroDivisionError: division by zero"),
        ("one.npy", "the model has the inputs x, y"),
        ("other.npz", "has nothing for y; it has x"),
    ],
)
def test_data_that_is_none(tmp_path: Path, data: str, message: str) -> None:
    (tmp_path / "notes.txt").write_text("no data")
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04")
    (tmp_path / "empty").mkdir()
    (tmp_path / "plain.py").write_text("")
    (tmp_path / "failing.py").write_text("1 / 0")
    np.save(tmp_path / "one.npy", A)
    np.savez(tmp_path / "other.npz", x=A)
    with pytest.raises(tenonnx.InvalidArgument, match=message):
        open_feeds(tmp_path / data, ["x", "y"])


def test_feeds_that_do_not_fit() -> None:
    with pytest.raises(tenonnx.InvalidArgument, match="a feed is a dict"):
        open_feeds([A], ["x"])
    with pytest.raises(tenonnx.InvalidArgument, match="cannot be cut"):
        open_feeds([{"x": A, "y": A[:2]}], ["x", "y"], batch=2)


def test_percentiles_are_numpys_to_a_bin() -> None:
    x = np.random.default_rng(0).standard_normal(100_000)
    histogram = Histogram(float(x.min()), float(x.max()))
    histogram.add(x[:50_000])
    histogram.add(x[50_000:])
    width = (x.max() - x.min()) / 2048
    low, high = histogram.percentile(0.99)
    expected = np.percentile(x, [0.5, 99.5])
    np.testing.assert_allclose([low, high], expected, atol=width)
    assert histogram.percentile(1.0) == (x.min(), x.max())


@pytest.mark.parametrize("zeros", [0, 300_000])
def test_entropy_cuts_outliers_and_nothing_else(zeros: int) -> None:
    x = np.random.default_rng(0).uniform(-1, 1, 100_000)
    for outliers, most in (([], 1.01), ([10.0, -6.0], 1.3)):
        full = np.concatenate([x, outliers, np.zeros(zeros)])
        histogram = Histogram(float(full.min()), float(full.max()))
        histogram.add(full)
        low, high = histogram.entropy()
        assert 0.95 < high <= most
        assert -most <= low < -0.95


def test_a_constant_has_a_range_of_its_own() -> None:
    histogram = Histogram(3.0, 3.0)
    histogram.add(np.full(10, 3.0))
    assert histogram.entropy() == histogram.percentile(0.999) == (3.0, 3.0)


SHAPES = st.tuples(st.integers(1, 4), st.integers(1, 40), st.integers(1, 4))
KINDS = [Integers(bits, signed, both) for bits in (4, 8) for signed in (1, 0) for both in (1, 0)]


@given(st.data(), st.sampled_from(KINDS), st.sampled_from([1, 16, 64]), st.integers(0, 2))
def test_numbers_come_back_within_a_step(data: Any, kind: Integers, size: int, axis: int) -> None:
    numbers = st.floats(-1e6, 1e6, width=32, allow_subnormal=False)
    x = data.draw(arrays.arrays(np.float32, SHAPES, elements=numbers))
    blocks = Blocks(x.shape, axis, size)
    scale, zero = blocks.scales(x, kind)
    q = blocks.integers(x, kind)
    assert kind.lowest <= q.min()
    assert q.max() <= kind.highest
    assert scale.shape == zero.shape == blocks.scales_shape
    full = [
        np.take(np.repeat(p.astype(np.float64), size, axis), range(x.shape[axis]), axis)
        for p in (scale, zero)
    ]
    error = np.abs((q - full[1]) * full[0] - x.astype(np.float64))
    assert np.all(error <= full[0] * (0.5 if kind.symmetric else 1) * (1 + 1e-4))
    # Zero is exactly some integer's value.
    np.testing.assert_array_equal(q[x == 0], full[1][x == 0])
