"""Arithmetic on shapes: what exporters compute with what ``Shape`` says, for a Reshape or a Slice.

Results are small, and depend on no element of any tensor. A device leaves them to the host, where
they cost no wait; the CPU provider computes them once for inputs of the same shapes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from tenonnx.graph.traits import SHAPE_ARITHMETIC
from tenonnx.planning.lower import is_constant

if TYPE_CHECKING:
    import onnx_ir as ir


def reads_shape_alone(node: ir.Node) -> bool:
    """Return whether a node's result is of its input's shape alone, which is not known before."""
    if node.domain or node.op_type not in ("Shape", "Size"):
        return False
    return node.inputs[0] is not None and not is_constant(node.inputs[0])


def on_shapes(
    nodes: Iterable[ir.Node], largest: int, starts: Callable[[ir.Node], bool] = reads_shape_alone
) -> list[ir.Node]:
    """Return the nodes that read shapes, and the nodes that compute with their results alone.

    Args:
        nodes: In an order in which they can run.
        largest: Elements of a constant that takes part.
        starts: Returns which nodes' results are known from shapes.
    """
    known: set[ir.Value] = set()
    found = []
    for node in nodes:
        if starts(node) or _computes(node, known, largest):
            known.update(node.outputs)
            found.append(node)
    return found


def _computes(node: ir.Node, known: set[ir.Value], largest: int) -> bool:
    if node.domain or not (node.op_type in SHAPE_ARITHMETIC or _is_small_expand(node, largest)):
        return False
    given = [value for value in node.inputs if value is not None]
    return not known.isdisjoint(given) and all(
        value in known or _is_small_constant(value, largest) for value in given
    )


def _is_small_constant(value: ir.Value, largest: int) -> bool:
    tensor = value.const_value
    return is_constant(value) and tensor is not None and tensor.size <= largest


def _is_small_expand(node: ir.Node, largest: int) -> bool:
    if node.op_type != "Expand" or node.inputs[1] is None or not is_constant(node.inputs[1]):
        return False
    tensor = node.inputs[1].const_value
    return tensor is not None and tensor.size <= 1 and math.prod(tensor.numpy().tolist()) <= largest
