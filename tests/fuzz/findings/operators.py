"""Attributes, weights and inputs that an operator stumbled over."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from models import model, node, value


def one(op: str, feeds: dict[str, Any], outputs: str = "y", **given: Any) -> Any:
    """A node that reads all that is fed, in this order, and the feeds."""
    weights = given.pop("weights", {})
    domain = given.get("domain", "")
    names = given.pop("inputs", " ".join([*feeds, *weights]))
    inputs = [
        value(name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), [None] * array.ndim)
        for name, array in feeds.items()
    ]
    results = [value(name, 0, None) for name in outputs.split()]
    domains = {domain: given.pop("version", 1)} if domain else {}
    opset = given.pop("opset", 21)
    made = model(
        [node(op, names, outputs, **given)], inputs, results, weights, opset=opset, domains=domains
    )
    return made, feeds


OPERATORS: dict[str, tuple[onnx.ModelProto, dict[str, Any]]] = {
    "a product of unlike depths": one(
        "MatMul", {"x": np.ones((2, 3), np.float32)}, weights={"w": np.ones((4, 2), np.float32)}
    ),
}
