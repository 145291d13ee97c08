"""The effect of a node behind a convolution on each channel: a factor and a summand.

This module is public: transforms fold it into weights, and providers into what their kernels do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from tenonnx.graph import array_of, attribute, constant_of

if TYPE_CHECKING:
    import onnx_ir as ir

Array: TypeAlias = np.ndarray[Any, Any]

NORM = "BatchNormalization"


class Affine(NamedTuple):
    """``y = x * factor + shift`` per channel, in float64; ``None`` is 1, or 0."""

    factor: Array | None
    shift: Array | None


def channels_of(convolution: ir.Node, weights: Sequence[int]) -> int:
    """Return how many channels a Conv or a ConvTranspose makes by weights of a shape."""
    if convolution.op_type == "Conv":
        return weights[0]
    return weights[1] * int(attribute(convolution, "group", 1))


def affine_of(node: ir.Node, x: ir.Value, channels: int | None, rank: int) -> Affine | None:
    """Return what a node does to each channel of an image, if that is all it does.

    Args:
        node: It.
        x: The image.
        channels: How many there are, if that is known.
        rank: How many axes an image has.
    """
    version = node.version or 1
    if (node.domain, node.op_type) == ("", NORM):
        return _normalization(node, channels) if node.inputs[0] is x and version >= 9 else None
    if node.domain or node.op_type not in ("Add", "Sub", "Mul", "Div") or version < 7:
        return None
    first, second = node.inputs
    array = _constant(second if first is x else first)
    if array is None or channels is None or (node.op_type in ("Sub", "Div") and first is not x):
        return None
    ones = (1,) * (rank - 2)
    fits = ((), (1,), (1, *ones), (1, 1, *ones), (channels, *ones), (1, channels, *ones))
    if array.shape not in fits or (array.shape == (channels,) and not ones):
        return None
    column = np.broadcast_to(array.astype(np.float64).reshape(-1), channels)
    match node.op_type:
        case "Add":
            return Affine(None, column)
        case "Sub":
            return Affine(None, -column)
        case "Mul":
            return Affine(column, None)
    return Affine(1 / column, None) if np.all(column) else None


def _normalization(node: ir.Node, channels: int | None) -> Affine | None:
    arrays = [_constant(value) for value in node.inputs[1:5]]
    given = [array.astype(np.float64) for array in arrays if array is not None and array.ndim == 1]
    sizes = {array.size for array in given}
    if len(given) != 4 or len(sizes) > 1 or sizes & {0} or channels not in (None, *sizes):
        return None
    if attribute(node, "training_mode", 0) or len(node.outputs) > 1:
        return None
    scale, bias, mean, var = given
    factor = scale / np.sqrt(var + attribute(node, "epsilon", 1e-5))
    return Affine(factor, bias - mean * factor)


def _constant(value: ir.Value | None) -> Array | None:
    tensor = constant_of(value)
    return None if tensor is None else array_of(tensor)
