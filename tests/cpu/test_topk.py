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
from tenonnx_cpu.capture.launch import done
from tenonnx_cpu.reduce import topk


def refused(*_: Any) -> Any:
    raise AssertionError("the kernel takes it")


FEW = st.sampled_from([-np.inf, -1.0, -0.0, 0.0, 0.5, 1.0, np.inf, np.nan])
DTYPES = [
    *("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("float16", "float32", "float64"),
]
ROWS = hnp.arrays(np.float32, st.tuples(st.integers(1, 3), st.integers(8, 200)), elements=FEW)


@given(ROWS, st.sampled_from([*range(1, 9), 32, 40]), st.booleans(), st.sampled_from([0, 1, 2]))
def test_the_kernel_orders_as_numpy_does(x: Any, k: int, largest: bool, axis: int) -> None:
    k = min(k, x.shape[1])
    for dtype in DTYPES:
        own = x
        if dtype[0] in "iu":  # by way of integers: processors differ in casts of negative numbers
            own = (np.nan_to_num(x, posinf=100, neginf=-100) * 2).astype(np.int64)
        own = np.moveaxis(np.stack([own, own[:, ::-1]], 1), 2, axis).astype(dtype, order="C")
        call = topk.TopKCall(axis, int(largest), True, 2, refused)
        found = done(call(own, np.array([k])))
        for each, expected in zip(found, top_k(np, own, k, axis, int(largest)), strict=True):
            np.testing.assert_array_equal(each, expected)


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize(
    ("shape", "largest", "count"),
    [((2, 3, 7000), 0, 300), ((9000,), 1, 300), ((5, 90), 1, 90), ((30, 1000), 1, 300)],
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
