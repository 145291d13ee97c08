"""An output for the last position alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import tenonnx
from models import FLOAT, model, node, value
from tenonnx_fuse.last_row import LAST_ROW_ENTRY

WEIGHT = np.arange(12, dtype=np.float32).reshape(4, 3) / 7
X = np.random.default_rng(0).standard_normal((2, 5, 4), np.float32)


def proto(*nodes: onnx.NodeProto, outputs: str = "logits") -> onnx.ModelProto:
    weights = {"w": WEIGHT, "b": WEIGHT[0], "two": np.array(2, np.float32), "v": WEIGHT[None]}
    made = [value(name, FLOAT, ["b", "n", 3]) for name in outputs.split()]
    started = node("Softmax", "x", "h")
    return model([started, *nodes], [value("x", FLOAT, ["b", "n", 4])], made, weights)


def session(given: onnx.ModelProto, name: str | None = "logits") -> tenonnx.InferenceSession:
    options = tenonnx.SessionOptions()
    if name is not None:
        options.add_session_config_entry(LAST_ROW_ENTRY, name)
    return tenonnx.InferenceSession(given.SerializeToString(), options)


PLAIN = [node("MatMul", "h w", "logits")]
CAPPED = [
    node("MatMul", "h w", "p"), node("Add", "b p", "q"), node("Div", "q two", "r"),
    node("Tanh", "r", "s"), node("Mul", "two s", "logits"),
]  # fmt: skip


@pytest.mark.parametrize("nodes", [PLAIN, CAPPED])
def test_the_last_row_is_what_it_was(nodes: list[Any]) -> None:
    given = proto(*nodes)
    (whole,), (last,) = (session(given, name).run(None, {"x": X}) for name in (None, "logits"))
    assert whole.shape == (2, 5, 3)
    np.testing.assert_allclose(last, whole[:, -1:], rtol=1e-6)
    assert session(given).get_outputs()[0].shape == ["b", 1, 3]


@pytest.mark.parametrize("given", [
    proto(node("MatMul", "h w", "y"), node("Softmax", "y", "logits")),
    proto(node("MatMul", "h w", "y"), node("Tanh", "y", "logits"), outputs="logits y"),
    proto(node("MatMul", "h v", "logits")),
    proto(node("MatMul", "h w", "y"), node("Add", "y y", "logits")),
])  # fmt: skip
def test_what_is_no_product_of_rows_is_left(given: onnx.ModelProto) -> None:
    whole, made = (session(given, name).run(None, {"x": X})[0] for name in (None, "logits"))
    np.testing.assert_allclose(made, whole, rtol=1e-6)


def test_a_name_that_is_no_output_does_nothing() -> None:
    assert session(proto(*PLAIN), "nothing").run(None, {"x": X})[0].shape == (2, 5, 3)
