"""ONNX operator semantics, once, over any array namespace; owns no device."""

from __future__ import annotations

import importlib

from tenonnx.operators import OperatorTable

MODULES = (
    "attention",
    "batch_norm",
    "boxes",
    "cast",
    "conv",
    "conv_quantized",
    "conv_transpose",
    "cumulative",
    "deform",
    "elementwise",
    "generate",
    "grid",
    "images",
    "index",
    "linalg",
    "linear_attention",
    "logical",
    "loss",
    "nonlinear",
    "norm",
    "pad",
    "pool",
    "quant",
    "recurrent",
    "reduce",
    "resize",
    "roi_align",
    "roi_pool",
    "sampling",
    "scatter",
    "search",
    "sequence",
    "shape",
    "signal",
    "slicing",
    "softmax",
    "strings",
    "tfidf",
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
