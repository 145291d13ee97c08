"""The operators of com.microsoft on an emulated device, with onnxruntime's results."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from emulated import session
from test_cuda_contract import EVERY

sys.path.insert(0, str(Path(__file__).parents[1] / "contrib"))

from rows import Row, feeds_of, model_of, recorded

ROWS = recorded(Path(__file__).parents[1] / "contrib")

WAITS = {
    "MoE": "the host has to know which experts were chosen",
    "QMoE": "the host has to know which experts were chosen",
}
"""Operators that make the host wait for the device, and the reason."""


SOME = ROWS if EVERY else ROWS[::10]


def parameters() -> list[Any]:
    return [
        pytest.param(
            row,
            id=row.id,
            marks=[pytest.mark.xfail(strict=True, reason=WAITS[row.op])] if row.op in WAITS else [],
        )
        for row in SOME
    ]


@pytest.mark.parametrize("row", parameters())
def test_row(row: Row) -> None:
    check(row, session(model_of(row), graph_optimization_level=0))


def check(row: Row, opened: Any) -> None:
    """Compare a session's answers with the recorded ones."""
    for actual, expected in zip(opened.run(None, feeds_of(row)), row.answers, strict=True):
        actual = np.asarray(actual)
        assert actual.dtype == expected.dtype
        assert actual.shape == expected.shape
        if expected.dtype.kind in "biuO":
            np.testing.assert_array_equal(actual, expected)
            continue
        wide = [a.astype(np.float64) for a in (actual, expected)]
        known = ~np.isnan(wide[1])
        np.testing.assert_allclose(*(a[known] for a in wide), rtol=row.rtol, atol=row.atol)
