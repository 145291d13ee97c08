"""Models of control flow, and their runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

import tenonnx
from models import BOOL, FLOAT, INT64, graph, model, node, value

X = np.array([1, -2, 3, 4], np.float32)


def run(proto: onnx.ModelProto, **feeds: Any) -> list[Any]:
    return tenonnx.InferenceSession(proto).run(None, feeds)


def loop_model(body: onnx.GraphProto, inputs: str, outputs: list[Any], **weights: Any) -> Any:
    names = [name for name in inputs.split() if name != "_" and name not in weights]
    kinds = {"n": (INT64, []), "c": (BOOL, [])}
    given = [value(name, *kinds.get(name, (FLOAT, [4]))) for name in names]
    if "x" not in names:
        given.append(value("x", FLOAT, [4]))
    loop = node("Loop", inputs, " ".join(o.name for o in outputs), body=body)
    return model([loop], given, outputs, weights)


def body(nodes: list[onnx.NodeProto], outputs: list[Any]) -> onnx.GraphProto:
    state = [value("i", INT64, []), value("cond", BOOL, []), value("a", FLOAT, [4])]
    return graph(nodes, state, [value("go", BOOL, []), *outputs])
