"""Functions that have bounds keep to them: quantizers take their ranges from such values."""

from __future__ import annotations

import numpy as np
import pytest

import tenonnx
from models import FLOAT, model, node, value


@pytest.mark.parametrize(("operator", "least"), [("Tanh", -1), ("Sigmoid", 0), ("Erf", -1)])
def test_values_keep_to_their_bounds(operator: str, least: int) -> None:
    proto = model([node(operator, "x", "y")], [value("x", FLOAT, ["n"])], [value("y")])
    x = np.concatenate([np.linspace(-s, s, 100_001, dtype=np.float32) for s in (1, 10, 100, 3e38)])
    (y,) = tenonnx.InferenceSession(proto).run(None, {"x": x})
    assert y.min() >= least
    assert y.max() == 1
