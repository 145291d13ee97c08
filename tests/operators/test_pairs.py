"""Every (operator, version) pair that the ONNX backend suite leaves out, against formulas."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest
from case import Case, assert_equal

from tenonnx_array import TABLE

CASES: list[Case] = [
    case
    for path in sorted(Path(__file__).parent.glob("cases_*.py"))
    for case in importlib.import_module(path.stem).CASES
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_pair(case: Case) -> None:
    kernel = TABLE.find(case.domain, case.op, case.version)
    assert kernel is not None
    expected = case.answers()
    call = kernel.bind(np, case.attributes, len(expected))
    with np.errstate(all="ignore"):
        actual = call(*case.inputs)
    for a, e in zip(actual if kernel.multiple else (actual,), expected, strict=False):
        assert_equal(a, e, case.rtol, case.atol)
