"""Sums by bucket, as FeatureHasher is exported, beside numpy's sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from running import Watch, require_kernels, session

from models import INT64, node
from tenonnx_cpu.ml.feature_hashing import BUCKETS

require_kernels()

Array = np.ndarray[Any, Any]


def hashing(buckets: int, feeds: dict[str, Array], threads: int) -> Any:
    zeros = np.zeros(buckets, np.int64)
    nodes = [
        node("Mul", "places zeros", "empty"),
        node("ScatterElements", "empty places numbers", "rows", axis=1),
        node("Reshape", "rows shape", "apart"),
        node("Cast", "apart", "floats", to=1),
        node("ReduceSum", "floats axis", "y", keepdims=0),
    ]
    weights = {"zeros": zeros, "axis": np.array([-2])}
    kinds = dict.fromkeys(feeds, INT64)
    return session(nodes, feeds, "y", weights, threads=threads, kinds=kinds)


def sums(buckets: int, rows: int, places: Array, numbers: Array) -> Array:
    expected = np.zeros((rows, buckets), np.float32)
    which = np.repeat(np.arange(rows), places.size // rows)
    np.add.at(expected, (which, places.ravel()), numbers.ravel().astype(np.float32))
    return expected


@given(st.data())
def test_numbers_are_summed_by_bucket(data: st.DataObject) -> None:
    buckets, rows = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 9))
    each, seed = data.draw(st.integers(1, 12)), data.draw(st.integers(0, 99))
    threads = data.draw(st.sampled_from([1, 4]))
    random = np.random.default_rng(seed)
    places = random.integers(-buckets, buckets, (rows * each, 1))
    feeds = {
        "places": places,
        "numbers": random.integers(-5, 6, places.shape),
        "shape": np.array([rows, -1, buckets]),
    }
    (y,) = hashing(buckets, feeds, threads).run(None, feeds)
    assert np.array_equal(y, sums(buckets, rows, places, feeds["numbers"]))


@pytest.mark.parametrize("threads", [1, 4])
def test_many_rows_take_one_launch(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Watch(BUCKETS, monkeypatch)
    random = np.random.default_rng(3)
    places = random.integers(0, 64, (9000, 1))
    feeds = {"places": places, "numbers": random.integers(-1, 2, places.shape)}
    feeds["shape"] = np.array([3000, -1, 64])
    (y,) = hashing(64, feeds, threads).run(None, feeds)
    assert kernel.calls == 1
    assert np.array_equal(y, sums(64, 3000, places, feeds["numbers"]))


@pytest.mark.parametrize("place", [-65, 64, 1 << 40])
def test_places_outside_are_an_error(place: int) -> None:
    feeds = {"places": np.array([[3], [place]]), "numbers": np.ones((2, 1), np.int64)}
    feeds["shape"] = np.array([2, -1, 64])
    with pytest.raises(Exception, match=r"ScatterElements"):
        hashing(64, feeds, 1).run(None, feeds)
