"""ONNX operator semantics, once, over any array namespace; owns no device."""

from __future__ import annotations

import importlib

from tenonnx.operators import OperatorTable

MODULES = (
    "search",
    "cumulative",
    "softmax",
    "reduce",
    "shape",
    "slicing",
    "pad",
    "index",
    "scatter",
    "generate",
    "sampling",
    "sequence",
    "strings",
    "tfidf",
    "cast",
    "logical",
    "nonlinear",
    "elementwise",
    "attention",
    "linalg",
    "linear_attention",
    "loss",
    "quant",
    "recurrent",
    "signal",
    "training",
    "ml.encode",
    "ml.features",
    "ml.linear",
    "ml.maps",
    "ml.scale",
    "ml.svm",
    "ml.trees",
)

TABLE = OperatorTable().update(
    *(importlib.import_module(f"tenonnx_array.{name}").table for name in MODULES)
)
