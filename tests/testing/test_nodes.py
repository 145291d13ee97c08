"""ONNX's node cases, which its package has in memory or, before 1.23, in files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.backend.test.case.test_case import TestCase

import tenonnx
from models import FLOAT, model, node, value
from tenonnx.testing import nodes

X = np.arange(3, dtype=np.float32)


def test_the_installed_onnx_has_cases() -> None:
    assert len(nodes.node_cases("*")) > 1000


def test_cases_in_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = value("xs", FLOAT, None)
    listed.type.sequence_type.elem_type.tensor_type.elem_type = FLOAT
    proto = model([node("SequenceAt", "xs i", "y")], [listed, value("i", 7, [])], [value("y")])
    onnx.save(proto, tmp_path / "model.onnx")
    data = tmp_path / "test_data_set_0"
    data.mkdir()
    inputs = [numpy_helper.from_list([X, X + 1]), numpy_helper.from_array(np.int64(1)[()])]
    for number, each in enumerate(inputs):
        (data / f"input_{number}.pb").write_bytes(each.SerializeToString())
    answer = numpy_helper.from_array(X + 1)
    (data / "output_0.pb").write_bytes(answer.SerializeToString())
    found = TestCase("test_at", "at", None, str(tmp_path), None, None, "node", 1e-3, 1e-7)
    monkeypatch.setattr(nodes, "load_model_tests", lambda **_: [found])
    (case,) = nodes.node_cases.__wrapped__("*").values()  # the cache is for all tests
    assert case.check(tenonnx.InferenceSession).get_outputs()[0].name == "y"
    ((_, expected),) = case.data
    np.testing.assert_array_equal(expected, [X + 1])
