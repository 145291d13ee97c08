"""An estimate of numpy's time for a node, by which kernels are compiled in order."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tenonnx.planning.lower import is_constant
from tenonnx.traits import COSTLY

if TYPE_CHECKING:
    import onnx_ir as ir

# The assumed size of an unknown dimension.
ASSUMED_SIZE = 32

# In the names of operators that take numpy several passes; see ``COSTLY``, too.
FAMILIES = ("Attention", "Gelu", "Normalization", "Softmax")
FUNCTION = 8.0

# The cost of a multiplication and addition in BLAS, relative to a pass over an element.
PRODUCT = 1 / 16

BLAS = frozenset({"Gemm", "MatMul"})


def work_of(node: ir.Node) -> float:
    """Return the time in passes over an element; at least 1."""
    result = max((_elements(value) for value in node.outputs), default=1.0)
    work = result * (FUNCTION if _takes_passes(node.op_type) else 1.0)
    weights = [v for v in node.inputs if v is not None and is_constant(v) and _rank(v) >= 2]
    if weights:
        products = _products(result, weights, node.op_type)
        # Other types, such as integers, take time in proportion to their number of elements.
        work += products * (PRODUCT if node.op_type in BLAS else 1.0)
    elif node.op_type in BLAS:
        given = node.inputs[0].shape if node.inputs[0] is not None else None
        work += PRODUCT * result * (_size(given[-1]) if given else ASSUMED_SIZE)
    return max(1.0, work)


def _takes_passes(operator: str) -> bool:
    return operator in COSTLY or any(family in operator for family in FAMILIES)


def _products(result: float, weights: list[ir.Value], operator: str) -> float:
    """Return how many multiplications there are of a result and a layer's weights."""
    largest = max(weights, key=_elements)
    shape = [] if largest.shape is None else [_size(each) for each in largest.shape]
    channels = shape[0] if "Conv" in operator or "NBits" in operator else shape[-1]
    return result * max(1.0, _elements(largest) / max(1, channels))


def _rank(value: ir.Value) -> int:
    return 0 if value.shape is None else len(value.shape)


def _elements(value: ir.Value) -> float:
    if value.shape is None:
        return float(ASSUMED_SIZE)
    return math.prod((float(_size(each)) for each in value.shape), start=1.0)


def _size(dimension: object) -> int:
    return dimension if isinstance(dimension, int) else ASSUMED_SIZE
