"""Models as torch and skl2onnx export them, against the answers of the framework they come from.

``tests/exports/export.py`` writes them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tenonnx

MODELS = sorted(Path(__file__).parent.glob("*.onnx"))


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
@pytest.mark.parametrize("level", [0, 99], ids=["plain", "optimized"])
def test_export(path: Path, level: int) -> None:
    arrays = np.load(path.with_suffix(".npz"))
    options = tenonnx.SessionOptions(graph_optimization_level=tenonnx.GraphOptimizationLevel(level))
    session = tenonnx.InferenceSession(path, options)
    inputs = [name for name in arrays.files if name.startswith("in:")]
    # Legacy exports drop inputs that the graph turned out not to need.
    wanted = {arg.name for arg in session.get_inputs()}
    feeds = {name[3:]: arrays[name] for name in inputs if name[3:] in wanted}
    outputs = session.run(None, feeds)
    expected = [arrays[name] for name in arrays.files if name.startswith("out:")]
    assert len(outputs) >= len(expected)
    for actual, answer in zip(outputs, expected, strict=False):
        if answer.dtype.kind == "f":
            answer = answer.reshape(actual.shape)
            np.testing.assert_allclose(actual, answer, rtol=2e-4, atol=2e-5)
        else:
            np.testing.assert_array_equal(actual, answer)
