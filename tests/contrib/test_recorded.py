"""Answers of onnxruntime's CPU kernels, over the attributes of every operator they have.

``tests/contrib/record.py`` writes the answers.
"""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
from rows import Row, feeds_of, model_of, recorded

import tenonnx

ROWS = recorded(Path(__file__).parent)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_row(row: Row) -> None:
    session = tenonnx.InferenceSession(model_of(row), providers=["cpu"])
    feeds = feeds_of(row)
    before = copy.deepcopy(feeds)
    for actual, expected in zip(session.run(None, feeds), row.answers, strict=True):
        actual = np.asarray(actual)
        assert actual.dtype == expected.dtype
        assert actual.shape == expected.shape
        if expected.dtype.kind in "biu":
            np.testing.assert_array_equal(actual, expected)
        else:
            known = ~np.isnan(expected.astype(np.float64))
            np.testing.assert_allclose(
                actual.astype(np.float64)[known],
                expected.astype(np.float64)[known],
                rtol=row.rtol,
                atol=row.atol,
            )
    for name, given in feeds.items():
        np.testing.assert_array_equal(given, before[name])
