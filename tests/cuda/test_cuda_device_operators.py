"""Operators on a device: rows that ONNX's suite leaves out, and those of com.microsoft."""

from __future__ import annotations

from typing import Any

import pytest
import test_cuda_contract as contract
import test_cuda_contrib as contrib
from case import Case, assert_equal
from cases import feeds_of, model_of

import tenonnx
from tenonnx.provider import why_unusable
from tenonnx_cuda.provider import CUDAExecutionProvider

MISSING = why_unusable(CUDAExecutionProvider)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(MISSING is not None, reason=str(MISSING)),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]


def opened(model: Any) -> tenonnx.InferenceSession:
    options = tenonnx.SessionOptions(graph_optimization_level=0)
    return tenonnx.InferenceSession(model, options, [("cuda", {"use_tf32": False}), "cpu"])


@pytest.mark.parametrize("case", contract.SOME, ids=lambda case: case.id)
def test_device_pair(case: Case) -> None:
    outputs: Any = opened(model_of(case)).run(None, feeds_of(case))
    for actual, expected in zip(outputs, case.answers(), strict=True):
        assert_equal(actual, expected, case.rtol, case.atol)


@pytest.mark.parametrize("row", contrib.SOME, ids=lambda row: row.id)
def test_device_row(row: Any) -> None:
    contrib.check(row, opened(contrib.model_of(row)))
