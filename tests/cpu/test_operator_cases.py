"""The operators' cases by formula once more, with kernels where kernels take their operators."""

from __future__ import annotations

import pytest
from case import Case, assert_equal
from cases import CASES, feeds_of, model_of

import tenonnx
from tenonnx_cpu.listing import LISTING

OPERATORS = {name for names in LISTING.values() for name in names.split()}
TAKEN = [case for case in CASES if "::".join(filter(None, [case.domain, case.op])) in OPERATORS]


@pytest.mark.parametrize("case", TAKEN, ids=lambda case: case.id)
def test_case(case: Case) -> None:
    session = tenonnx.InferenceSession(model_of(case), providers=["cpu"])
    feeds = feeds_of(case)
    for _ in range(3):
        for actual, expected in zip(session.run(None, feeds), case.answers(), strict=True):
            assert_equal(actual, expected, case.rtol, case.atol)
