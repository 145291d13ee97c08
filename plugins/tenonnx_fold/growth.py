"""The size of a result, for operators whose kernels ask for its memory without looking."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from tenonnx.graph import attribute
from tenonnx.graph.traits import ELEMENTWISE


def predicted_bytes(node: ir.Node, inputs: Sequence[np.ndarray[Any, Any] | None]) -> int:
    """Return at most how many bytes a node's result has; 0 where that is not known.

    Unknown are those whose kernels look at what they may ask for, and those whose results are
    about as large as their inputs.
    """
    arrays = [array for array in inputs if array is not None]
    if node.domain or not arrays:
        return 0
    width = max(array.itemsize for array in arrays)
    try:
        return width * _elements(node, arrays)
    except (ValueError, IndexError, TypeError):  # the run will say what is wrong
        return 0


def _elements(node: ir.Node, arrays: list[np.ndarray[Any, Any]]) -> int:
    if node.op_type in ELEMENTWISE:
        return math.prod(np.broadcast_shapes(*(array.shape for array in arrays)))
    if node.op_type == "Concat":
        return sum(array.size for array in arrays)
    if node.op_type == "MatMul":
        a, b = arrays
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        return math.prod((*batch, *a.shape[-2:-1], *b.shape[1:][-1:]))
    if node.op_type == "Gather":
        data, indices = arrays
        along: int = data.shape[attribute(node, "axis", 0)]
        return indices.size * data.size // max(1, along)
    return 0
