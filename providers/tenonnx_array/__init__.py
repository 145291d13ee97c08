"""ONNX operator semantics, once, over any array namespace; owns no device."""

from __future__ import annotations

import importlib

from tenonnx.operators import OperatorTable

MODULES = (
    "cast",
    "logical",
    "activations",
    "elementwise",
    "attention",
    "linalg",
    "linear_attention",
    "quant",
)

TABLE = OperatorTable().update(
    *(importlib.import_module(f"tenonnx_array.{name}").table for name in MODULES)
)
