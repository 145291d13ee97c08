"""Reductions of scalars over axes they do not have, which torch's exporter writes.

The answers are onnxruntime 1.32's: any axis is taken, and the result is a scalar.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tenonnx
from models import FLOAT, INT64, model, node, value

ANSWERS = {
    # of -3.0
    "ReduceL1": 3.0, "ReduceL2": 3.0, "ReduceLogSumExp": -3.0, "ReduceMax": -3.0,
    "ReduceMean": -3.0, "ReduceMin": -3.0, "ReduceProd": -3.0, "ReduceSum": -3.0,
    "ReduceSumSquare": 9.0,
}  # fmt: skip


def runs(nodes: list[Any], kind: int, version: int, given: Any, **weights: Any) -> list[Any]:
    """Run without optimization and with all of it; often enough to be recorded and replayed."""
    made = []
    output = value("y", INT64 if nodes[0].op_type.startswith("Arg") else kind, None)
    proto = model(nodes, [value("x", kind, None)], [output], weights, opset=version)
    for level in (0, 99):
        options = tenonnx.SessionOptions(graph_optimization_level=level)
        session = tenonnx.InferenceSession(proto, options, providers=["cpu"])
        made += [session.run(None, {"x": given})[0] for _ in range(4)]
    return made


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("axis", [0, -1, 1, -2])
@pytest.mark.parametrize("operator", ANSWERS)
def test_a_scalar_takes_any_axis(operator: str, axis: int, keepdims: int) -> None:
    x = np.array(-3, np.float32)
    by_input = node(operator, "x a", "y", keepdims=keepdims)
    by_attribute = node(operator, "x", "y", keepdims=keepdims, axes=[axis])
    answers = runs([by_input], FLOAT, 18, x, a=np.array([axis]))
    answers += runs([by_attribute], FLOAT, 11, x)
    for answer in answers:
        assert answer.shape == ()
        assert answer.dtype == np.float32
        assert answer == ANSWERS[operator]


@pytest.mark.parametrize("operator", ["ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum"])
def test_integers_do_so_too(operator: str) -> None:
    for answer in runs([node(operator, "x a", "y")], INT64, 18, np.array(-3), a=np.array([0])):
        assert answer.shape == ()
        assert answer == -3


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("axis", [0, -1, 1])
@pytest.mark.parametrize("operator", ["ArgMax", "ArgMin"])
def test_the_only_place_is_the_first(operator: str, axis: int, last: int) -> None:
    nodes = [node(operator, "x", "y", axis=axis, select_last_index=last)]
    for answer in runs(nodes, FLOAT, 21, np.array(-3, np.float32)):
        assert answer.shape == ()
        assert answer == 0


@pytest.mark.parametrize("kind", [FLOAT, INT64])
@pytest.mark.parametrize("axes", [[0, 0], [0, -2], [-2, 0, 0]])
def test_an_axis_may_be_named_twice(axes: list[int], kind: int) -> None:
    x = np.arange(6).reshape(2, 3).astype(np.float32 if kind == FLOAT else np.int64)
    for answer in runs([node("ReduceSum", "x a", "y")], kind, 18, x, a=np.array(axes)):
        assert answer.tolist() == [[3, 5, 7]]


def test_no_axis_beyond_those_of_an_array() -> None:
    x = np.ones((2, 3), np.float32)
    with pytest.raises(tenonnx.Fail):
        runs([node("ReduceSum", "x a", "y")], FLOAT, 18, x, a=np.array([2]))
