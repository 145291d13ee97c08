"""The OpenVINO provider: the contract, segments as a whole, weights by reference."""

from __future__ import annotations

import numpy as np
import pytest

import tenonnx
from tenonnx.testing import ProviderTests, models

pytest.importorskip("openvino", reason="openvino is not installed; tox -e frameworks")


class TestOpenVINO(ProviderTests):
    provider = "openvino"
    cases = "test_a*"
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
