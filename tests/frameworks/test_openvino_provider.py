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


def test_a_weight_is_no_input_of_openvinos_model() -> None:
    weights = {"w": np.ones((4, 4), np.float32)}
    model = models.build("y = MatMul(x, w)", "float[n, 4] x", "float[n, 4] y", weights=weights)
    session = tenonnx.InferenceSession(model, providers=["openvino", "cpu"])
    (step,) = session.plan.steps
    (compiled,) = step.call.loaded._known.values()
    assert len(compiled.model.inputs) == 1
    (y,) = session.run(None, {"x": np.ones((2, 4), np.float32)})
    np.testing.assert_array_equal(y, np.full((2, 4), 4, np.float32))


def big(width: int = 64) -> onnx.ModelProto:
    weights = {"w": np.eye(width, dtype=np.float32)}
    body = "h = MatMul(x, w) r = Relu(h) y = MatMul(r, w)"
    ends = f"float[n, {width}] x", f"float[n, {width}] y"
    return models.build(body, *ends, weights=weights)


def test_big_weights_of_a_mapped_file_are_handed_over(tmp_path: Path) -> None:
    onnx.save(big(), tmp_path / "model.onnx")
    session = tenonnx.InferenceSession(tmp_path / "model.onnx", providers=["openvino"])
    (step,) = session.plan.steps
    assert [node.op_type for node in step.nodes] == ["MatMul", "Relu", "MatMul"]
    x = np.arange(-64, 64, dtype=np.float32).reshape(2, 64)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], np.maximum(x, 0))


def test_sessions_of_a_model_share_what_openvino_makes_of_it(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(big(512), path)
    x = np.ones((1, 512), np.float32)
    sessions = [tenonnx.InferenceSession(path, providers=["openvino"]) for _ in range(2)]
    for session in sessions:
        session.run(None, {"x": x})
    first, second = (session.plan.steps[0].call.loaded._known for session in sessions)
    assert list(first) == list(second) == [(("float32", 2),)]
    assert first.popitem()[1] is second.popitem()[1]


def test_ranks_that_a_model_does_not_say_are_found() -> None:
    proto = big()
    assert not proto.graph.value_info
    session = tenonnx.InferenceSession(proto, providers=["openvino", "cpu"])
    assert session.placement.counts() == {"OpenVINOExecutionProvider": 3}
    session = tenonnx.InferenceSession(proto, providers=["cpu"])
    (report,) = (report for report in session.transforms if report.name == "openvino-ranks")
    assert not report.modified


@pytest.mark.usefixtures("keeps_plans")
def test_a_segment_is_kept_for_later_processes(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(big(), path)
    x = np.arange(-64, 64, dtype=np.float32).reshape(2, 64)
    for stages in (["read", "transform", "place", "compile"], ["open"]):
        session = tenonnx.InferenceSession(path, providers=["openvino", "cpu"])
        assert list(session.load_times) == stages
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], np.maximum(x, 0))
    others = [("openvino", {"num_of_threads": 1})]
    assert list(tenonnx.InferenceSession(path, providers=others).load_times) != ["open"]


def test_a_segment_in_a_model(tmp_path: Path) -> None:
    onnx.save(big(), tmp_path / "model.onnx")
    options = tenonnx.SessionOptions()
    options.add_session_config_entry("ep.context_enable", "1")
    tenonnx.InferenceSession(tmp_path / "model.onnx", options, providers=["openvino"])
    options = tenonnx.SessionOptions(trust_compiled_plan=True)
    opened = tenonnx.InferenceSession(tmp_path / "model_ctx.onnx", options, providers=["openvino"])
    x = np.arange(-64, 64, dtype=np.float32).reshape(2, 64)
    np.testing.assert_array_equal(opened.run(None, {"x": x})[0], np.maximum(x, 0))
