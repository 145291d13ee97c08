"""Every (operator, version) pair that the ONNX backend suite leaves out, against formulas."""

from __future__ import annotations

import copy

import pytest
from case import Case, assert_equal
from cases import CASES, feeds_of, model_of

import tenonnx


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_pair(case: Case, pytestconfig: pytest.Config) -> None:
    if not case.is_known:
        pytest.skip("the installed onnx is older")
    session = tenonnx.InferenceSession(model_of(case), providers=[pytestconfig.option.provider])
    feeds = feeds_of(case)
    before = copy.deepcopy(feeds)
    outputs = session.run(None, feeds)
    for actual, expected in zip(outputs, case.answers(), strict=True):
        assert_equal(actual, expected, case.rtol, case.atol)
    for name, given in feeds.items():
        assert_equal(given, before[name], 0, 0)
