"""Errors in units in the last place, on the benchmark's cases, without anything to compare with.

``python -m bench precision`` tells what onnxruntime's are.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

ROUNDED_ONCE = 0.51
"""A result that is computed in float32 and then rounded may fall on the other side of a tie."""

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
    monkeypatch.syspath_prepend(Path(__file__).parents[2])


def rows_of(op: str, dtype: str, engine: str) -> list[Any]:
    """The errors of every case of an operator."""
    measure = importlib.import_module("bench.precision.measure")
    cases = importlib.import_module("bench.precision.__main__").CASES
    return [measure.errors_of(case, dtype, engine, draws=1) for case in cases if case.op == op]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("op", NARROW)
def test_of_16_bits(op: str, dtype: str) -> None:
    for row in rows_of(op, dtype, "numpy"):
        assert row.largest <= ROUNDED_ONCE, row


SINGLE = {
    "Softmax": (2.5, 5.5),
    "LogSoftmax": (14.0, 14.0),
    "ReduceSum": (0.51, 2.4),
    "ReduceMean": (0.51, 2.4),
    "ReduceL1": (0.8, 0.8),
    "ReduceL2": (1.1, 2.0),
    "ReduceLogSumExp": (1.6, 1.8),
    "LayerNormalization": (2.2, 1.7),
    "RMSNormalization": (3.0, 2.6),
    "InstanceNormalization": (2.0, 2.0),
    "GroupNormalization": (2.0, 2.1),
    "GlobalAveragePool": (1.5, 0.51),
    "Erf": (1.2, 1.2),
    "Exp": (0.51, 1.0),
    "BiasGelu": (1.7, 1.7),
    "Sigmoid": (0.51, 1.7),
    "Swish": (0.51, 1.9),
    "Tanh": (1.4, 3.6),
    "Pow": (1.3, 1.3),
    "Normalizer": (22.0, 22.0),
    "MatMul": (3.5, 3.5),
    "GridSample": (2.2, 2.2),
    "RoiAlign": (1.1, 1.1),
}
"""By operator: what float32 may be off by, on numpy and by kernels.

An L1 norm of 3,000 terms is summed as onnxruntime sums it; a LogSoftmax that is almost 0 is the
difference of two numbers that are not.
"""


@pytest.mark.parametrize("engine", ["numpy", "kernels"])
@pytest.mark.parametrize("op", SINGLE)
def test_of_32_bits(op: str, engine: str) -> None:
    for row in rows_of(op, "float32", engine):
        assert row.largest <= SINGLE[op][engine == "kernels"], row


@pytest.mark.parametrize(
    ("op", "kind", "most"),
    [
        ("Sigmoid", "small", 0.75),
        ("Swish", "small", 1.4),
        ("QuickGelu", "small", 1.5),
        ("LayerNormalization", "off center", 0.3),
        ("MatMul", "row", 0.5),
    ],
)
def test_of_kernels_where_digits_are_lost(op: str, kind: str, most: float) -> None:
    """An exponential beside 1, a mean beside its elements, a long sum of one row."""
    (row,) = (row for row in rows_of(op, "float32", "kernels") if kind in row.errors)
    assert row.errors[kind].largest <= most, row
