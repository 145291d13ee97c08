"""Small models for tests, in one line each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT = TensorProto.FLOAT
INT64 = TensorProto.INT64
BOOL = TensorProto.BOOL

Spec = tuple[str, int, Sequence[int | str | None]]


def value(name: str, dtype: int = FLOAT, shape: Sequence[int | str | None] = (None,)) -> Any:
    return helper.make_tensor_value_info(name, dtype, shape)


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    """``node("Add", "x y", "z")``; ``_`` stands for an absent input."""
    names = ["" if name == "_" else name for name in inputs.split()]
    return helper.make_node(op, names, outputs.split(), **attributes)


def graph(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    weights: Mapping[str, np.ndarray[Any, Any]] | None = None,
) -> onnx.GraphProto:
    tensors = [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    return helper.make_graph(nodes, "test", inputs, outputs, tensors)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    weights: Mapping[str, np.ndarray[Any, Any]] | None = None,
    *,
    opset: int = 21,
    domains: Mapping[str, int] | None = None,
    functions: Sequence[onnx.FunctionProto] = (),
    ir_version: int = 10,
) -> onnx.ModelProto:
    imports = [helper.make_opsetid("", opset)]
    imports += [helper.make_opsetid(domain, version) for domain, version in (domains or {}).items()]
    return helper.make_model(
        graph(nodes, inputs, outputs, weights),
        opset_imports=imports,
        functions=functions,
        ir_version=ir_version,
    )
