"""Errors in units in the last place, on the benchmark's cases, without anything to compare with.

``python -m bench precision`` tells what onnxruntime's are.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

ROUNDED_ONCE = 0.51
"""What is computed in float32 and then rounded may fall on the other side of a tie."""

NARROW = (
    "Add", "Attention", "BiasGelu", "CumSum", "Erf", "Exp", "FastGelu", "Gelu", "Gemm",
    "GroupNormalization", "InstanceNormalization", "LayerNormalization", "Log", "MatMul", "Pow",
    "QuickGelu", "RMSNormalization", "ReduceL1", "ReduceL2", "ReduceLogSumExp", "ReduceMean",
    "ReduceProd", "ReduceSum", "ReduceSumSquare", "Sigmoid", "SkipLayerNormalization", "Softmax",
    "Sqrt", "Tanh",
)  # fmt: skip
"""Operators whose answers in 16 bits are rounded once."""


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[1])


def rows_of(op: str, dtype: str, engine: str) -> list[Any]:
    """The errors of every case of an operator."""
    measure = importlib.import_module("bench.precision.measure")
    cases = importlib.import_module("bench.precision.__main__").CASES
    return [measure.errors_of(case, dtype, engine) for case in cases if case.op == op]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("op", NARROW)
def test_of_16_bits(op: str, dtype: str) -> None:
    for row in rows_of(op, dtype, "numpy"):
        assert row.largest <= ROUNDED_ONCE, row
