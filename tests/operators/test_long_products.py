"""Long products are sums of short ones; long gaps take no time."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import tenonnx
from models import FLOAT, INT64, model, node, value
from tenonnx_array import products

SOON = 1.0
"""Seconds of computing after which a test has failed."""
SIZES = st.integers(1, 4)
STACKS = st.sampled_from(
    [((), ()), ((3,), ()), ((), (2,)), ((2, 1), (3,)), ((2, 3), (2, 1)), ((1,), (4,))]
)


@given(STACKS, SIZES, st.integers(0, 9), SIZES, st.integers(1, 5), st.booleans())
def test_chains_are_the_product(
    stacks: Any, rows: int, depth: int, columns: int, chain: int, into: bool
) -> None:
    draw = np.random.default_rng(rows + depth)
    a = draw.integers(-9, 9, (*stacks[0], rows, depth)).astype(np.float32)
    b = draw.integers(-9, 9, (*stacks[1], depth, columns)).astype(np.float32)
    wanted = np.matmul(a, b)
    out = np.full_like(wanted, np.nan) if into else None
    found = products.matmul(np, a, b, out, chain=chain)
    assert out is None or found is out
    np.testing.assert_array_equal(found, wanted)


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
