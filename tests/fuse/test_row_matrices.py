"""Matrices that are inputs, one for each row of a batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import tenonnx
from models import FLOAT, model, node, value
from tenonnx_fuse.row_matrices import ROW_MATRICES_ENTRY

RANDOM = np.random.default_rng(4)
X = RANDOM.standard_normal((3, 5, 4), np.float32)
A = RANDOM.standard_normal((3, 4, 2), np.float32)


def session(given: onnx.ModelProto, asked: str = "1") -> tenonnx.InferenceSession:
    options = tenonnx.SessionOptions()
    options.add_session_config_entry(ROW_MATRICES_ENTRY, asked)
    return tenonnx.InferenceSession(given.SerializeToString(), options)


def proto(*nodes: onnx.NodeProto, **weights: Any) -> onnx.ModelProto:
    started = [node("Softmax", "x", "h"), *nodes]
    inputs = [value("x", FLOAT, ["b", "n", 4]), value("a", FLOAT, [4, "r"])]
    return model(started, inputs, [value("y", FLOAT, ["b", "n", None])], weights)


def test_each_row_has_its_own() -> None:
    given = proto(node("MatMul", "h a", "y"))
    made = session(given)
    assert made.get_inputs()[1].shape == ["a_rows", 4, "r"]
    whole = made.run(None, {"x": X, "a": A})[0]
    for row in range(3):
        (alone,) = session(given, "0").run(None, {"x": X[row : row + 1], "a": A[row]})
        np.testing.assert_allclose(whole[row], alone[0], rtol=1e-5)
        (shared,) = made.run(None, {"x": X, "a": A[row : row + 1]})
        np.testing.assert_allclose(shared[row], alone[0], rtol=1e-5)


def test_values_that_are_nothing_may_be_left_out() -> None:
    given = proto(node("MatMul", "h a", "y"), a=np.zeros((4, 0), np.float32))
    made = session(given)
    assert made.get_overridable_initializers()[0].shape == ["a_rows", 4, "r"]
    assert made.run(None, {"x": X})[0].shape == (3, 5, 0)


@pytest.mark.parametrize("given", [
    proto(node("MatMul", "h a", "y"), a=A[0]),
    proto(node("Softmax", "a", "s"), node("MatMul", "h a", "p"), node("MatMul", "h s", "q"),
          node("Add", "p q", "y")),
])  # fmt: skip
def test_others_are_left(given: onnx.ModelProto) -> None:
    made = session(given)
    arg = next(a for a in (*made.get_inputs(), *made.get_overridable_initializers())
               if a.name == "a")  # fmt: skip
    assert arg.shape == [4, "r"]
    (whole,) = made.run(None, {"x": X, "a": A[0]})
    (expected,) = session(given, "0").run(None, {"x": X, "a": A[0]})
    np.testing.assert_array_equal(whole, expected)
