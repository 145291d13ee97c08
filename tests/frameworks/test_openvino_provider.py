"""The OpenVINO provider: the contract, segments as a whole, weights by reference."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
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


def test_a_model_is_one_step_without_weights() -> None:
    session = tenonnx.InferenceSession(models.mlp(), providers=["openvino", "cpu"])
    (step,) = session.plan.steps
    assert step.nodes == tuple(session.model.graph)
    assert [value.name for value in step.inputs if value is not None] == ["x"]


def test_constants_of_the_model_handed_over_are_the_registrys_memory() -> None:
    from tenonnx_openvino.hand_over import constants_of, model_of

    model = ir.from_proto(models.mlp(64, 64, 8))
    for node in model.graph:
        node.version = 21
    nodes = tuple(model.graph)
    segment = tenonnx.Segment(nodes, frozenset(model.graph.outputs))
    constants = constants_of(segment)
    handed = model_of(segment, constants)
    held = [op.data for op in handed.get_ops() if op.get_type_name() == "Constant"]
    (big,) = (a for a in constants.values() if a.shape == (64, 64))
    assert any(np.shares_memory(big, array) for array in held if array.shape == big.shape)
