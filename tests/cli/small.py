"""A model whose outputs numpy computes too, and the types of the fixtures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import onnx
from typer.testing import Result

from models import FLOAT, INT64, model, node, value

Cli: TypeAlias = Callable[..., Result]
Start: TypeAlias = Callable[..., Any]
"""Return a ``subprocess.Popen`` whose streams are pipes."""

Write: TypeAlias = Callable[[str, str], str]

RANDOM = np.random.default_rng(0)
W1 = RANDOM.standard_normal((16, 8)).astype(np.float32)
W2 = RANDOM.standard_normal((8, 5)).astype(np.float32)


def mlp_model() -> onnx.ModelProto:
    proto = model(
        [
            node("MatMul", "x w1", "a"),
            node("Relu", "a", "b"),
            node("MatMul", "b w2", "y"),
            node("ArgMax", "y", "best", axis=-1, keepdims=0),
        ],
        [value("x", FLOAT, ["batch", 16])],
        [value("y", FLOAT, ["batch", 5]), value("best", INT64, ["batch"])],
        {"w1": W1, "w2": W2},
    )
    proto.producer_name, proto.producer_version = "a test", "2.0"
    return proto


def mlp_outputs(x: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
    y = np.maximum(x @ W1, 0) @ W2
    return {"y": y, "best": y.argmax(-1)}
