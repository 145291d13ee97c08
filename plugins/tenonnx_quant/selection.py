"""The choice of nodes to quantize, and of their operands that are weights."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import onnx_ir as ir

from tenonnx import InvalidArgument
from tenonnx.graph import attribute, constant_of

WEIGHT_TYPES = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


@dataclass(frozen=True)
class Selection:
    """The nodes to quantize.

    Attributes:
        operators: Their operators, of ai.onnx.
        exclude: Names of nodes to leave out; ``*`` and ``?`` stand for any letters.
    """

    operators: tuple[str, ...]
    exclude: tuple[str, ...] = ()

    def takes(self, node: ir.Node) -> bool:
        """Return whether a node is selected."""
        if node.domain != "" or node.op_type not in self.operators:
            return False
        return not any(fnmatch.fnmatchcase(node.name or "", name) for name in self.exclude)

    def refuse_unknown(self, model: ir.Model, known: Iterable[str]) -> None:
        """Raise what is wrong with the selection.

        Raises:
            InvalidArgument: An operator that cannot be quantized, or an excluded name that no
                node has.
        """
        known = sorted(known)
        for operator in self.operators:
            if operator not in known:
                raise InvalidArgument(
                    f"{operator} cannot be quantized in this way",
                    hint=f"choose from {', '.join(known)}",
                )
        names = [node.name or "" for node in model.graph.all_nodes()]
        for name in self.exclude:
            if not fnmatch.filter(names, name):
                raise InvalidArgument(
                    f"no node is called {name!r}", hint="`tenonnx inspect MODEL` lists the nodes"
                )


def is_scaled(node: ir.Node) -> bool:
    """Return whether a Gemm does more than multiply and add."""
    return (attribute(node, "alpha", 1.0), attribute(node, "beta", 1.0)) != (1.0, 1.0)


def is_weight(value: ir.Value | None) -> bool:
    """Return whether a value is a float constant of two dimensions or more."""
    tensor = constant_of(value)
    return tensor is not None and tensor.dtype in WEIGHT_TYPES and len(tensor.shape) >= 2


def weights(model: ir.Model) -> Iterator[tuple[ir.Graph, ir.Value]]:
    """Yield every float constant of two dimensions or more that somebody reads."""
    for graph in tuple(model.graphs()):
        for value in tuple(graph.initializers.values()):
            if is_weight(value) and value.uses():
                yield graph, value


def depth_axis(node: ir.Node, index: int, rank: int) -> int | None:
    """Return the axis of an operand along which a node sums; ``None`` if it is no weight of it.

    For a table that rows are gathered from, that is the axis of a row.
    """
    if node.domain != "":
        return None
    if node.op_type == "MatMul" and index == 1:
        return rank - 2
    if node.op_type == "Gemm" and index == 1:
        return 1 if attribute(node, "transB", 0) else 0
    if node.op_type == "Gather" and index == 0 and rank == 2 and not attribute(node, "axis", 0):
        return 1
    return None


def turned(node: ir.Node) -> ir.Value | None:
    """Return the transpose of a matrix that a node makes, if it makes one."""
    if node.domain != "" or node.op_type != "Transpose":
        return None
    permutation = node.attributes.get("perm")
    if permutation is not None and tuple(permutation.as_ints()) != (1, 0):
        return None
    return node.outputs[0]


def product_uses(
    value: ir.Value, selection: Selection, operators: tuple[str, ...] = ("MatMul", "Gemm")
) -> list[tuple[ir.Node, int]]:
    """Return the selected products with a weight, also through a transpose, and their axes.

    The axis is that of the weight itself along which the product sums.
    """
    assert value.const_value is not None
    rank, found = len(value.const_value.shape), []
    for node, index in value.uses():
        transposed = turned(node) if rank == 2 else None
        readers = transposed.uses() if transposed is not None else ((node, index),)
        for reader, place in readers:
            if reader.op_type not in operators or not selection.takes(reader):
                continue
            axis = depth_axis(reader, place, rank)
            if axis is not None:
                found.append((reader, 1 - axis if transposed is not None else axis))
    return found
