from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from running import Watch, floats, session

from models import INT64, node
from tenonnx_array.search import top_k
from tenonnx_cpu.reduce import topk

FEW = st.sampled_from([-np.inf, -1.0, -0.0, 0.0, 0.5, 1.0, np.inf, np.nan])
ROWS = hnp.arrays(np.float32, st.tuples(st.integers(1, 3), st.integers(8, 40)), elements=FEW)


@given(ROWS, st.integers(1, 8), st.booleans())
def test_the_kernel_orders_as_numpy_does(x: Any, k: int, largest: bool) -> None:
    topk.TOP_K.request()
    run = topk.TOP_K.run
    assert run is not None
    values, places = np.empty((len(x), k), np.float32), np.empty((len(x), k), np.int64)
    run(x, values, places, int(largest), 2, 1)
    expected, where = top_k(np, x, k, -1, int(largest))
    np.testing.assert_array_equal(places, where)
    np.testing.assert_array_equal(values, expected)


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize(
    ("shape", "largest", "count"), [((2, 3, 7000), 0, 300), ((9000,), 1, 300), ((5, 90), 1, 90)]
)
def test_a_node_is_one_call(
    threads: int,
    constant: bool,
    shape: Any,
    largest: int,
    count: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x, k = floats(*shape), np.array([count])
    weights, feeds = ({"k": k}, {"x": x}) if constant else ({}, {"x": x, "k": k})
    one = session(
        [node("TopK", "x k", "y i", largest=largest)],
        feeds,
        "y i",
        weights,
        threads=threads,
        kinds={"i": INT64, "k": INT64},
    )
    watched = Watch(topk.TOP_K, monkeypatch)
    for _ in range(4):
        for found, expected in zip(
            one.run(None, feeds), top_k(np, x, count, -1, largest), strict=True
        ):
            np.testing.assert_array_equal(found, expected)
    assert watched.calls == 4
