"""The OpenVINO provider: the contract, segments as a whole, weights by reference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from rounded import ROUNDED

import tenonnx
from tenonnx.testing import ProviderTests, models

pytest.importorskip("openvino", reason="openvino is not installed; tox -e frameworks")


class TestOpenVINO(ProviderTests):
    provider = "openvino"
    cases = "test_a*"
    gaps = ROUNDED
    frameworks = ("openvino",)
    copies = "OpenVINO lays out matrices anew for its kernels"
    examples = 5


def test_a_weight_is_no_input_of_the_step() -> None:
    weights = {"w": np.ones((4, 4), np.float32)}
    model = models.build("y = MatMul(x, w)", "float[n, 4] x", "float[n, 4] y", weights=weights)
    session = tenonnx.InferenceSession(model, providers=["openvino", "cpu"])
    (step,) = session.plan.steps
    assert [value.name for value in step.inputs if value is not None] == ["x"]
    (y,) = session.run(None, {"x": np.ones((2, 4), np.float32)})
    np.testing.assert_array_equal(y, np.full((2, 4), 4, np.float32))


def big() -> onnx.ModelProto:
    weights = {"w": np.eye(64, dtype=np.float32)}
    body = "h = MatMul(x, w) r = Relu(h) y = MatMul(r, w)"
    return models.build(body, "float[n, 64] x", "float[n, 64] y", weights=weights)


def test_big_weights_of_a_mapped_file_are_handed_over(tmp_path: Path) -> None:
    onnx.save(big(), tmp_path / "model.onnx")
    session = tenonnx.InferenceSession(tmp_path / "model.onnx", providers=["openvino"])
    (step,) = session.plan.steps
    assert [node.op_type for node in step.nodes] == ["MatMul", "Relu", "MatMul"]
    x = np.arange(-64, 64, dtype=np.float32).reshape(2, 64)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], np.maximum(x, 0))


def test_sessions_of_a_model_share_what_openvino_makes_of_it(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(big(), path)
    x = np.ones((1, 64), np.float32)
    sessions = [tenonnx.InferenceSession(path, providers=["openvino"]) for _ in range(2)]
    for session in sessions:
        session.run(None, {"x": x})
    first, second = (session.plan.steps[0].call for session in sessions)
    types = (("float32", 2),)
    assert first.compiled(types) is second.compiled(types)


def test_ranks_that_a_model_does_not_say_are_found() -> None:
    proto = big()
    assert not proto.graph.value_info
    session = tenonnx.InferenceSession(proto, providers=["openvino", "cpu"])
    assert session.placement.counts() == {"OpenVINOExecutionProvider": 3}
    session = tenonnx.InferenceSession(proto, providers=["cpu"])
    (report,) = (report for report in session.transforms if report.name == "openvino-ranks")
    assert not report.modified
