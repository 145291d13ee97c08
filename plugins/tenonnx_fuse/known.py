"""Constants among values; ``tenonnx.graph.sizes`` and ``tenonnx.graph.dtypes`` know of others."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from tenonnx import HOST, Weight, WeightTensor
from tenonnx.graph import attribute as attribute
from tenonnx.graph import constant_of
from tenonnx.graph.sizes import operand, rank_of


def weight_of(value: ir.Value | None) -> Weight | None:
    """Return the weight that a value is; ``None`` if it is made by a run, or may be replaced."""
    tensor = constant_of(value)
    return tensor.weight if isinstance(tensor, WeightTensor) else None


def array_of(value: ir.Value | None) -> np.ndarray[Any, Any] | None:
    """Return the constant that a value is, on the host."""
    weight = weight_of(value)
    return None if weight is None else weight.on(HOST)


def number_of(value: ir.Value | None) -> float | None:
    """Return the one real number that a value is, whatever happens; ``None`` if it is none."""
    weight = weight_of(value)
    if weight is None or len(weight.shape) > 1 or weight.shape not in ((), (1,)):
        return None
    array = weight.on(HOST)
    is_real = array.dtype.kind in "fiu" or weight.dtype == ir.DataType.BFLOAT16
    return float(array.reshape(-1)[0]) if is_real else None


def permutation(node: ir.Node) -> tuple[int, ...] | None:
    """Return where a Transpose takes its axes from; ``None`` if it does not say, or nonsense."""
    given = attribute(node, "perm", None)
    if given is not None:
        return tuple(given) if sorted(given) == list(range(len(given))) else None
    rank = rank_of(operand(node, 0))
    return None if rank is None else tuple(reversed(range(rank)))
