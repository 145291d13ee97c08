"""Constants that transforms make: weights of the registry, as views where that is possible."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx_ir as ir

from tenonnx import TransformContext, Weight, WeightTensor

Array: TypeAlias = np.ndarray[Any, Any]


def derived(
    graph: ir.Graph | ir.Function | None,
    name: str,
    key: str,
    build: Callable[[], Array],
    sources: Sequence[Weight],
    context: TransformContext,
) -> ir.Value:
    """Return an initializer that is derived once; the one there is if there is one.

    Args:
        graph: Where it is read.
        name: The initializer's.
        key: Says all that the contents depend on.
        build: Returns the contents; a view of a source costs no bytes.
        sources: The weights from which it is built.
        context: Whose registry keeps it.
    """
    assert isinstance(graph, ir.Graph)
    weight = context.weights.derive(key, build, sources)
    while name in graph.initializers:
        there = graph.initializers[name]
        if isinstance(there.const_value, WeightTensor) and there.const_value.weight is weight:
            return there
        name += "'"
    value = ir.Value(name=name, const_value=WeightTensor(weight, name=name))
    value.shape, value.type = ir.Shape(weight.shape), ir.TensorType(weight.dtype)
    graph.register_initializer(value)
    return value
