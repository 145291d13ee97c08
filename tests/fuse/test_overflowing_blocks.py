"""Blocks whose weights overflow float32 once they are scaled, and whose sums do not."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import tenonnx
from models import FLOAT, model, node, value

COLUMNS = 16


@pytest.mark.parametrize("level", [0, 99])
def test_a_block_is_scaled_after_its_sum(level: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENONNX_JIT", "0")
    codes = np.tile(np.array([-8, 7], np.int8), 16)[:, None].repeat(COLUMNS, 1)
    scales, x = np.ones((2, COLUMNS), np.float32), np.full((1, 32), 0.5, np.float32)
    scales[0], x[0, :16] = 1e38, 0
    x[0, :2] = 1, 9 / 7  # by -8 and 7: the block's sum is 1
    nodes = [
        node("DequantizeLinear", "w s", "d", axis=0, block_size=16),
        node("MatMul", "x d", "y"),
    ]
    proto = model(
        nodes, [value("x", FLOAT, [1, 32])], [value("y", FLOAT, [1, COLUMNS])], {"s": scales}
    )
    nibbles = codes.ravel() & 15
    packed = (nibbles[::2] | nibbles[1::2] << 4).astype(np.uint8).tobytes()
    proto.graph.initializer.add(
        name="w", data_type=onnx.TensorProto.INT4, dims=codes.shape, raw_data=packed
    )
    options = tenonnx.SessionOptions()
    options.graph_optimization_level = tenonnx.GraphOptimizationLevel(level)
    (found,) = tenonnx.InferenceSession(proto, options, providers=["cpu"]).run(None, {"x": x})
    exact = x.astype(np.float64) @ (codes * scales.astype(np.float64).repeat(16, 0))
    if level:
        np.testing.assert_allclose(found, exact, rtol=1e-6)
    else:
        assert np.isnan(found).all()  # infinities of both signs
