"""Attention over a cache that has more room than entries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tenonnx_array.attention import attention

RANDOM = np.random.default_rng(0)


def normal(*shape: int) -> Any:
    return RANDOM.standard_normal(shape, dtype=np.float32)


@pytest.mark.parametrize("mask", [None, "float", "bool"])
@pytest.mark.parametrize("lengths", [[5, 7], [3, 3], [3, 0]])
def test_what_lies_behind_the_entries_is_not_looked_at(lengths: list[int], mask: Any) -> None:
    q, k, v = normal(2, 4, 3, 8), normal(2, 2, 10, 8), normal(2, 2, 10, 8)
    end = max(lengths)
    bias = {None: None, "float": normal(3, 10), "bool": RANDOM.random((3, 10)) < 0.7}[mask]
    given = np.array(lengths)
    short = None if bias is None else bias[:, :end]
    expected = attention(np, q, k[:, :, :end], v[:, :, :end], short, None, None, given, is_causal=1)
    k[:, :, end:], v[:, :, end:] = np.nan, np.nan
    y, keys, values, _ = attention(np, q, k, v, bias, None, None, given, is_causal=1, _outputs=3)
    np.testing.assert_array_equal(y, expected[0])
    assert keys is k
    assert values is v
