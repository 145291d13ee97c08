"""Tiny models for tests, in the text form of ONNX."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx.parser

# A domain whose operators nobody has.
FOREIGN = "org.tenonnx.testing"


def build(
    body: str,
    inputs: str = "float[n] x",
    outputs: str = "float[n] y",
    *,
    weights: Mapping[str, np.ndarray[Any, Any]] | None = None,
    opset: int = 21,
    domains: Mapping[str, int] | None = None,
) -> onnx.ModelProto:
    """Return a model whose graph is written as in ``build("h = Neg(x) y = Exp(h)")``.

    Args:
        body: Nodes, as ``onnx.parser`` reads them.
        inputs: Types and names of the inputs.
        outputs: Types and names of the outputs.
        weights: Initializers by name.
        opset: Version of ai.onnx.
        domains: Versions of other domains.
    """
    imports = {"": opset, **(domains or {})}
    versions = ", ".join(f'"{domain}": {version}' for domain, version in imports.items())
    header = f"<ir_version: 10, opset_import: [{versions}]>"
    model = onnx.parser.parse_model(f"{header} test ({inputs}) => ({outputs}) {{ {body} }}")
    for name, array in (weights or {}).items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return model


def mlp(inputs: int = 16, hidden: int = 32, outputs: int = 8) -> onnx.ModelProto:
    """Return two layers with random weights: ``x`` is float[n, inputs]."""
    random = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray[Any, Any]:
        return np.asarray(random.standard_normal(shape) / np.sqrt(shape[0]), np.float32)

    return build(
        "a = MatMul(x, w1) b = Add(a, b1) c = Relu(b) d = MatMul(c, w2) y = Add(d, b2)",
        f"float[n, {inputs}] x",
        f"float[n, {outputs}] y",
        weights={
            "w1": normal(inputs, hidden),
            "b1": normal(hidden),
            "w2": normal(hidden, outputs),
            "b2": normal(outputs),
        },
    )


def branch() -> onnx.ModelProto:
    """Return an ``If`` whose branches read the graph around it: relu(x) or -x."""
    return build(
        """
        y = If (flag) <
            then_branch = yes () => (float[n] a) { a = Relu(x) },
            else_branch = no () => (float[n] b) { b = Neg(x) }
        >
        """,
        "bool flag, float[n] x",
    )


def loop() -> onnx.ModelProto:
    """Return a ``Loop`` that negates and clips ``x`` as often as ``times`` says."""
    return build(
        """
        start = Identity(x)
        y = Loop (times, , start) <
            body = step (int64 i, bool go, float[n] before) => (bool go_on, float[n] after) {
                go_on = Identity(go)
                turned = Neg(before)
                after = Relu(turned)
            }
        >
        """,
        "int64 times, float[n] x",
    )


def foreign() -> onnx.ModelProto:
    """Return a model with an operator that no provider has, between two that most have."""
    return build(f"h = Neg(x) k = {FOREIGN}.Nothing(h) y = Relu(k)", domains={FOREIGN: 1})
