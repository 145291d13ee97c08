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


X = np.ones((2, 3), np.float32)
MS = "com.microsoft"

OPERATORS: dict[str, tuple[onnx.ModelProto, dict[str, Any]]] = {
    "Cast of nothing": one("Cast", {"x": X}, inputs="_", to=1),
    "Sub of one": one("Sub", {"x": X}, opset=20),
    "LayerNormalization without a scale": one("LayerNormalization", {"x": X}, inputs="x _"),
    "SkipLayerNormalization of one": one("SkipLayerNormalization", {"x": X}, domain=MS),
    "SkipLayerNormalization of nothing": one(
        "SkipLayerNormalization", {"x": X}, inputs="_ x x", domain=MS
    ),
    "CropAndResize of six": one("CropAndResize", {"x": X}, inputs="x x x x x x", domain=MS),
    "ConvTranspose in no groups": one(
        "ConvTranspose", {"x": np.ones((1, 2, 4), np.float32)},
        weights={"w": np.ones((2, 2, 3), np.float32)}, group=0,
    ),
    "Resize at an odd place": one(
        "Resize", {"x": X}, inputs="x roi scales", opset=11, mode="linear",
        coordinate_transformation_mode="tf_crop_and_resize",
        weights={
            "roi": np.array([0, -1e30, 1, 1e30], np.float32), "scales": np.ones(2, np.float32)
        },
    ),
    "a loss of labels that there are not": one(
        "SoftmaxCrossEntropyLoss", {"x": X, "t": np.array([1 << 40, 0])}
    ),
    "a loss of labels that are no integers": one("SoftmaxCrossEntropyLoss", {"x": X, "t": X[:, 0]}),
    "MatMulNBits of nothing": one(
        "MatMulNBits", {"x": X}, inputs="x _ x", domain=MS, K=3, N=2, bits=4, block_size=16
    ),
    "MatMulNBits of very wide codes": one(
        "MatMulNBits", {"x": X}, domain=MS, K=3, N=2, bits=1 << 62, block_size=16,
        weights={"w": np.zeros((2, 1, 8), np.uint8), "s": np.ones((2, 1), np.float32)},
    ),
    "QMoE of one layer": one(
        "QMoE", {"x": np.ones((1, 16), np.float32), "p": np.ones((1, 1), np.float32)}, domain=MS,
        inputs="x p w s _ _ s", block_size=16, expert_weight_bits=2,
        weights={"w": np.ones((1, 3, 4), np.uint8), "s": np.ones((1, 3, 1), np.float32)},
    ),
    "a gradient of nothing": one(
        "Gradient", {"x": X}, domain="ai.onnx.preview.training", y="x"
    ),
}  # fmt: skip
