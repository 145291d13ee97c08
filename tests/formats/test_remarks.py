"""Programs that log everything get no records of the libraries that read a model."""

from __future__ import annotations

import logging

import onnx_ir as ir
import pytest

import tenonnx
from models import model, node, value


def test_a_session_says_nothing_of_onnx_ir(caplog: pytest.LogCaptureFixture) -> None:
    """But for what a program has onnx_ir read itself."""
    proto = model([node("Relu", "x", "h"), node("Celu", "h", "y")], [value("x")], [value("y")])
    with caplog.at_level(logging.DEBUG):
        tenonnx.InferenceSession(proto)
        assert {record.name.partition(".")[0] for record in caplog.records} <= {"tenonnx"}
        ir.from_proto(proto)
    assert caplog.records[-1].name == "onnx_ir.serde"
