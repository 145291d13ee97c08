"""Models with one malformed node."""

from __future__ import annotations

import numpy as np
import onnx

from models import FLOAT, model, node, value

W = np.arange(1, 5, dtype=np.float32).reshape(2, 2)
V = np.ones(2, np.float32)
SIZES = np.array([2, 1], np.int64)


def malformed(*nodes: onnx.NodeProto) -> onnx.ModelProto:
    weights = {"w": W, "v": V, "n": SIZES, "q": W.astype(np.int8)}
    return model(nodes, [value("x", FLOAT, [2, 2])], [value("y", FLOAT, None)], weights)


def branch(to: int, declared: int) -> onnx.GraphProto:
    return onnx.helper.make_graph(
        [node("Cast", "x", f"b{to}", to=to)], "b", [], [value(f"b{to}", declared, None)]
    )
