"""Arithmetic on shapes, which stays on the host: there it costs no wait for the device.

Exporters compute with what Shape says (``Shape``, ``Gather``, ``Concat``, ``Reshape``). On the
device each of these numbers would go there, and be waited for on its way back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tenonnx.planning.lower import is_constant
from tenonnx.traits import SHAPE_ARITHMETIC

if TYPE_CHECKING:
    import onnx_ir as ir

    from tenonnx.operators import Kernel

LARGEST: Final = 64
"""Elements of a constant that is taken for a shape, or an index into one."""


def shape_nodes(
    nodes: Iterable[ir.Node], kernel: Callable[[ir.Node], Kernel]
) -> frozenset[ir.Node]:
    """Returns the nodes that compute with shapes alone.

    Args:
        nodes: In order.
        kernel: Returns what would run a node.
    """
    known: set[ir.Value] = set()
    found = set()
    for node in nodes:
        if kernel(node).host_output:
            known.update(node.outputs)
        elif _computes(node, known):
            known.update(node.outputs)
            found.add(node)
    return frozenset(found)


def _computes(node: ir.Node, known: set[ir.Value]) -> bool:
    if node.domain or node.op_type not in SHAPE_ARITHMETIC:
        return False
    given = [value for value in node.inputs if value is not None]
    moving = [value for value in given if not is_constant(value)]
    small = all(
        value.const_value is not None and value.const_value.size <= LARGEST
        for value in given
        if is_constant(value)
    )
    return small and bool(moving) and known.issuperset(moving)


def as_array(call: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a call whose result is an array where numpy makes a number of it."""

    def called(*inputs: Any) -> Any:
        return np.asarray(call(*inputs))

    return called
