"""Long kernels of numpy: cut into pieces, the same results; stopped between two."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tenonnx
from models import FLOAT, INT64, model, node, value
from tenonnx import interruption
from tenonnx_array import products

SOON = 1.0
"""Seconds of computing after which a test has failed."""
SIZES = st.integers(1, 4)
STACKS = st.sampled_from(
    [((), ()), ((3,), ()), ((), (2,)), ((2, 1), (3,)), ((2, 3), (2, 1)), ((1,), (4,))]
)


@given(STACKS, SIZES, st.integers(0, 4), SIZES, st.integers(1, 12), st.booleans())
def test_pieces_are_the_product(
    stacks: Any, rows: int, depth: int, columns: int, longest: int, into: bool
) -> None:
    draw = np.random.default_rng(rows + depth)
    a = draw.integers(-9, 9, (*stacks[0], rows, depth)).astype(np.float64)
    b = draw.integers(-9, 9, (*stacks[1], depth, columns)).astype(np.float64)
    before, products.LONGEST = products.LONGEST, longest
    try:
        wanted = np.matmul(a, b)
        out = np.full_like(wanted, np.nan) if into else None
        found = products.matmul(np, a, b, out)
    finally:
        products.LONGEST = before
    assert out is None or found is out
    np.testing.assert_array_equal(found, wanted)


class Soon:
    """A limit of a tenth of a second."""

    def __init__(self) -> None:
        self.end = time.perf_counter() + 0.1

    def check(self) -> None:
        if time.perf_counter() > self.end:
            raise interruption.Stopped("enough")


@pytest.mark.parametrize("dtype", [np.float64, np.int32])
def test_a_long_product_is_stopped(dtype: Any) -> None:
    size = 4000 if dtype == np.float64 else 1500
    a = np.ones((size, size), dtype)
    start = time.process_time()
    with interruption.limited(Soon()), pytest.raises(interruption.Stopped):
        products.matmul(np, a, a)
    assert time.process_time() - start < SOON


def test_skips_beyond_a_row_take_no_time() -> None:
    vectorizer = node(
        "TfIdfVectorizer", "x", "y", max_gram_length=2, min_gram_length=1, max_skip_count=2**32,
        mode="TF", ngram_counts=[0, 1], ngram_indexes=[0, 1], pool_int64s=[5, 1, 2],
    )  # fmt: skip
    proto = model([vectorizer], [value("x", INT64, [None])], [value("y", FLOAT, [2])])
    start = time.process_time()
    session = tenonnx.InferenceSession(proto)
    (y,) = session.run(None, {"x": np.array([1, 5, 5, 2, 2])})
    np.testing.assert_array_equal(y, [2, 2])
    assert time.process_time() - start < 5 * SOON
